//! Settings of an election, and who takes part.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    time::Duration,
};

use thiserror::Error;

/// Settings of an election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// This process; no other has the same.
    pub identity: String,
    /// How long others wait without a renewal before they claim the Lease.
    pub lease_duration: Duration,
    /// How long this replica writes without a renewal; shorter.
    pub renew_deadline: Duration,
    /// Time between renewals, and between looks at another's Lease; shorter still.
    pub retry_period: Duration,
}

/// Settings that contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SettingsError {
    /// Others would claim the Lease while this replica still writes.
    #[error(
        "--leader-election-lease-duration {lease:?} must be longer than --leader-election-renew-deadline {renew:?}; the defaults are 15s and 10s"
    )]
    Deadline {
        /// The lease duration.
        lease: Duration,
        /// The renew deadline.
        renew: Duration,
    },
    /// There would be no second attempt to renew.
    #[error(
        "--leader-election-renew-deadline {renew:?} must be longer than twice --leader-election-retry-period {retry:?}; the defaults are 10s and 2s"
    )]
    Retry {
        /// The renew deadline.
        renew: Duration,
        /// The retry period.
        retry: Duration,
    },
    /// The replica would do nothing but ask.
    #[error("--leader-election-retry-period {retry:?}: expected 100ms or more; the default is 2s")]
    Haste {
        /// The retry period.
        retry: Duration,
    },
}

impl Settings {
    /// Whether they can work together.
    pub fn check(&self) -> Result<(), SettingsError> {
        let (lease, renew, retry) = (self.lease_duration, self.renew_deadline, self.retry_period);
        if retry < Duration::from_millis(100) {
            return Err(SettingsError::Haste { retry });
        }
        if renew <= retry * 2 {
            return Err(SettingsError::Retry { renew, retry });
        }
        if lease <= renew {
            return Err(SettingsError::Deadline { lease, renew });
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn for_tests() -> Self {
        Self {
            namespace: "mesh".to_owned(),
            name: super::LEASE_NAME.to_owned(),
            identity: "a".to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// An identity that no other process has: the host's name, which is the pod's, and a random number.
pub fn identity() -> String {
    let file = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = std::env::var("HOSTNAME").ok().or_else(file);
    let host = host.unwrap_or_default();
    let random = RandomState::new().build_hasher().finish();
    format!("{}_{random:016x}", host.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_together_are_refused() {
        let seconds = Duration::from_secs;
        let cases = [
            (15, 10, 2_000, "ok"),
            (
                10,
                10,
                2_000,
                "must be longer than --leader-election-renew-deadline",
            ),
            (15, 4, 2_000, "must be longer than twice"),
            (15, 10, 50, "expected 100ms or more"),
        ];

        for (lease, renew, retry, expected) in cases {
            let settings = Settings {
                lease_duration: seconds(lease),
                renew_deadline: seconds(renew),
                retry_period: Duration::from_millis(retry),
                ..Settings::for_tests()
            };
            let said = settings
                .check()
                .map_or_else(|error| error.to_string(), |()| "ok".to_owned());
            assert!(said.contains(expected), "{said}");
        }
    }

    #[test]
    fn no_two_processes_have_the_same_identity() {
        assert_ne!(identity(), identity());
    }
}
