//! What a replica has seen of the election, for those who ask.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{claim::Observed, settings::Settings, tenure::Tenure};
use crate::{clock::Moment, status::answer::Leadership};

/// What was seen last. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Sight(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    holder: Option<String>,
    renewed: Option<Moment>,
    believed: Option<Duration>,
    failure: Option<String>,
}

impl Sight {
    /// The Lease was looked at, or could not be. What was seen before stays, and ages.
    pub(super) fn note(&self, observed: Option<&Observed>, settings: &Settings, failure: &str) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = Seen {
            holder: observed.and_then(Observed::holder).map(str::to_owned),
            renewed: observed.and_then(|observed| observed.renewed),
            believed: observed.map(|observed| observed.duration(settings)),
            failure: (!failure.is_empty()).then(|| failure.to_owned()),
        };
    }

    /// Who leads, as of now.
    pub(super) fn look(&self, settings: Option<&Settings>, tenure: &Tenure) -> Leadership {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A holder that asks to be believed for longer than this replica would be has to show more often that it lives.
        let own = settings.map(|settings| settings.lease_duration);
        let believed = seen.believed.into_iter().chain(own).min();
        Leadership {
            elected: settings.is_some(),
            leads: tenure.check().is_ok(),
            identity: settings.map(|settings| settings.identity.clone()),
            holder: seen.holder.clone(),
            renewed_seconds_ago: seen.renewed.map(|at| at.elapsed().as_secs_f64()),
            believed_seconds: believed.unwrap_or_default().as_secs_f64(),
            failure: seen.failure.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{clock::testing::suspend, operator::leadership::claim};

    #[tokio::test(start_paused = true)]
    async fn a_renewal_ages_while_the_machine_is_suspended() {
        let settings = Settings::for_tests();
        let lease = |version: &str| {
            let mut lease = claim::first(&settings, Timestamp::UNIX_EPOCH);
            lease.metadata.resource_version = Some(version.to_owned());
            lease
        };
        let before = Observed::read(lease("1"), None, Moment::now());
        let renewed = Observed::read(lease("2"), Some(&before), Moment::now());
        let sight = Sight::default();
        sight.note(Some(&renewed), &settings, "");
        let age = || {
            let seen = sight.look(Some(&settings), &Tenure::standby());
            seen.renewed_seconds_ago.unwrap()
        };

        tokio::time::advance(Duration::from_secs(2)).await;
        assert!((1.9..3.0).contains(&age()), "{}", age());
        suspend(Duration::from_mins(1));

        assert!((61.9..63.0).contains(&age()), "{}", age());
    }
}
