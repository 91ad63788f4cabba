//! Commands that somebody may end before they are done.

use std::{pin::pin, time::Duration};

use anyhow::{Context as _, Result};
use thiserror::Error;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::timeout,
};

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

/// Longest between the end of a credential plugin by a signal and this program's turn to see that it got the signal too.
const GRACE: Duration = Duration::from_millis(200);

/// Runs it, until SIGINT or SIGTERM comes: then at once not any more, and `last` says what there is to be said. Ctrl-C in a
/// terminal ends credential plugins as well: a failure that comes with the signal is the interruption.
pub(super) async fn until_interrupted<T>(
    work: impl Future<Output = Result<T>>,
    last: impl FnOnce() -> String,
) -> Result<T> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupted = pin!(async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    });
    let done = tokio::select! {
        done = work => Some(done),
        () = &mut interrupted => None,
    };
    match done {
        Some(Ok(done)) => return Ok(done),
        Some(Err(error)) if timeout(GRACE, interrupted).await.is_err() => return Err(error),
        Some(Err(_)) | None => {}
    }
    Err(Interrupted { last: last() }.into())
}
