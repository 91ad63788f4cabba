//! Waiting: what comes true, what does not, what lasts. No clusters are started here: a wait in vain keeps their logs.

use std::time::Duration;

use tombolo_testbed::{eventually, stays_for};

#[tokio::test]
async fn a_condition_that_comes_true_gives_its_value() {
    let mut looks = 0;

    let value = eventually(Duration::from_secs(5), "three looks", async || {
        looks += 1;
        if looks == 3 {
            Ok(looks)
        } else {
            Err(format!("{looks} looks"))
        }
    })
    .await;

    assert_eq!(value.unwrap(), 3);
}

#[tokio::test]
async fn a_spent_budget_shows_the_condition_and_the_last_state() {
    let budget = Duration::from_millis(50);

    let error = eventually(budget, "the moon", async || {
        Err::<(), _>("clouds".to_owned())
    })
    .await
    .unwrap_err()
    .to_string();

    assert!(error.contains("for the moon, last seen: clouds"), "{error}");
}

#[tokio::test]
async fn a_look_that_never_returns_ends_with_the_budget() {
    let budget = Duration::from_millis(50);

    let error = eventually(budget, "an answer", async || {
        std::future::pending::<Result<(), String>>().await
    })
    .await
    .unwrap_err();

    assert!(error.to_string().contains("did not return"), "{error}");
}

#[tokio::test]
async fn a_state_that_does_not_last_is_an_error() {
    let mut looks = 0;

    let error = stays_for(Duration::from_secs(5), "calm", async || {
        looks += 1;
        if looks < 3 {
            Ok(())
        } else {
            Err("storm".to_owned())
        }
    })
    .await
    .unwrap_err()
    .to_string();

    assert!(
        error.contains("no longer true: calm, seen: storm"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_state_that_was_never_seen_has_not_lasted() {
    let error = stays_for(Duration::from_secs(5), "calm", async || {
        std::future::pending::<Result<(), String>>().await
    })
    .await
    .unwrap_err();

    assert!(error.to_string().contains("did not return"), "{error}");
}

#[tokio::test]
async fn the_first_look_may_take_longer_than_the_state_has_to_last() {
    let mut looks = 0;

    let lasted = stays_for(Duration::from_millis(50), "calm", async || {
        looks += 1;
        if looks == 1 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    });

    assert!(lasted.await.is_ok());
    assert!(looks > 1, "{looks}");
}

#[tokio::test]
async fn a_state_that_lasts_is_no_error() {
    let lasted = stays_for(Duration::from_millis(50), "calm", async || Ok(())).await;

    assert!(lasted.is_ok());
}
