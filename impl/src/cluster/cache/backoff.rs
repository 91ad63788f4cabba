//! How long a watch that failed waits before it is tried again.

use std::time::Duration;

use kube::runtime::utils::Backoff;
use tokio::time::Instant;

/// Delay before a failed watch is tried again; doubled up to [`WATCH_RETRY_MAX`].
pub const WATCH_RETRY_FIRST: Duration = Duration::from_millis(100);

/// Longest delay between attempts to watch. Short, since a restarted API server is back in about two seconds, and a definition
/// that was installed just now should not wait for its first objects.
pub const WATCH_RETRY_MAX: Duration = Duration::from_millis(500);

/// A watch that has worked for so long begins with [`WATCH_RETRY_FIRST`] again when it fails.
pub(super) const WATCH_RETRY_RESET: Duration = Duration::from_secs(10);

/// Delays that grow while a watch fails. They do not begin anew with every event: a watcher announces each list before it
/// knows whether it gets one.
#[derive(Debug)]
pub(super) struct WatchBackoff {
    next: Duration,
    failed: Option<Instant>,
}

impl Default for WatchBackoff {
    fn default() -> Self {
        Self {
            next: WATCH_RETRY_FIRST,
            failed: None,
        }
    }
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let worked = |failed: Instant| failed.elapsed() >= WATCH_RETRY_RESET;
        if self.failed.is_none_or(worked) {
            self.next = WATCH_RETRY_FIRST;
        }
        self.failed = Some(Instant::now());
        let delay = self.next;
        self.next = (delay * 2).min(WATCH_RETRY_MAX);
        Some(delay)
    }
}

impl Backoff for WatchBackoff {
    fn reset(&mut self) {}
}
