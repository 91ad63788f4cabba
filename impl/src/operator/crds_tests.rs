use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

fn release(version: &str, revision: &str) -> Release {
    let labels = [(keys::CRD_RELEASE, version), (keys::CRD_REVISION, revision)];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    Release::of(&labels.into())
}

/// A definition as it would be installed, with the labels of this release and revision.
fn installed(version: &str, revision: &str) -> CustomResourceDefinition {
    let [ours, _] = shipped();
    let mut installed: CustomResourceDefinition = serde_json::from_value(ours.body).unwrap();
    let labels = [(keys::CRD_RELEASE, version), (keys::CRD_REVISION, revision)];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    installed.metadata.labels = Some(labels.into());
    installed
}

fn decided(installed: &CustomResourceDefinition) -> Decision {
    let [ours, _] = shipped();
    let ours = Shipped {
        release: release("v0.5.2", "3"),
        ..ours
    };
    ours.decide(Some(installed))
}

#[test]
fn a_missing_definition_is_created_and_one_that_is_being_deleted_is_waited_for() {
    let mut leaving = installed("v0.5.2", "3");
    leaving.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));

    assert_eq!(shipped()[0].decide(None), Decision::Create);
    assert_eq!(decided(&leaving), Decision::Wait);
}

#[test]
fn the_same_release_and_revision_is_left_alone() {
    assert_eq!(decided(&installed("v0.5.2", "3")), Decision::Keep);
}

#[test]
fn an_older_or_unreadable_release_or_revision_is_updated() {
    for (version, revision) in [
        ("v0.5.1", "9"),
        ("v0.4.10", "9"),
        ("v0.5.2-rc.1", "9"),
        ("v0.5.2", "2"),
        ("v0.5.2", "x"),
        ("main", "9"),
        ("", ""),
    ] {
        let decision = decided(&installed(version, revision));
        assert_eq!(decision, Decision::Update, "{version} {revision}");
    }
    let mut unlabelled = installed("", "");
    unlabelled.metadata.labels = None;
    assert_eq!(decided(&unlabelled), Decision::Update);
}

#[test]
fn a_newer_release_or_revision_is_never_downgraded() {
    for (version, revision) in [
        ("v0.5.2", "4"),
        ("v0.5.2", "10"),
        ("v0.5.3-rc.1", "0"),
        ("v0.10.0", "0"),
        ("v1.0.0", ""),
    ] {
        let decision = decided(&installed(version, revision));
        assert_eq!(decision, Decision::KeepNewer, "{version} {revision}");
    }
}

#[test]
fn a_definition_of_our_release_that_was_changed_is_updated() {
    let mut without_schema = installed("v0.5.2", "3");
    without_schema.spec.versions[1].schema = None;
    let mut unserved = installed("v0.5.2", "3");
    unserved.spec.versions[0].served = false;
    let mut more = installed("v0.5.2", "3");
    more.spec.names.categories = Some(vec!["all".to_owned()]);

    assert_eq!(decided(&without_schema), Decision::Update);
    assert_eq!(decided(&unserved), Decision::Update);
    assert_eq!(decided(&more), Decision::Keep);
}

#[test]
fn the_definitions_that_cilium_installs_are_left_alone() {
    let recorded = include_str!("../../api/fixtures/mcs-crds-cilium-1.20.2.yaml");
    let recorded: Vec<CustomResourceDefinition> = serde_saphyr::from_multiple(recorded).unwrap();

    for (ours, theirs) in shipped().iter().zip(&recorded) {
        assert_eq!(ours.decide(Some(theirs)), Decision::Keep);
    }
}

#[test]
fn pre_releases_are_ordered_by_number_then_text() {
    let versions = [
        "1.0.0-2",
        "1.0.0-10",
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0",
    ];
    let parsed: Vec<_> = versions.iter().map(|text| Version::parse(text)).collect();

    assert!(parsed.iter().all(Option::is_some));
    assert!(parsed.is_sorted());
}

#[test]
fn our_own_definitions_say_which_release_they_are() {
    for ours in shipped() {
        assert_eq!(ours.release, release("v0.5.2", "0"));
    }
}
