use std::{collections::BTreeMap, sync::Mutex};

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::utils::Backoff;

use super::*;

fn slice(name: &str, service: &str, version: &str) -> Arc<EndpointSlice> {
    let mut slice = EndpointSlice::default();
    slice.metadata.namespace = Some("shop".to_owned());
    slice.metadata.name = Some(name.to_owned());
    slice.metadata.resource_version = Some(version.to_owned());
    slice.metadata.labels =
        Some([("kubernetes.io/service-name".to_owned(), service.to_owned())].into());
    Arc::new(slice)
}

fn by_service(slice: &EndpointSlice) -> Option<String> {
    slice.labels().get("kubernetes.io/service-name").cloned()
}

fn listing(slices: &[Arc<EndpointSlice>]) -> BTreeMap<ObjectKey, Arc<EndpointSlice>> {
    slices
        .iter()
        .map(|slice| (key_of(slice.as_ref()), Arc::clone(slice)))
        .collect()
}

fn names(slices: &[Arc<EndpointSlice>]) -> Vec<String> {
    slices.iter().map(|slice| slice.name_any()).collect()
}

/// Runs `work` with a callback that records differences as `old>new` resource versions.
fn recorded(work: impl FnOnce(&dyn Fn(Difference<'_, EndpointSlice>))) -> Vec<String> {
    let seen = Mutex::new(Vec::new());
    work(&|difference| {
        let version = |slice: Option<&EndpointSlice>| {
            slice
                .and_then(ResourceExt::resource_version)
                .unwrap_or_else(|| "-".to_owned())
        };
        let text = format!("{}>{}", version(difference.old), version(difference.new));
        seen.lock().unwrap().push(text);
    });
    seen.into_inner().unwrap()
}

#[test]
fn an_object_whose_index_key_changes_moves_and_reports_both_states() {
    let cache = Cache::new(by_service);
    cache.set(slice("a", "web", "1"), &|_| {});

    let seen = recorded(|on_change| cache.set(slice("a", "db", "2"), &on_change));

    assert_eq!(seen, ["1>2"]);
    assert!(cache.indexed("shop", "web").is_empty());
    assert_eq!(names(&cache.indexed("shop", "db")), ["a"]);
}

#[test]
fn a_relist_reports_changed_new_and_vanished_objects_only() {
    let cache = Cache::new(by_service);
    let before = [
        slice("same", "web", "1"),
        slice("changed", "web", "2"),
        slice("gone", "web", "3"),
    ];
    cache.relist(listing(&before), &|_| {});
    let after = [
        slice("same", "web", "1"),
        slice("changed", "web", "4"),
        slice("new", "web", "5"),
    ];

    let seen = recorded(|on_change| cache.relist(listing(&after), &on_change));

    assert_eq!(seen, ["2>4", "->5", "3>-"]);
    assert_eq!(
        names(&cache.indexed("shop", "web")),
        ["changed", "new", "same"]
    );
}

#[test]
fn removing_an_object_clears_its_index() {
    let cache = Cache::new(by_service);
    cache.set(slice("a", "web", "1"), &|_| {});

    let seen = recorded(|on_change| {
        cache.remove(&("shop".to_owned(), "a".to_owned()), &on_change);
        cache.remove(&("shop".to_owned(), "a".to_owned()), &on_change);
    });

    assert_eq!(seen, ["1>-"]);
    assert!(cache.indexed("shop", "web").is_empty() && cache.is_empty());
}

#[test]
fn a_cache_is_synced_after_its_first_complete_list() {
    let cache = Cache::new(by_service);
    cache.set(slice("a", "web", "1"), &|_| {});
    assert!(!cache.is_synced());

    cache.relist(BTreeMap::new(), &|_| {});

    assert!(cache.is_synced());
}

#[test]
fn a_namespace_is_not_mistaken_for_one_that_it_is_a_prefix_of() {
    let cache = Cache::unindexed();
    let mut other = (*slice("b", "web", "2")).clone();
    other.metadata.namespace = Some("shop-2".to_owned());
    cache.set(slice("a", "web", "1"), &|_| {});
    cache.set(Arc::new(other), &|_| {});

    assert_eq!(names(&cache.in_namespace("shop")), ["a"]);
    assert_eq!(names(&cache.in_namespace("shop-2")), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_keeps_failing_is_tried_less_and_less_often_until_it_has_worked() {
    let mut backoff = WatchBackoff::default();
    let mut delays = Vec::new();
    for _ in 0..6 {
        let delay = backoff.next().unwrap();
        tokio::time::advance(delay).await;
        // The watcher announces a list that will fail.
        backoff.reset();
        delays.push(delay.as_millis());
    }

    assert_eq!(delays, [100, 200, 400, 500, 500, 500]);
    tokio::time::advance(WATCH_RETRY_RESET).await;
    assert_eq!(backoff.next(), Some(WATCH_RETRY_FIRST));
}

fn version_of(cache: &Cache<EndpointSlice>, name: &str) -> Option<String> {
    cache.get("shop", name)?.resource_version()
}

fn told(slice: &Arc<EndpointSlice>) -> EndpointSlice {
    EndpointSlice::clone(slice)
}

#[test]
fn what_a_write_has_answered_is_seen_before_the_watch_tells_of_it() {
    let cache = Cache::new(by_service);
    cache.set(slice("a", "web", "1"), &|_| {});
    let before = cache.before_write();

    cache.learn(before, told(&slice("a", "web", "3")));
    cache.learn(before, told(&slice("b", "web", "4")));
    let seen = recorded(|on_change| cache.set(slice("a", "web", "2"), &on_change));

    assert_eq!(seen, ["1>2"]);
    assert_eq!(version_of(&cache, "a").as_deref(), Some("3"));
    assert_eq!(names(&cache.indexed("shop", "web")), ["a", "b"]);
}

#[test]
fn what_the_watch_may_be_past_is_not_learned() {
    let cache = Cache::new(by_service);
    cache.set(slice("a", "web", "5"), &|_| {});
    let before = cache.before_write();

    // It was deleted after the write, and the watch has told of something later.
    cache.learn(before, told(&slice("b", "web", "4")));
    // A list has come since the write, and does not have it.
    cache.relist(listing(&[]), &|_| {});
    cache.learn(before, told(&slice("c", "web", "7")));

    assert!(cache.is_empty());
}

#[test]
fn the_watch_reports_its_own_differences_and_catches_up() {
    let cache = Cache::new(by_service);
    cache.set(slice("a", "web", "1"), &|_| {});
    let before = cache.before_write();
    // Deleted and made anew: the watch has yet to tell of both.
    cache.learn(before, told(&slice("a", "web", "4")));
    let key = key_of(&told(&slice("a", "web", "1")));

    let deleted = recorded(|on_change| {
        cache.write().tell(&told(&slice("a", "web", "2")));
        cache.remove(&key, &on_change);
    });
    let kept = version_of(&cache, "a");
    let made = recorded(|on_change| cache.set(slice("a", "web", "4"), &on_change));
    let gone = recorded(|on_change| {
        cache.write().tell(&told(&slice("a", "web", "5")));
        cache.remove(&key, &on_change);
    });

    assert_eq!(
        (deleted, kept.as_deref()),
        (vec!["1>-".to_owned()], Some("4"))
    );
    assert_eq!(
        (made, gone),
        (vec!["->4".to_owned()], vec!["4>-".to_owned()])
    );
    assert!(cache.is_empty() && cache.indexed("shop", "web").is_empty());
}

#[test]
fn a_list_is_compared_with_what_the_watch_has_told() {
    let cache = Cache::new(by_service);
    cache.set(slice("a", "web", "1"), &|_| {});
    let before = cache.before_write();
    cache.learn(before, told(&slice("a", "web", "3")));
    cache.learn(before, told(&slice("b", "web", "4")));

    let listed = listing(&[slice("a", "web", "3")]);
    let seen = recorded(|on_change| cache.relist(listed, &on_change));

    assert_eq!(seen, ["1>3"]);
    assert!(cache.get("shop", "b").is_none());
}
