//! The parts that a role is made of, run side by side until one fails or the process is told to stop.

use anyhow::{Context, Result, anyhow};
use futures::future::BoxFuture;
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

/// One part of a role. It ends when its cancellation token is cancelled, or fails.
pub struct Component {
    /// For logs and errors.
    pub name: &'static str,
    /// The work.
    pub run: BoxFuture<'static, Result<()>>,
}

/// A role: its parts, and the one that outlives them.
pub struct Parts {
    /// The parts, in no order.
    pub components: Vec<Component>,
    /// What goes on until all parts have ended, and ends by `finished`: it tells that the role is stopping.
    pub last: Component,
    /// Tells `last` to end.
    pub finished: CancellationToken,
}

/// Runs all parts. When one ends, for whatever reason, the others are told to stop and are waited for.
pub async fn run_all(parts: Parts, cancel: CancellationToken) -> Result<()> {
    let mut running = JoinSet::new();
    let mut left = parts.components.len();
    let all = parts.components.into_iter().map(|part| (part, false));
    for (Component { name, run }, last) in all.chain([(parts.last, true)]) {
        running.spawn(async move { (name, last, run.await) });
    }
    let mut outcome = Ok(());
    while let Some(ended) = running.join_next().await {
        let (last, result) = match ended {
            Ok((name, last, result)) => (last, result.with_context(|| format!("{name} failed"))),
            Err(panicked) => (false, Err(anyhow!("a component panicked: {panicked}"))),
        };
        if let Err(failure) = &result {
            error!(error = format!("{failure:#}"), "stopping");
        }
        if outcome.is_ok() {
            outcome = result;
        }
        cancel.cancel();
        left -= usize::from(!last && left > 0);
        if left == 0 {
            parts.finished.cancel();
        }
    }
    outcome
}

/// Cancels `cancel` on SIGTERM or SIGINT.
pub fn stop_on_signals(cancel: &CancellationToken) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let cancel = cancel.clone();
    tokio::spawn(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        info!(signal = name, "stopping");
        cancel.cancel();
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until_cancelled(name: &'static str, cancel: &CancellationToken) -> Component {
        let cancel = cancel.clone();
        let run = Box::pin(async move {
            cancel.cancelled().await;
            Ok(())
        });
        Component { name, run }
    }

    /// Parts with a last one that ends when it is told to.
    fn parts(components: Vec<Component>) -> Parts {
        let finished = CancellationToken::new();
        let last = until_cancelled("health", &finished);
        Parts {
            components,
            last,
            finished,
        }
    }

    #[tokio::test]
    async fn a_component_that_fails_stops_the_others_and_is_named() {
        let cancel = CancellationToken::new();
        let failing = Component {
            name: "watcher",
            run: Box::pin(async { Err(anyhow!("no such host")) }),
        };
        let parts = parts(vec![until_cancelled("server", &cancel), failing]);

        let outcome = run_all(parts, cancel).await;

        let error = format!("{:#}", outcome.unwrap_err());
        assert_eq!(error, "watcher failed: no such host");
    }

    #[tokio::test]
    async fn cancelling_ends_all_components_without_an_error() {
        let cancel = CancellationToken::new();
        let parts = parts(vec![
            until_cancelled("a", &cancel),
            until_cancelled("b", &cancel),
        ]);
        cancel.cancel();

        assert!(run_all(parts, cancel).await.is_ok());
    }

    #[tokio::test]
    async fn the_last_part_ends_after_all_others() {
        let (cancel, release) = (CancellationToken::new(), CancellationToken::new());
        let slow = until_cancelled("slow", &release);
        let parts = parts(vec![until_cancelled("quick", &cancel), slow]);
        let finished = parts.finished.clone();
        let running = tokio::spawn(run_all(parts, cancel.clone()));

        cancel.cancel();
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(!finished.is_cancelled());
        release.cancel();

        assert!(running.await.unwrap().is_ok());
        assert!(finished.is_cancelled());
    }

    #[tokio::test]
    async fn a_last_part_that_fails_stops_the_others() {
        let cancel = CancellationToken::new();
        let mut parts = parts(vec![until_cancelled("a", &cancel)]);
        parts.last.run = Box::pin(async { Err(anyhow!("address in use")) });

        let outcome = run_all(parts, cancel).await;

        assert!(outcome.unwrap_err().to_string().contains("health failed"));
    }
}
