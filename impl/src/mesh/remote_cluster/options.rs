//! How peers are followed.

use std::time::Duration;

use super::budget::Budget;

/// How peers are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How long a peer may not be heard of before its services, exports and slices go; zero for ever. Cilium's
    /// `--clustermesh-cache-ttl`, 0 by default there too.
    pub cache_ttl: Duration,
    /// How long records stay after the peer withdrew the capability to publish them; zero for ever. An hour by default: enough to
    /// notice an upgrade that went wrong, and to take it back.
    pub withdrawn_for: Duration,
    /// What each peer may take of this cluster.
    pub budget: Budget,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_ttl: Duration::ZERO,
            withdrawn_for: Duration::from_hours(1),
            budget: Budget::default(),
        }
    }
}
