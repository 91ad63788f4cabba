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

/// Runs all components. When one ends, for whatever reason, the others are told to stop and are waited for.
pub async fn run_all(components: Vec<Component>, cancel: CancellationToken) -> Result<()> {
    let mut running = JoinSet::new();
    for Component { name, run } in components {
        running.spawn(async move { (name, run.await) });
    }
    let mut outcome = Ok(());
    while let Some(ended) = running.join_next().await {
        let result = match ended {
            Ok((name, result)) => result.with_context(|| format!("{name} failed")),
            Err(panicked) => Err(anyhow!("a component panicked: {panicked}")),
        };
        if let Err(failure) = &result {
            error!(error = format!("{failure:#}"), "stopping");
        }
        if outcome.is_ok() {
            outcome = result;
        }
        cancel.cancel();
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

    #[tokio::test]
    async fn a_component_that_fails_stops_the_others_and_is_named() {
        let cancel = CancellationToken::new();
        let failing = Component {
            name: "watcher",
            run: Box::pin(async { Err(anyhow!("no such host")) }),
        };

        let outcome = run_all(vec![until_cancelled("server", &cancel), failing], cancel).await;

        let error = format!("{:#}", outcome.unwrap_err());
        assert_eq!(error, "watcher failed: no such host");
    }

    #[tokio::test]
    async fn cancelling_ends_all_components_without_an_error() {
        let cancel = CancellationToken::new();
        let components = vec![until_cancelled("a", &cancel), until_cancelled("b", &cancel)];
        cancel.cancel();

        assert!(run_all(components, cancel).await.is_ok());
    }
}
