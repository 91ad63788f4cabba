use super::*;
use crate::operator::testkit::object;

fn slice(name: &str, managed_by: &str, address: &str) -> EndpointSlice {
    object(&format!(
        "
metadata:
  name: {name}
  namespace: shop
  uid: uid-of-{name}
  labels: {{endpointslice.kubernetes.io/managed-by: {managed_by}}}
  ownerReferences: [{{apiVersion: v1, kind: Service, name: web, uid: web-1, controller: true}}]
addressType: IPv4
endpoints: [{{addresses: [{address}]}}]
ports: [{{name: http, protocol: TCP, port: 8080}}]
"
    ))
}

fn managed(desired: &[EndpointSlice], actual: &[EndpointSlice]) -> Managed {
    Managed {
        desired: desired
            .iter()
            .map(|slice| (slice.name_any(), slice.clone()))
            .collect(),
        actual: actual.iter().cloned().map(Arc::new).collect(),
    }
}

const OURS: &str = keys::MANAGED_BY_MESH;

#[test]
fn a_slice_that_is_as_it_should_be_is_not_written() {
    let a = slice("a", OURS, "10.0.0.1");
    let mut as_stored = a.clone();
    as_stored.metadata.resource_version = Some("7".to_owned());
    as_stored.metadata.annotations = Some([("kept".to_owned(), "1".to_owned())].into());

    assert_eq!(managed(&[a], &[as_stored]).writes(|_| None), []);
}

#[test]
fn additions_come_before_deletions() {
    let (a, b) = (slice("a", OURS, "10.0.0.1"), slice("b", OURS, "10.0.0.2"));

    let writes = managed(std::slice::from_ref(&b), std::slice::from_ref(&a)).writes(|_| None);

    assert_eq!(
        writes,
        [Write::Apply(Box::new(b)), Write::Delete(Arc::new(a))]
    );
}

#[test]
fn a_change_carries_the_uid_of_the_slice_that_was_seen() {
    let mut desired = slice("a", OURS, "10.0.0.9");
    desired.metadata.uid = None;

    let writes = managed(&[desired], &[slice("a", OURS, "10.0.0.1")]).writes(|_| None);

    assert!(
        matches!(&writes[..], [Write::Apply(slice)] if slice.uid().as_deref() == Some("uid-of-a"))
    );
}

#[test]
fn a_slice_of_another_address_type_is_made_anew() {
    let mut six = slice("a", OURS, "fd00::1");
    six.address_type = "IPv6".to_owned();

    let writes = managed(&[six], &[slice("a", OURS, "10.0.0.1")]).writes(|_| None);

    assert!(matches!(&writes[..], [Write::Replace(..)]));
}

#[test]
fn a_slice_of_somebody_else_is_left_alone() {
    let mut foreign = slice("a", "somebody", "10.0.0.9");
    foreign.metadata.owner_references = None;
    let of_the_other = slice("a", keys::MANAGED_BY_MIRROR, "10.0.0.9");

    for other in [foreign, of_the_other].map(Arc::new) {
        let writes =
            managed(&[slice("a", OURS, "10.0.0.1")], &[]).writes(|_| Some(Arc::clone(&other)));

        assert_eq!(writes, [Write::Clash(other)]);
    }
}

#[test]
fn a_slice_of_ours_that_comes_while_we_look_is_no_clash() {
    let twin = slice("a", OURS, "10.0.0.1");

    let writes =
        managed(&[slice("a", OURS, "10.0.0.2")], &[]).writes(|_| Some(Arc::new(twin.clone())));

    assert_eq!(writes, []);
}

#[test]
fn a_slice_of_ours_that_somebody_gave_another_manager_is_mended() {
    let changed = slice("a", "somebody", "10.0.0.1");

    let writes =
        managed(&[slice("a", OURS, "10.0.0.1")], &[]).writes(|_| Some(Arc::new(changed.clone())));

    assert!(matches!(&writes[..], [Write::Apply(_)]));
}

#[test]
fn a_slice_of_ours_that_lost_its_label_is_mended() {
    let mut orphan = slice("a", OURS, "10.0.0.1");
    orphan.metadata.labels = None;

    let writes =
        managed(&[slice("a", OURS, "10.0.0.1")], &[]).writes(|_| Some(Arc::new(orphan.clone())));

    assert!(matches!(&writes[..], [Write::Apply(_)]));
}

#[test]
fn labels_that_others_have_set_are_taken_off() {
    let a = slice("a", OURS, "10.0.0.1");
    let mut tampered = a.clone();
    tampered
        .labels_mut()
        .insert("foreign".to_owned(), "1".to_owned());

    assert_eq!(
        strays(&a, &tampered),
        Some(json!({ "metadata": { "labels": { "foreign": null } } }))
    );
    assert_eq!(strays(&a, &a), None);
}

#[test]
fn a_link_that_is_not_ours_is_taken_off_and_one_of_ours_stays() {
    let a = slice("a", OURS, "10.0.0.1");
    let mut linked = a.clone();
    let link = (keys::LOCAL_SLICE.to_owned(), "other".to_owned());
    linked.metadata.annotations = Some([link].into());

    assert_eq!(
        strays(&a, &linked),
        Some(json!({ "metadata": { "annotations": { keys::LOCAL_SLICE: null } } }))
    );
    assert_eq!(strays(&linked, &linked), None);
}
