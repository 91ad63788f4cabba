use super::*;

#[test]
fn only_what_gives_silence_another_meaning_is_told() {
    let state = RemoteState::new(Arc::new(|_| {}));
    let rome: ClusterName = "rome".try_into().unwrap();
    let names = BTreeSet::from([rome.clone()]);
    let changes = state.changes();
    let told = |change: &dyn Fn()| {
        let before = *changes.borrow();
        change();
        *changes.borrow() != before
    };

    assert!(told(&|| state.configure(&names)));
    assert!(told(
        &|| state.update_peer(&rome, |peer| peer.state = PeerState::Ready)
    ));
    assert!(told(&|| state.update_peer(&rome, |peer| peer.synced = true)));
    assert!(told(&|| state.configure(&BTreeSet::new())));
    state.configure(&names);

    // A peer that stays away fails every few seconds, and the directory is read every half minute.
    assert!(!told(&|| state.configure(&names)));
    assert!(!told(&|| {
        state.update_peer(&rome, |peer| peer.last_error = Some("refused".to_owned()));
    }));
}
