//! Two replicas of an operator: which one leads, and who wrote when.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use tombolo_testbed::{Cluster, Component, Role, eventually};

/// The two processes.
pub const REPLICAS: [Component; 2] = [Component::Operator, Component::SecondOperator];

/// What an operator logs right before it sends a write, behind the name of the module that does.
const WRITES: [&str; 2] = ["apply: patch ", "apply: delete "];

/// Two operators of one cluster that elect a leader.
pub struct Replicas<'t> {
    cluster: &'t Cluster,
}

/// Writes of one replica without a write of the other between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// Who wrote.
    pub writer: Component,
    /// The first write.
    pub first: Timestamp,
    /// The last one.
    pub last: Timestamp,
    /// How many there are.
    pub writes: usize,
}

impl<'t> Replicas<'t> {
    /// Starts both, with these flags besides, and waits until one leads. Those that run are stopped before, so that they give
    /// the Lease back and nobody waits for its end.
    pub async fn start(cluster: &'t Cluster, flags: &[&str]) -> Result<Self> {
        for replica in REPLICAS {
            if cluster.pids()?.contains_key(&replica) {
                cluster.stop(replica).await?;
            }
        }
        let mut all = vec!["--leader-election=true"];
        all.extend(flags);
        let logs = [("TOMBOLO_LOG", "info,tombolo::operator::apply=debug")];
        tokio::try_join!(
            cluster.start_role_with(Role::Operator, &all, &logs),
            cluster.start_second(Role::Operator, &all, &logs),
        )?;
        let replicas = Self { cluster };
        replicas.leader(Duration::from_secs(30)).await?;
        Ok(replicas)
    }

    /// Whatever operators the cluster has.
    pub fn of(cluster: &'t Cluster) -> Self {
        Self { cluster }
    }

    /// The cluster.
    pub fn cluster(&self) -> &'t Cluster {
        self.cluster
    }

    /// Waits until one of them leads.
    pub async fn leader(&self, budget: Duration) -> Result<Component> {
        let what = "one replica to lead";
        let found = eventually(budget, what, async || {
            let mut seen = Vec::new();
            for replica in REPLICAS {
                match self.leads(replica).await {
                    Ok(true) => return Ok(replica),
                    other => seen.push((replica, other)),
                }
            }
            Err(format!("{seen:?}"))
        });
        Ok(found.await?)
    }

    /// Waits until this one leads, and measures it.
    pub async fn until_leads(&self, replica: Component, budget: Duration) -> Result<Duration> {
        let begin = Instant::now();
        let what = format!("{replica} to lead");
        eventually(budget, &what, async || match self.leads(replica).await {
            Ok(true) => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await?;
        Ok(begin.elapsed())
    }

    /// Whether a replica says that it leads.
    pub async fn leads(&self, replica: Component) -> Result<bool> {
        Ok(self.metric(replica, "tombolo_leader").await? > 0.0)
    }

    /// The sum of a metric of a replica over all its labels.
    pub async fn metric(&self, replica: Component, name: &str) -> Result<f64> {
        Ok(self.values(replica, name).await?.iter().sum())
    }

    /// The greatest value of a metric of a replica over all its labels; 0 without any.
    pub async fn greatest(&self, replica: Component, name: &str) -> Result<f64> {
        let values = self.values(replica, name).await?;
        Ok(values.into_iter().fold(0.0, f64::max))
    }

    async fn values(&self, replica: Component, name: &str) -> Result<Vec<f64>> {
        let page = self.cluster.role_page(replica, "/metrics").await?;
        let mut values = Vec::new();
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let (labelled, value) = line.rsplit_once(' ').unwrap_or((line, ""));
            if labelled.split('{').next() == Some(name) {
                values.push(value.parse().with_context(|| line.to_owned())?);
            }
        }
        Ok(values)
    }

    /// All writes of both since they were first started, in order of time, as terms.
    pub fn terms(&self) -> Result<Vec<Term>> {
        let mut writes = Vec::new();
        let logs = self.cluster.logs()?;
        for replica in REPLICAS {
            let log = logs.get(&replica).context("no log of a replica")?;
            let text = std::fs::read_to_string(log)?;
            let lines = text.lines();
            for line in lines.filter(|line| WRITES.iter().any(|write| line.contains(write))) {
                let time = line.split_whitespace().next().unwrap_or_default();
                let time: Timestamp = time.parse().with_context(|| line.to_owned())?;
                writes.push((time, replica));
            }
        }
        writes.sort();
        Ok(terms(&writes))
    }

    /// The terms that began after `since`, the one that went on at that time included.
    pub fn terms_since(&self, since: Timestamp) -> Result<Vec<Term>> {
        let mut terms = self.terms()?;
        terms.retain(|term| term.last >= since);
        Ok(terms)
    }
}

/// The other replica.
pub fn other(replica: Component) -> Component {
    if replica == REPLICAS[0] {
        REPLICAS[1]
    } else {
        REPLICAS[0]
    }
}

fn terms(writes: &[(Timestamp, Component)]) -> Vec<Term> {
    let mut terms: Vec<Term> = Vec::new();
    for (time, writer) in writes {
        match terms.last_mut() {
            Some(term) if term.writer == *writer => {
                term.last = *time;
                term.writes += 1;
            }
            _ => terms.push(Term {
                writer: *writer,
                first: *time,
                last: *time,
                writes: 1,
            }),
        }
    }
    terms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_between_those_of_another_makes_terms_of_its_own() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let [a, b] = REPLICAS;

        let found = terms(&[(at(1), a), (at(2), a), (at(3), b), (at(4), a)]);

        let writers: Vec<_> = found
            .iter()
            .map(|term| (term.writer, term.writes))
            .collect();
        assert_eq!(writers, [(a, 2), (b, 1), (a, 1)]);
        assert_eq!((found[0].first, found[0].last), (at(1), at(2)));
    }
}
