//! What is the matter with a cluster as a whole, by the answers of its processes. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::{gather::Asked, pods};
use crate::status::{Answer, Finding, Level};

/// Those that answered.
fn answers(asked: &[Asked]) -> impl Iterator<Item = &Answer> {
    asked.iter().filter_map(|it| it.answer.as_deref().ok())
}

/// What is the matter with processes of one cluster, when all of them were asked.
pub(super) fn findings(asked: &[Asked]) -> Vec<Finding> {
    if asked.is_empty() {
        return vec![unknown(format!("no pod has the label {}", pods::SELECTOR))];
    }
    let lacking = ["operator", "mesh"]
        .into_iter()
        .filter(|role| !answers(asked).any(|answer| answer.role == *role));
    let mut found: Vec<_> = lacking
        .map(|role| unknown(format!("no {role} has answered")))
        .collect();
    found.extend(of_names(asked));
    found.extend(unasked_leader(asked));
    found.extend(unasked_copier(asked));
    found.extend(leaders(asked));
    found
}

/// Whether more than one operator of a cluster writes.
pub(super) fn leaders(asked: &[Asked]) -> Vec<Finding> {
    let mut leading: BTreeMap<&str, Vec<bool>> = BTreeMap::new();
    for answer in answers(asked) {
        let leads = answer.leadership.as_ref().filter(|it| it.leads);
        if let (Some(leadership), Some(cluster)) = (leads, &answer.cluster) {
            let elected = leading.entry(&cluster.name).or_default();
            elected.push(leadership.elected);
        }
    }
    let several = leading.into_iter().filter(|(_, elected)| elected.len() > 1);
    let found = several.map(|(cluster, elected)| {
        let what = format!(
            "{} operators of {cluster} lead at the same time",
            elected.len()
        );
        if elected.iter().all(|elected| *elected) {
            // One may have answered before the Lease changed hands, and the other after.
            let next = "ask again: one that has led a moment ago may have answered first";
            return Finding::new(Level::Unknown, "leader", what, next);
        }
        let next = "run one replica, or all of them with --leader-election";
        Finding::new(Level::Problem, "leader", what, next)
    });
    found.collect()
}

/// Whether all processes take themselves to be of the same cluster.
fn of_names(asked: &[Asked]) -> Option<Finding> {
    let members = answers(asked).filter_map(|answer| answer.cluster.as_ref());
    let names: BTreeSet<_> = members
        .map(|member| format!("{} (id {})", member.name, member.id))
        .collect();
    let names: Vec<_> = names.into_iter().collect();
    (names.len() > 1).then(|| {
        Finding::new(
            Level::Problem,
            "cluster",
            format!(
                "its processes do not agree which cluster it is: {}",
                names.join(", ")
            ),
            "give all of them the same --cluster-name and --cluster-id",
        )
    })
}

/// Whether somebody leads who was not asked: what that one has to do is not known.
fn unasked_leader(asked: &[Asked]) -> Option<Finding> {
    let parts = || answers(asked).filter_map(|answer| answer.leadership.as_ref());
    if parts().any(|part| part.leads) {
        return None;
    }
    let known: BTreeSet<_> = parts()
        .filter_map(|part| part.identity.as_deref())
        .collect();
    let mut holders = parts().filter_map(|part| part.holder.as_deref());
    let other = holders.find(|holder| !known.contains(holder))?;
    Some(unknown(format!(
        "{other} leads, and is no process that answered"
    )))
}

/// Whether somebody copies the peers who was not asked: how far that one is, is not known. That a lock is held says nothing of who
/// holds it.
fn unasked_copier(asked: &[Asked]) -> Option<Finding> {
    let parts = || answers(asked).filter_map(|answer| answer.copies.as_ref());
    if parts().any(|part| part.leads) {
        return None;
    }
    let holder = parts().find_map(|part| part.holder.as_deref())?;
    Some(unknown(format!(
        "whoever holds {holder} copies the peers, and is no process that answered"
    )))
}

fn unknown(what: String) -> Finding {
    Finding::new(
        Level::Unknown,
        "cluster",
        what,
        format!(
            "check `kubectl get pods -A -l {}`; or name the processes with --address",
            pods::SELECTOR
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cli::status::gather::Target,
        status::testkit::{copier, leader, mesh, operator, standby, store},
    };

    fn asked(answers: impl IntoIterator<Item = Answer>) -> Vec<Asked> {
        let target = || Target::Address("http://127.0.0.1:9879".parse().unwrap());
        let asked = answers.into_iter().map(|answer| Asked {
            target: target(),
            answer: Ok(Box::new(answer)),
        });
        asked.collect()
    }

    fn levels(found: &[Finding]) -> Vec<Level> {
        found.iter().map(|finding| finding.level).collect()
    }

    fn replica(leads: bool, elected: bool) -> Answer {
        let mut answer = operator(Vec::new());
        let part = if leads { leader() } else { standby() };
        answer.leadership = Some(crate::status::answer::Leadership { elected, ..part });
        answer
    }

    #[test]
    fn a_cluster_with_both_roles_and_one_leader_is_well() {
        let all = asked([replica(true, true), replica(false, true), mesh(store())]);

        assert_eq!(findings(&all), []);
    }

    #[test]
    fn a_role_that_nobody_has_is_unknown() {
        let found = findings(&asked([replica(true, true)]));

        assert_eq!(levels(&found), [Level::Unknown]);
        assert!(found[0].what.contains("no mesh has answered"), "{found:?}");
        assert_eq!(levels(&findings(&[])), [Level::Unknown]);
    }

    #[test]
    fn two_that_lead_are_a_problem_when_one_was_not_elected_and_unknown_otherwise() {
        let two = |elected| leaders(&asked([replica(true, true), replica(true, elected)]));

        assert_eq!(levels(&two(false)), [Level::Problem]);
        assert_eq!(levels(&two(true)), [Level::Unknown]);
        let mut elsewhere = replica(true, false);
        elsewhere.cluster.as_mut().unwrap().name = "rome".to_owned();
        assert_eq!(leaders(&asked([replica(true, false), elsewhere])), []);
    }

    #[test]
    fn a_leader_that_was_not_asked_is_unknown() {
        let found = findings(&asked([replica(false, true), mesh(store())]));

        assert_eq!(levels(&found), [Level::Unknown]);
        assert!(found[0].what.contains("operator-0_1f leads"), "{found:?}");
    }

    #[test]
    fn a_copier_that_was_not_asked_is_unknown() {
        let copies = |leads: bool| {
            let mut answer = copier(Vec::new());
            let copies = answer.copies.as_mut().unwrap();
            copies.leads = leads;
            copies.holder = (!leads).then(|| "cilium/.kvstoremesh/1".to_owned());
            answer
        };
        let leader = || replica(true, true);

        let found = findings(&asked([leader(), copies(false), copies(false)]));

        assert_eq!(levels(&found), [Level::Unknown]);
        assert!(found[0].what.contains("cilium/.kvstoremesh/1"), "{found:?}");
        let both = asked([leader(), copies(false), copies(true)]);
        assert_eq!(findings(&both), []);
    }

    #[test]
    fn processes_of_two_clusters_in_one_are_a_problem() {
        let mut other = mesh(store());
        other.cluster.as_mut().unwrap().id = 9;

        let found = findings(&asked([replica(true, true), other]));

        assert_eq!(levels(&found), [Level::Problem]);
        assert!(
            found[0].what.contains("paris (id 1), paris (id 9)"),
            "{found:?}"
        );
    }
}
