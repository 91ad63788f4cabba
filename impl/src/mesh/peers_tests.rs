//! What changes of rows say to those who act on them.

use tombolo_core::{evidence::Evidence, wire::cluster_service};

use super::*;

fn rome() -> ClusterName {
    "rome".try_into().unwrap()
}

fn web() -> NamespacedName {
    NamespacedName::parse("shop", "web").unwrap()
}

/// The service `web` of `rome` with these backends.
fn served(backends: &[&str]) -> rows::Change {
    let backend =
        |address: &&str| format!(r#""{address}":{{"http":{{"Protocol":"TCP","Port":80}}}}"#);
    let backends: Vec<_> = backends.iter().map(backend).collect();
    let record = format!(
        r#"{{"cluster":"rome","namespace":"shop","name":"web","frontends":{{}},"backends":{{{}}},"shared":true,"clusterID":2}}"#,
        backends.join(",")
    );
    let service = cluster_service::decode(&rome(), "shop/web", record.as_bytes(), &mut Vec::new());
    rows::Change::Set(web(), Row::Service(Box::new(service.unwrap())))
}

fn gone() -> rows::Change {
    let evidence = Evidence::KeyDeleted { revision: 7 };
    rows::Change::Remove(RecordKind::Services, web(), evidence)
}

#[test]
fn a_backend_or_a_row_that_is_gone_is_a_loss_and_more_backends_are_none() {
    let mut tables = Tables::default();
    let mut lost = |change| tables.apply(&rome(), change).1.map(|dirty| dirty.lost);

    assert_eq!(lost(served(&["10.0.0.1"])), Some(false));
    assert_eq!(lost(served(&["10.0.0.1", "10.0.0.2"])), Some(false));
    assert_eq!(lost(served(&["10.0.0.1", "10.0.0.2"])), None);
    assert_eq!(lost(served(&["10.0.0.2", "10.0.0.3"])), Some(true));
    assert_eq!(lost(gone()), Some(true));
    assert_eq!(lost(gone()), None);
}
