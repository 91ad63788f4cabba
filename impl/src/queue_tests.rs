//! Cases of the queue. Time is paused: it goes on when everybody waits.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_name_that_waits_is_handed_out_once() {
    let queue = Queue::new();

    queue.add("a");
    queue.add("a");
    queue.add("b");

    assert_eq!((queue.next().await, queue.next().await), ("a", "b"));
    queue.done(&"a");
    queue.done(&"b");
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_name_in_work_that_is_added_again_is_handed_out_after_it_is_done() {
    let queue = Queue::new();
    queue.add("a");
    let key = queue.next().await;

    queue.add("a");
    let early = tokio::time::timeout(Duration::from_secs(1), queue.next()).await;
    queue.done(&key);

    assert!(early.is_err(), "one name was in work twice at once");
    assert_eq!(queue.next().await, "a");
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_and_success_resets_them() {
    let queue = Queue::new();
    queue.add("a");
    let mut delays = Vec::new();
    for _ in 0..12 {
        let key = queue.next().await;
        delays.push(queue.retry(&key));
    }

    assert!(delays[0] >= RETRY_FIRST && delays[0] < RETRY_FIRST * 2);
    assert!(delays[1] > delays[0]);
    assert!(*delays.last().unwrap() <= RETRY_MAX * 5 / 4);

    let key = queue.next().await;
    queue.done(&key);
    queue.add("a");
    let key = queue.next().await;
    assert!(queue.retry(&key) < RETRY_FIRST * 2);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_fails_is_retried_once_however_often_it_was_added_meanwhile() {
    let queue = Queue::new();
    for _ in 0..100 {
        queue.add("a");
        let key = queue.next().await;
        queue.retry(&key);
    }
    assert_eq!(queue.len(), 1);

    let key = queue.next().await;
    queue.done(&key);

    assert!(queue.is_empty(), "{} left", queue.len());
}

#[tokio::test(start_paused = true)]
async fn a_name_that_succeeds_early_leaves_no_retry_behind() {
    let queue = Queue::new();
    queue.add("a");
    let key = queue.next().await;
    queue.retry(&key);

    queue.add("a");
    let key = queue.next().await;
    queue.done(&key);

    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn two_workers_are_both_woken() {
    let queue: Queue<u32> = Queue::new();
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.next().await })
        })
        .collect();
    tokio::task::yield_now().await;

    queue.add(1);
    queue.add(2);

    let mut taken = Vec::new();
    for worker in workers {
        taken.push(worker.await.unwrap());
    }
    taken.sort_unstable();
    assert_eq!(taken, [1, 2]);
}

/// Takes all names that are there, in order.
async fn drain(queue: &Queue<&'static str>) -> Vec<&'static str> {
    let mut names = Vec::new();
    while queue.fill().waiting > 0 {
        let name = queue.next().await;
        queue.done(&name);
        names.push(name);
    }
    names
}

#[tokio::test(start_paused = true)]
async fn removals_go_before_what_waits_longer() {
    let queue = Queue::new();
    for name in ["a", "b", "c"] {
        queue.add(name);
    }

    queue.add_first("z");
    queue.add_first("b");
    queue.add("z");

    assert_eq!(drain(&queue).await, ["z", "b", "a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_removal_of_a_name_in_work_goes_first_afterwards() {
    let queue = Queue::new();
    queue.add("a");
    let name = queue.next().await;
    queue.add("b");

    queue.add("a");
    queue.add_first("a");
    queue.done(&name);

    assert_eq!(drain(&queue).await, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_failed_goes_first_again() {
    let queue = Queue::new();
    queue.add_first("a");
    let name = queue.next().await;
    let delay = queue.retry(&name);
    queue.add("b");
    tokio::time::advance(delay).await;

    assert_eq!(queue.next().await, "a");
}

#[tokio::test(start_paused = true)]
async fn endless_removals_do_not_keep_the_rest_waiting() {
    let queue: Queue<u32> = Queue::new();
    for name in 0..10 {
        queue.add(name);
    }
    let mut taken = Vec::new();
    for removal in 1000..1100 {
        queue.add_first(removal);
        let name = queue.next().await;
        queue.done(&name);
        taken.push(name);
    }

    let others: Vec<_> = taken.iter().filter(|name| **name < 1000).collect();
    assert_eq!(
        others,
        (0..10).collect::<Vec<_>>().iter().collect::<Vec<_>>()
    );
    assert!(taken[..8].iter().all(|name| *name >= 1000), "{taken:?}");
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_held_collects_and_hands_out_nothing() {
    let queue = Queue::new();
    queue.hold();
    queue.add("a");
    queue.add("a");

    let early = tokio::time::timeout(Duration::from_mins(1), queue.next()).await;
    assert!(early.is_err());
    assert_eq!((queue.fill().waiting, queue.fill().oldest), (1, None));

    queue.resume();
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(queue.fill().oldest, Some(Duration::from_secs(1)));
    assert_eq!(queue.next().await, "a");
}

#[tokio::test(start_paused = true)]
async fn the_oldest_name_is_the_one_that_is_dirty_for_the_longest() {
    let second = Duration::from_secs(1);
    let queue = Queue::new();
    assert_eq!(queue.fill(), Fill::default());

    queue.add("a");
    tokio::time::advance(second).await;
    queue.add("b");
    queue.add("a");
    tokio::time::advance(second).await;
    assert_eq!(queue.fill().oldest, Some(second * 2));
    let name = queue.next().await;
    queue.add("a");
    queue.done(&name);
    assert_eq!(queue.fill().oldest, Some(second));

    let name = queue.next().await;
    queue.retry(&name);
    let fill = queue.fill();
    assert_eq!((fill.waiting, fill.delayed), (1, 1));
    assert_eq!(
        fill.oldest,
        Some(Duration::ZERO),
        "b waits for its retry, a is new"
    );
}

/// A thousand changes per second, of few names and slow workers: the queue holds each name once, and each is worked on far less
/// often than it changes.
#[tokio::test(start_paused = true)]
async fn a_storm_of_changes_coalesces_and_stays_within_the_number_of_names() {
    const NAMES: u32 = 50;
    const SECONDS: u32 = 20;
    let queue: Queue<u32> = Queue::new();
    let worked = Arc::new(Mutex::new(0_u32));
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let (queue, worked) = (queue.clone(), Arc::clone(&worked));
            tokio::spawn(async move {
                loop {
                    let name = queue.next().await;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    *worked.lock().unwrap() += 1;
                    queue.done(&name);
                }
            })
        })
        .collect();

    let mut longest = 0;
    for change in 0..SECONDS * 1000 {
        if change % 3 == 0 {
            queue.add_first(change % NAMES);
        } else {
            queue.add(change % NAMES);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        longest = longest.max(queue.len());
        assert!(
            queue
                .fill()
                .oldest
                .is_none_or(|age| age < Duration::from_secs(2))
        );
    }
    for worker in workers {
        worker.abort();
    }

    assert!(longest <= 50, "{longest} in the queue");
    // 4 workers that take 20 ms each.
    let worked = *worked.lock().unwrap();
    assert!(
        (3_500..=4_000).contains(&worked),
        "{worked} for {SECONDS}000 changes"
    );
}
