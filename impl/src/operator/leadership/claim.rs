//! Who may claim the Lease, and what a claim says. Pure: the clocks come in as arguments.
//!
//! A holder is judged by when this replica saw its Lease change last, by this machine's clock. Clocks of two machines are
//! never compared: the times in a Lease are for people.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{ResourceExt, core::ObjectMeta};
use tokio::time::Instant;

use super::Settings;
use crate::clock::Moment;

/// Lease duration that a released Lease carries, as Kubernetes' own components write it.
const RELEASED_SECONDS: i32 = 1;

/// A Lease as it was seen.
#[derive(Debug, Clone)]
pub(super) struct Observed {
    pub(super) lease: Lease,
    /// When this replica saw it change to this. A suspension makes the holder believed for longer, never for less.
    changed: Instant,
    /// When this replica saw it change last: a sign of life of its holder. None when it saw but one state of it.
    pub(super) renewed: Option<Moment>,
}

/// What to do about a Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// It is ours, or nobody's, or its holder is silent for too long.
    Claim,
    /// Somebody holds it, at least until then.
    Wait(Instant),
}

impl Observed {
    /// A Lease as it was read at `now`, compared with how it was seen before.
    pub(super) fn read(lease: Lease, before: Option<&Self>, now: Moment) -> Self {
        let same = |before: &&Self| before.lease.resource_version() == lease.resource_version();
        let changed = before
            .filter(same)
            .map_or(now.awake(), |before| before.changed);
        let renewed = before.and_then(|before| {
            let news = !same(&before);
            if news { Some(now) } else { before.renewed }
        });
        Self {
            lease,
            changed,
            renewed,
        }
    }

    /// Its holder, if it has one.
    pub(super) fn holder(&self) -> Option<&str> {
        let spec = self.lease.spec.as_ref();
        let holder = spec.and_then(|spec| spec.holder_identity.as_deref());
        holder.filter(|holder| !holder.is_empty())
    }

    /// Whether this replica may claim it at `now`.
    pub(super) fn decide(&self, settings: &Settings, now: Instant) -> Decision {
        match self.holder() {
            None => Decision::Claim,
            Some(holder) if holder == settings.identity => Decision::Claim,
            Some(_) => {
                let expires = self.changed + self.duration(settings);
                if expires <= now {
                    Decision::Claim
                } else {
                    Decision::Wait(expires)
                }
            }
        }
    }

    /// How long its holder is believed without a renewal: what it says itself, or our own setting.
    pub(super) fn duration(&self, settings: &Settings) -> Duration {
        let spec = self.lease.spec.as_ref();
        let seconds = spec.and_then(|spec| spec.lease_duration_seconds);
        let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
        seconds.map_or(settings.lease_duration, Duration::from_secs)
    }

    /// The Lease with our claim or renewal. It carries the version that was seen: the API server refuses it when anybody was faster.
    pub(super) fn claimed(&self, settings: &Settings, now: Timestamp) -> Lease {
        let mut lease = self.lease.clone();
        let ours = self.holder() == Some(settings.identity.as_str());
        let spec = lease.spec.get_or_insert_default();
        if !ours {
            let transitions = spec.lease_transitions.unwrap_or(0);
            spec.lease_transitions = Some(transitions.saturating_add(1));
            spec.acquire_time = Some(MicroTime(now));
        }
        spec.holder_identity = Some(settings.identity.clone());
        spec.lease_duration_seconds = Some(seconds(settings.lease_duration));
        spec.renew_time = Some(MicroTime(now));
        lease
    }

    /// The Lease without a holder; none when it is not ours.
    pub(super) fn released(&self, settings: &Settings, now: Timestamp) -> Option<Lease> {
        if self.holder() != Some(settings.identity.as_str()) {
            return None;
        }
        let mut lease = self.lease.clone();
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(RELEASED_SECONDS);
        spec.renew_time = Some(MicroTime(now));
        Some(lease)
    }
}

/// The first Lease, held by us.
pub(super) fn first(settings: &Settings, now: Timestamp) -> Lease {
    Lease {
        metadata: ObjectMeta {
            name: Some(settings.name.clone()),
            namespace: Some(settings.namespace.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(settings.identity.clone()),
            lease_duration_seconds: Some(seconds(settings.lease_duration)),
            acquire_time: Some(MicroTime(now)),
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(0),
            ..LeaseSpec::default()
        }),
    }
}

/// Whole seconds, rounded up: nobody may claim the Lease earlier than the setting says.
fn seconds(duration: Duration) -> i32 {
    let seconds = duration.as_millis().div_ceil(1000);
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(identity: &str) -> Settings {
        Settings {
            identity: identity.to_owned(),
            ..Settings::for_tests()
        }
    }

    fn version(mut lease: Lease, version: &str) -> Lease {
        lease.metadata.resource_version = Some(version.to_owned());
        lease
    }

    fn held_by(identity: &str, at: Moment) -> Observed {
        let lease = first(&settings(identity), Timestamp::UNIX_EPOCH);
        Observed::read(version(lease, "1"), None, at)
    }

    #[test]
    fn a_holder_is_believed_for_the_lease_duration_since_its_last_change_was_seen() {
        let (ours, begin) = (settings("b"), Moment::now());
        let seen = held_by("a", begin);
        let expires = begin + ours.lease_duration;

        let again = Observed::read(seen.lease.clone(), Some(&seen), begin + ours.retry_period);
        let renewed = version(seen.lease.clone(), "2");
        let renewed = Observed::read(renewed, Some(&seen), begin + ours.retry_period);

        let (expires, later) = (expires.awake(), (expires + ours.retry_period).awake());
        let just_before = expires.checked_sub(Duration::from_millis(1)).unwrap();
        assert_eq!(again.decide(&ours, just_before), Decision::Wait(expires));
        assert_eq!(again.decide(&ours, expires), Decision::Claim);
        assert_eq!(renewed.decide(&ours, expires), Decision::Wait(later));
    }

    #[test]
    fn a_lease_that_was_seen_once_is_no_sign_of_life() {
        let (begin, later) = (Moment::now(), Moment::now() + Duration::from_secs(2));
        let seen = held_by("a", begin);
        let again = Observed::read(seen.lease.clone(), Some(&seen), later);
        let renewed = Observed::read(version(seen.lease.clone(), "2"), Some(&again), later);

        assert_eq!((seen.renewed, again.renewed), (None, None));
        assert_eq!(renewed.renewed, Some(later));
        let still = Observed::read(renewed.lease.clone(), Some(&renewed), later);
        assert_eq!(still.renewed, Some(later));
    }

    #[test]
    fn the_times_in_a_lease_are_not_believed() {
        let (ours, begin) = (settings("b"), Moment::now());
        for year in ["1970-01-01T00:00:00Z", "2999-01-01T00:00:00Z"] {
            let lease = first(&settings("a"), year.parse().unwrap());
            let seen = Observed::read(version(lease, "1"), None, begin);

            assert!(matches!(
                seen.decide(&ours, begin.awake()),
                Decision::Wait(_)
            ));
            let expired = (begin + ours.lease_duration).awake();
            assert_eq!(seen.decide(&ours, expired), Decision::Claim);
        }
    }

    #[test]
    fn a_lease_that_is_released_or_ours_is_claimed_at_once() {
        let (ours, begin) = (settings("b"), Moment::now());
        let released = held_by("a", begin)
            .released(&settings("a"), Timestamp::UNIX_EPOCH)
            .unwrap();
        let released = Observed::read(released, None, begin);

        assert_eq!(released.decide(&ours, begin.awake()), Decision::Claim);
        assert_eq!(
            held_by("b", begin).decide(&ours, begin.awake()),
            Decision::Claim
        );
        let mut empty = first(&ours, Timestamp::UNIX_EPOCH);
        empty.spec = None;
        let empty = Observed::read(empty, None, begin);
        assert_eq!(empty.decide(&ours, begin.awake()), Decision::Claim);
    }

    #[test]
    fn a_claim_counts_a_transition_and_a_renewal_does_not() {
        let (ours, begin) = (settings("b"), Moment::now());
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();

        let claimed = held_by("a", begin).claimed(&ours, now);
        let spec = claimed.spec.clone().unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some("b"));
        assert_eq!(
            (spec.lease_transitions, spec.lease_duration_seconds),
            (Some(1), Some(15))
        );
        assert_eq!(claimed.metadata.resource_version.as_deref(), Some("1"));

        let later: Timestamp = "2026-01-02T03:04:07Z".parse().unwrap();
        let renewed = Observed::read(claimed, None, begin).claimed(&ours, later);
        let spec = renewed.spec.unwrap();
        assert_eq!(spec.lease_transitions, Some(1));
        assert_eq!(spec.acquire_time, Some(MicroTime(now)));
        assert_eq!(spec.renew_time, Some(MicroTime(later)));
    }

    #[test]
    fn nobody_releases_what_another_holds() {
        let seen = held_by("a", Moment::now());

        assert_eq!(seen.released(&settings("b"), Timestamp::UNIX_EPOCH), None);
    }

    #[test]
    fn a_duration_is_written_in_whole_seconds_that_are_never_less() {
        assert_eq!(seconds(Duration::from_millis(15_001)), 16);
        assert_eq!(seconds(Duration::from_secs(15)), 15);
        assert_eq!(seconds(Duration::MAX), i32::MAX);
    }
}
