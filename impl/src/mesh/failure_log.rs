//! Failures of writing the own store, for those who ask. Synchronous.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::time::Instant;

use crate::status::answer::{Failure, Failures};

/// How many failures there were, and the last one. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct FailureLog(Arc<Mutex<(u64, Option<Last>)>>);

#[derive(Debug)]
struct Last {
    reason: &'static str,
    message: String,
    at: Instant,
}

impl FailureLog {
    /// Something failed.
    pub(super) fn note(&self, reason: &'static str, error: &impl fmt::Display) {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failures.0 += 1;
        failures.1 = Some(Last {
            reason,
            message: error.to_string(),
            at: Instant::now(),
        });
    }

    /// The failures so far.
    pub(super) fn look(&self) -> Failures {
        let failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = failures.1.as_ref().map(|last| Failure {
            reason: last.reason.to_owned(),
            message: last.message.clone(),
            seconds_ago: last.at.elapsed().as_secs_f64(),
        });
        Failures {
            count: failures.0,
            last,
        }
    }
}
