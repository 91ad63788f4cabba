//! Which of several processes writes: the one that holds the lock, as with Cilium's kvstoremesh.

use std::{
    pin::pin,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep, sleep_until};
use tombolo_core::wire::key::KVSTOREMESH_LOCK;
use tracing::{info, warn};

use super::view::View;
use crate::{
    kvstore::{Error, KvStore, backoff::Backoff, mutex::Lock},
    telemetry::health::Gate,
};

/// Time-to-live of the lock's lease: so long does a process that died keep others waiting. Cilium's `LockLeaseTTL`.
pub(super) const LOCK_TTL: Duration = Duration::from_secs(25);

/// After so long a process that waits for the lock of another is ready, as its standby. Cilium's time.
pub(super) const STANDBY_AFTER: Duration = Duration::from_secs(10);

/// First and longest pause between attempts to reach the store.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// How long to hold the lock for, and when to be ready without it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) lock_ttl: Duration,
    pub(super) standby_after: Duration,
}

/// Waits for the lock, for as long as it takes. Opens the gate as a standby when another process holds it.
pub(super) async fn elect<S: KvStore>(
    store: &S,
    times: Times,
    gate: Option<&Gate>,
    view: &View,
) -> Lock<S> {
    let standby_at = Instant::now() + times.standby_after;
    view.stands_in_line(store, None);
    let mut backoff = Backoff::new(RETRY.0, RETRY.1);
    loop {
        let error = match Lock::enter(store.clone(), KVSTOREMESH_LOCK, times.lock_ttl).await {
            Ok(lock) => {
                view.stands_in_line(store, Some(lock.key()));
                match wait(&lock, standby_at, gate).await {
                    Ok(()) => {
                        info!(
                            lock = KVSTOREMESH_LOCK,
                            "holds the lock: this process writes the copies"
                        );
                        return lock;
                    }
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        warn!(%error, reason = error.reason(), "cannot wait for the lock of the copies; trying again");
        sleep(backoff.wait()).await;
    }
}

async fn wait<S: KvStore>(
    lock: &Lock<S>,
    standby_at: Instant,
    gate: Option<&Gate>,
) -> Result<(), Error> {
    let holder = Mutex::new(None);
    let waiting = |now: &str| {
        let mut holder = holder.lock().unwrap_or_else(PoisonError::into_inner);
        let before = holder.replace(now.to_owned());
        if before.as_deref() != Some(now) {
            info!(
                holder = now,
                "another process holds the lock of the copies; waiting"
            );
        }
    };
    let mut first = pin!(lock.first(waiting));
    tokio::select! {
        outcome = &mut first => return outcome,
        () = sleep_until(standby_at) => {}
    }
    // Whose store did not answer is no standby: nobody is known to write.
    let waits = holder.lock().is_ok_and(|holder| holder.is_some());
    if let Some(gate) = gate.filter(|_| waits) {
        info!("ready as a standby");
        gate.set(true);
    }
    first.await
}
