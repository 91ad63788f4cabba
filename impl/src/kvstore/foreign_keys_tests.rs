//! Keys that are no text: nothing of ours has them, but whoever writes to a store can make them.

use super::{
    KvStore, PAGE_ENTRIES,
    testing::{Etcd, Subject, budget},
};

/// A key with a byte that is in no text, in the middle of those that are asked for.
fn foreign(number: usize) -> Vec<u8> {
    let number = format!("{number:05}");
    [b"p/m\xff", number.as_bytes()].concat()
}

#[tokio::test]
async fn a_list_ends_and_has_all_that_is_text_however_many_keys_are_not() {
    let etcd = Etcd::start().await;
    let store = etcd.store();
    for key in ["p/a", "p/m", "p/z"] {
        store.put(key, Vec::new(), None).await.unwrap();
    }
    let mut client = etcd_client::Client::connect([etcd.url()], None)
        .await
        .unwrap();
    for number in 0..=2 * PAGE_ENTRIES {
        client.put(foreign(number), "", None).await.unwrap();
    }

    let listing = tokio::time::timeout(budget(), store.list("p/")).await;

    let entries = listing.expect("the list ends").unwrap().entries;
    let keys: Vec<_> = entries.into_keys().collect();
    assert_eq!(keys, ["p/a", "p/m", "p/z"]);
}

#[tokio::test]
async fn pages_of_keys_that_are_no_text_are_as_large_as_others() {
    let etcd = Etcd::start().await;
    let store = etcd.store();
    let mut client = etcd_client::Client::connect([etcd.url()], None)
        .await
        .unwrap();
    for number in 0..3 * PAGE_ENTRIES {
        client.put(foreign(number), "", None).await.unwrap();
    }

    let (mut pages, mut cursor) = (0, None);
    loop {
        let page = store.page("p/", cursor).await.unwrap();
        assert_eq!(page.entries, []);
        pages += 1;
        cursor = page.next;
        if cursor.is_none() || pages > 3 {
            break;
        }
    }

    assert_eq!(pages, 3);
}
