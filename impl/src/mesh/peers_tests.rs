//! What changes of rows say to those who act on them.

use tombolo_core::{evidence::Evidence, wire::cluster_service};

use super::*;
use crate::kvstore::Entry;

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

/// A change of the record `shop/web` in revision 9.
fn written(value: &[u8]) -> Entry {
    Entry {
        key: "shop/web".to_owned(),
        value: value.to_vec(),
        create_revision: 9,
        mod_revision: 9,
        lease: None,
    }
}

#[test]
fn a_record_that_goes_and_comes_back_unreadable_or_over_the_limits_is_never_taken_for_gone() {
    let told = Arc::<std::sync::Mutex<Vec<bool>>>::default();
    let cell = Arc::<std::sync::OnceLock<RemoteState>>::default();
    let (sink_told, sink_cell) = (Arc::clone(&told), Arc::clone(&cell));
    let state = RemoteState::new(Arc::new(move |dirty: Dirty| {
        let state = sink_cell.get().unwrap();
        let may_remove = state.may_remove(&rome(), dirty.kind, &dirty.name);
        sink_told.lock().unwrap().push(may_remove);
    }));
    cell.set(state.clone()).unwrap();
    state.statuses().configure(&BTreeSet::from([rome()]));
    state
        .statuses()
        .update(&rome(), |status, _| status.synced = true);
    let origin = Origin {
        peer: &rome(),
        id: None,
        kind: Resource::Services,
    };
    let good = br#"{"cluster":"rome","namespace":"shop","name":"web","frontends":{},"backends":{},"shared":true,"clusterID":2}"#;
    let (good, bad) = (written(good), written(b"{ broken"));
    let key = "shop/web";
    let evidence = Evidence::KeyDeleted { revision: 8 };
    let limit = tombolo_core::peer_status::Limit::Records;

    for unknown in [
        RawChange::Set { key, entry: &bad },
        RawChange::Withhold {
            key,
            entry: &good,
            limit,
        },
    ] {
        state.apply(&origin, &[RawChange::Set { key, entry: &good }]);
        let outcomes = state.apply(&origin, &[RawChange::Remove { key, evidence }, unknown]);
        assert_eq!(outcomes[0], Outcome::Gone);
        assert!(state.services(&web()).is_empty());
        state.apply(&origin, &[RawChange::Remove { key, evidence }]);
    }

    // Set, gone but unknown, known to be gone.
    assert_eq!(
        *told.lock().unwrap(),
        [true, false, true, true, false, true]
    );
}
