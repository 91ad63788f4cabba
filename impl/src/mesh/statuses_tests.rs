use std::time::Duration;

use tombolo_core::peer_status::KindStatus;

use super::*;

#[test]
fn only_what_gives_silence_another_meaning_is_told() {
    let statuses = Statuses::default();
    let rome: ClusterName = "rome".try_into().unwrap();
    let names = BTreeSet::from([rome.clone()]);
    let changes = statuses.changes();
    let told = |change: &dyn Fn()| {
        let before = *changes.borrow();
        change();
        *changes.borrow() != before
    };

    assert!(told(&|| statuses.configure(&names)));
    assert!(told(
        &|| statuses.update(&rome, |peer, now| peer.enter(PeerState::Ready, now))
    ));
    assert!(told(
        &|| statuses.update(&rome, |peer, _| peer.synced = true)
    ));
    assert!(told(&|| statuses.configure(&BTreeSet::new())));
    statuses.configure(&names);

    // A peer that stays away fails every few seconds, and the directory is read every half minute.
    assert!(!told(&|| statuses.configure(&names)));
    assert!(!told(&|| {
        statuses.update(&rome, |peer, _| {
            peer.last_error = Some("refused".to_owned());
        });
    }));
}

#[tokio::test(start_paused = true)]
async fn a_status_tells_what_is_left_of_its_deadlines() {
    let statuses = Statuses::default();
    let rome: ClusterName = "rome".try_into().unwrap();
    statuses.configure(&BTreeSet::from([rome.clone()]));
    statuses.update(&rome, |peer, _| {
        peer.kinds.insert(Resource::Ip, KindStatus::default());
    });

    let now = Instant::now();
    statuses.set_deadlines(
        &rome,
        Deadlines {
            expires: Some(now + Duration::from_secs(90)),
            withdrawn: BTreeMap::from([(Resource::Ip, now + Duration::from_secs(20))]),
        },
    );
    tokio::time::advance(Duration::from_secs(30)).await;

    let status = statuses.peers().remove(0);
    assert_eq!(status.expires_in_seconds, Some(60));
    assert_eq!(status.kinds[&Resource::Ip].withdrawn_for_seconds, Some(0));
}
