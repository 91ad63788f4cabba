//! Who this cluster is: what its user says by flags, what the cluster says by its ClusterProperties, and whether they agree.
//!
//! Decides only. A name is never made up: peers keep what they know of a cluster under it.

use thiserror::Error;

use crate::names::{ClusterName, InvalidName};

/// Where a name can be stated: the ClusterProperty and the flag that mean the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fact {
    /// Name of the ClusterProperty (KEP-2149).
    pub property: &'static str,
    /// The flag.
    pub flag: &'static str,
    /// The rule that binds it.
    pub rule: &'static str,
}

/// The name of the cluster, which is its id too (`KEP-1645#5`).
pub const CLUSTER: Fact = Fact {
    property: "cluster.clusterset.k8s.io",
    flag: "--cluster-name",
    rule: "KEP-1645#180: a cluster has one id, the same as long as it is a member",
};

/// The name of the ClusterSet.
pub const CLUSTERSET: Fact = Fact {
    property: "clusterset.k8s.io",
    flag: "--clusterset-name",
    rule: "KEP-1645#181: a member's ClusterSet is stated and stays the same",
};

/// What the user says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stated {
    /// Name of the cluster.
    pub cluster: Option<ClusterName>,
    /// Name of the ClusterSet.
    pub clusterset: Option<String>,
}

/// What the ClusterProperties say; nothing where there is no such property.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Value of `cluster.clusterset.k8s.io`.
    pub cluster: Option<String>,
    /// Value of `clusterset.k8s.io`.
    pub clusterset: Option<String>,
}

/// Who the cluster is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its name.
    pub cluster: ClusterName,
    /// Its ClusterSet, if anybody says.
    pub clusterset: Option<String>,
}

/// Why it is not known who the cluster is. All of these are for the user to mend.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// Neither says it.
    #[error(
        "nobody says what this cluster is called: pass {} NAME, or create ClusterProperty {} (about.k8s.io/v1beta1) with the name in spec.value",
        CLUSTER.flag,
        CLUSTER.property
    )]
    Missing,
    /// They contradict each other.
    #[error(
        "ClusterProperty {}: spec.value is {property:?}, but {} is {flag:?} ({}); make them equal, or leave the flag out",
        fact.property, fact.flag, fact.rule
    )]
    Mismatch {
        /// About what.
        fact: Fact,
        /// The property's value.
        property: String,
        /// The flag's value.
        flag: String,
    },
    /// The property cannot be a cluster's name.
    #[error(
        "ClusterProperty {}: spec.value: {source} (RFC 1123 label, KEP-1645#4; at most 32 characters, as in Cilium); create the property with such a name before the cluster joins",
        CLUSTER.property
    )]
    Invalid {
        /// The rule.
        #[source]
        source: InvalidName,
    },
}

/// A property that does not say any more what it said when the process began.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "ClusterProperty {}: spec.value is now {now:?}, and this process runs as {before:?} ({}; KEP-1645#6: a change is leaving and joining again); set it back, or start the process again to join under the new one",
    fact.property, fact.rule
)]
pub struct Changed {
    /// About what.
    pub fact: Fact,
    /// What the process runs as.
    pub before: String,
    /// What the property says.
    pub now: String,
}

/// Decides who the cluster is. A property and its flag have to agree when both are there.
///
/// ```
/// use tombolo_core::identity::{Recorded, Stated, decide};
/// let recorded = Recorded { cluster: Some("paris".to_owned()), clusterset: None };
/// assert_eq!(decide(&Stated::default(), &recorded).unwrap().cluster.as_str(), "paris");
/// ```
pub fn decide(stated: &Stated, recorded: &Recorded) -> Result<Identity, Error> {
    let named = recorded.cluster.as_deref().map(ClusterName::try_from);
    let named = named
        .transpose()
        .map_err(|source| Error::Invalid { source })?;
    Ok(Identity {
        cluster: agree(CLUSTER, named, stated.cluster.clone())?.ok_or(Error::Missing)?,
        clusterset: agree(
            CLUSTERSET,
            recorded.clusterset.clone(),
            stated.clusterset.clone(),
        )?,
    })
}

fn agree<T: PartialEq + ToString>(
    fact: Fact,
    property: Option<T>,
    flag: Option<T>,
) -> Result<Option<T>, Error> {
    match (property, flag) {
        (Some(property), Some(flag)) if property != flag => Err(Error::Mismatch {
            fact,
            property: property.to_string(),
            flag: flag.to_string(),
        }),
        (property, flag) => Ok(property.or(flag)),
    }
}

/// Holds what the properties say now against who the process runs as.
///
/// A property that is not there changes nothing: absence is no other name. A ClusterSet that nobody stated at the start may
/// be stated later.
///
/// ```
/// use tombolo_core::{identity::{Identity, Recorded, check_unchanged}, names::ClusterName};
/// let identity = Identity { cluster: ClusterName::try_from("paris").unwrap(), clusterset: None };
/// let now = Recorded { cluster: Some("rome".to_owned()), clusterset: None };
/// assert!(check_unchanged(&identity, &now).is_err());
/// assert!(check_unchanged(&identity, &Recorded::default()).is_ok());
/// ```
pub fn check_unchanged(identity: &Identity, now: &Recorded) -> Result<(), Changed> {
    unchanged(
        CLUSTER,
        Some(identity.cluster.as_str()),
        now.cluster.as_deref(),
    )?;
    unchanged(
        CLUSTERSET,
        identity.clusterset.as_deref(),
        now.clusterset.as_deref(),
    )
}

fn unchanged(fact: Fact, before: Option<&str>, now: Option<&str>) -> Result<(), Changed> {
    match (before, now) {
        (Some(before), Some(now)) if before != now => Err(Changed {
            fact,
            before: before.to_owned(),
            now: now.to_owned(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn stated(cluster: Option<&str>, clusterset: Option<&str>) -> Stated {
        Stated {
            cluster: cluster.map(|name| name.try_into().unwrap()),
            clusterset: clusterset.map(str::to_owned),
        }
    }

    fn recorded(cluster: Option<&str>, clusterset: Option<&str>) -> Recorded {
        Recorded {
            cluster: cluster.map(str::to_owned),
            clusterset: clusterset.map(str::to_owned),
        }
    }

    #[rstest]
    #[case::flag_alone(Some("paris"), None)]
    #[case::property_alone(None, Some("paris"))]
    #[case::both_and_equal(Some("paris"), Some("paris"))]
    fn a_name_is_taken_from_whoever_states_it(
        #[case] flag: Option<&str>,
        #[case] property: Option<&str>,
    ) {
        let identity = decide(&stated(flag, flag), &recorded(property, property)).unwrap();

        assert_eq!(identity.cluster.as_str(), "paris");
        assert_eq!(identity.clusterset.as_deref(), Some("paris"));
    }

    #[test]
    fn a_cluster_needs_no_clusterset_name() {
        let identity = decide(&stated(Some("paris"), None), &Recorded::default()).unwrap();

        assert_eq!(identity.clusterset, None);
    }

    #[test]
    fn without_any_name_both_ways_to_state_it_are_named() {
        let error = decide(&stated(None, Some("fleet")), &recorded(None, Some("fleet")));

        assert_eq!(
            error.unwrap_err().to_string(),
            "nobody says what this cluster is called: pass --cluster-name NAME, or create ClusterProperty \
             cluster.clusterset.k8s.io (about.k8s.io/v1beta1) with the name in spec.value"
        );
    }

    #[test]
    fn a_flag_that_contradicts_its_property_is_refused_with_both_values() {
        let error = decide(&stated(Some("rome"), None), &recorded(Some("paris"), None));

        assert_eq!(
            error.unwrap_err().to_string(),
            "ClusterProperty cluster.clusterset.k8s.io: spec.value is \"paris\", but --cluster-name is \"rome\" \
             (KEP-1645#180: a cluster has one id, the same as long as it is a member); make them equal, or leave the \
             flag out"
        );
    }

    #[test]
    fn the_clusterset_is_held_to_the_same_rule() {
        let error = decide(
            &stated(Some("paris"), Some("blue")),
            &recorded(Some("paris"), Some("green")),
        );

        let error = error.unwrap_err().to_string();
        for part in ["clusterset.k8s.io", "--clusterset-name", "blue", "green"] {
            assert!(error.contains(part), "{part} is not in: {error}");
        }
    }

    #[rstest]
    #[case::empty("")]
    #[case::a_uid_is_too_long("2f0b7b6c-6f0a-4c7e-9d55-0c5f6f1d2a3b")]
    #[case::dotted("paris.fleet")]
    #[case::upper_case("Paris")]
    fn a_property_that_is_no_cluster_name_is_refused_with_the_rule(#[case] value: &str) {
        let error = decide(&stated(Some("paris"), None), &recorded(Some(value), None));

        let error = error.unwrap_err().to_string();
        for part in [
            "spec.value",
            &format!("{value:?}"),
            "RFC 1123",
            "at most 32",
        ] {
            assert!(error.contains(part), "{part} is not in: {error}");
        }
    }

    #[rstest]
    #[case::the_same(Some("paris"), Some("fleet"), true)]
    #[case::gone(None, None, true)]
    #[case::another_cluster(Some("rome"), Some("fleet"), false)]
    #[case::no_name_at_all(Some(""), None, false)]
    #[case::another_clusterset(Some("paris"), Some("navy"), false)]
    fn only_another_value_is_a_change(
        #[case] cluster: Option<&str>,
        #[case] clusterset: Option<&str>,
        #[case] unchanged: bool,
    ) {
        let identity = Identity {
            cluster: "paris".try_into().unwrap(),
            clusterset: Some("fleet".to_owned()),
        };

        let outcome = check_unchanged(&identity, &recorded(cluster, clusterset));

        assert_eq!(outcome.is_ok(), unchanged, "{outcome:?}");
    }

    #[test]
    fn a_clusterset_that_is_stated_later_is_no_change() {
        let identity = Identity {
            cluster: "paris".try_into().unwrap(),
            clusterset: None,
        };

        assert!(check_unchanged(&identity, &recorded(None, Some("fleet"))).is_ok());
    }
}
