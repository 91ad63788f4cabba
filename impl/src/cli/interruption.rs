//! Commands that somebody may end before they are done.

use anyhow::{Context as _, Result};
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};

/// The user, or whoever runs this, has had enough.
#[derive(Debug, Error)]
#[error("interrupted; {last}")]
pub(super) struct Interrupted {
    last: String,
}

impl Interrupted {
    /// The exit code that shells give to what SIGINT ended: 128 and its number.
    pub(super) const EXIT_CODE: u8 = 130;
}

/// Runs it, until SIGINT or SIGTERM comes: then at once not any more, and `last` says what there is to be said.
pub(super) async fn until_interrupted<T>(
    work: impl Future<Output = Result<T>>,
    last: impl FnOnce() -> String,
) -> Result<T> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    tokio::select! {
        done = work => return done,
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Err(Interrupted { last: last() }.into())
}
