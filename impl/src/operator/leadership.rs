//! Which replica of the operator writes: the one that holds a Lease of its cluster.
//!
//! Leads only with a Lease that it wrote itself, under the version that it had seen, and renewed since: for
//! [`Settings::renew_deadline`] from the moment the renewal was sent. Others may claim the Lease after
//! [`Settings::lease_duration`] without a renewal. The difference is for what was sent last and is still on its way. A replica
//! that loses the Lease stays, as standby: its caches and peers stay warm, and [`Tenure`] keeps it from writing.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, api::PostParams};
use thiserror::Error;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{clock::Moment, cluster::client::is_not_served, status::answer::Leadership};

mod claim;
mod settings;
mod sight;
mod tenure;

use claim::{Decision, Observed};
pub use settings::{Settings, SettingsError, identity};
use sight::Sight;
pub use tenure::{Lapsed, Tenure};

/// Name of the Lease. STABLE: replicas of two versions must compete for the same one.
pub const LEASE_NAME: &str = "tombolo-operator";

/// Field manager of the Lease.
const FIELD_MANAGER: &str = "tombolo-leadership";

/// How long it may take to give the Lease back.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// How it is decided which replica writes.
#[derive(Debug, Clone)]
pub struct Election {
    settings: Option<Settings>,
    tenure: Tenure,
    sight: Sight,
}

impl Election {
    /// There is one replica, and it writes.
    pub fn uncontested() -> Self {
        Self {
            settings: None,
            tenure: Tenure::sole(),
            sight: Sight::default(),
        }
    }

    /// The replica that holds a Lease writes.
    pub fn by_lease(settings: Settings) -> Self {
        Self {
            settings: Some(settings),
            tenure: Tenure::standby(),
            sight: Sight::default(),
        }
    }

    /// The right to write that the election gives.
    pub fn tenure(&self) -> Tenure {
        self.tenure.clone()
    }

    /// Whether this replica leads, or who does, as of now.
    pub fn look(&self) -> Leadership {
        self.sight.look(self.settings.as_ref(), &self.tenure)
    }

    /// Stands for election for ever, until `resign`; then gives the Lease back, so that another need not wait for its end.
    /// Who resigns must have stopped writing before.
    pub async fn run(&self, client: &Client, resign: &CancellationToken) {
        let Some(settings) = &self.settings else {
            resign.cancelled().await;
            return;
        };
        info!(lease = %settings.name, namespace = %settings.namespace, identity = %settings.identity, "standing for election");
        let mut candidate = Candidate {
            api: Api::namespaced(client.clone(), &settings.namespace),
            settings,
            tenure: &self.tenure,
            sight: &self.sight,
            observed: None,
            stale: true,
            valid_until: None,
            failing: String::new(),
        };
        loop {
            let attempt = async {
                let pause = candidate.attempt().await;
                tokio::time::sleep(pause).await;
            };
            if resign.run_until_cancelled(attempt).await.is_none() {
                break;
            }
        }
        candidate.resign().await;
    }
}

/// Why the Lease could not be read or written.
#[derive(Debug, Error)]
enum Failure {
    #[error("the API server did not answer within {0:?}")]
    Unanswered(Duration),
    #[error(
        "{0}; check that the namespace exists and that this replica may get, create and update leases in it"
    )]
    Refused(#[source] Box<kube::Error>),
    #[error("somebody else wrote the Lease meanwhile")]
    Outrun,
}

/// One replica at one election.
struct Candidate<'a> {
    api: Api<Lease>,
    settings: &'a Settings,
    tenure: &'a Tenure,
    sight: &'a Sight,
    observed: Option<Observed>,
    /// Whether the Lease has to be looked at before it is written.
    stale: bool,
    /// Until when this replica leads; none while it does not.
    valid_until: Option<Moment>,
    /// The last failure, so that one that goes on is told once.
    failing: String,
}

impl Candidate<'_> {
    /// Renews or claims the Lease, or sees that it cannot; returns how long to wait before the next attempt.
    async fn attempt(&mut self) -> Duration {
        self.notice_end();
        let outcome = self.renew_or_claim().await;
        let now = Instant::now();
        if let Err(failure) = &outcome {
            self.tell(failure);
        } else {
            self.failing.clear();
        }
        let observed = self.observed.as_ref();
        self.sight.note(observed, self.settings, &self.failing);
        self.notice_end();
        let pause = match outcome {
            Ok(Decision::Claim) | Err(Failure::Unanswered(_) | Failure::Refused(_)) => None,
            Ok(Decision::Wait(until)) => Some(until),
            Err(Failure::Outrun) => Some(now),
        };
        let ends = self.valid_until.map(Moment::instant);
        let due = pause.into_iter().chain(ends).min();
        let until = due.map_or(self.settings.retry_period, |due| due.duration_since(now));
        until.clamp(Duration::from_millis(50), self.settings.retry_period)
    }

    fn notice_end(&mut self) {
        if self.valid_until.is_some_and(Moment::has_passed) {
            self.step_down("the Lease could not be renewed in time");
        }
    }

    fn tell(&mut self, failure: &Failure) {
        let text = failure.to_string();
        if text == self.failing {
            return;
        }
        let (lease, namespace) = (&self.settings.name, &self.settings.namespace);
        match failure {
            Failure::Outrun => debug!(%lease, %namespace, "{text}"),
            Failure::Unanswered(_) | Failure::Refused(_) if self.valid_until.is_some() => {
                warn!(%lease, %namespace, error = text, "cannot renew the Lease; trying again");
            }
            Failure::Unanswered(_) | Failure::Refused(_) => {
                warn!(%lease, %namespace, error = text, "cannot see or claim the Lease; trying again");
            }
        }
        self.failing = text;
    }

    async fn renew_or_claim(&mut self) -> Result<Decision, Failure> {
        if self.valid_until.is_none() || self.stale {
            let timeout = self.timeout();
            let read = within(timeout, self.api.get_opt(&self.settings.name)).await?;
            let now = Moment::now();
            self.observed = read.map(|lease| Observed::read(lease, self.observed.as_ref(), now));
            self.stale = false;
        }
        if let Some(observed) = &self.observed {
            let decision = observed.decide(self.settings, Instant::now());
            if decision != Decision::Claim {
                if self.valid_until.is_some() {
                    self.step_down("somebody else holds the Lease");
                }
                return Ok(decision);
            }
        }
        self.claim().await?;
        Ok(Decision::Claim)
    }

    /// Writes the Lease. It is valid from when the request was sent, not from when the answer came.
    async fn claim(&mut self) -> Result<(), Failure> {
        let (now, timeout, params) = (Timestamp::now(), self.timeout(), params());
        let sent = Moment::now();
        let written = if let Some(observed) = &self.observed {
            let lease = observed.claimed(self.settings, now);
            let answer = self.api.replace(&self.settings.name, &params, &lease);
            within(timeout, answer).await.map_err(outrun)
        } else {
            let lease = claim::first(self.settings, now);
            within(timeout, self.api.create(&params, &lease)).await
        };
        let lease = written.inspect_err(|_| self.stale = true)?;
        self.observed = Some(Observed::read(lease, None, Moment::now()));
        let until = sent + self.settings.renew_deadline;
        self.tenure.prolong(until);
        if self.valid_until.replace(until).is_none() {
            info!(lease = %self.settings.name, identity = %self.settings.identity, "this replica leads");
        }
        Ok(())
    }

    /// How long one request may take: so that there is time for a second one.
    fn timeout(&self) -> Duration {
        let half = self.settings.renew_deadline / 2;
        let left = self.valid_until;
        let left = left.map(|until| until.instant().saturating_duration_since(Instant::now()));
        left.map_or(half, |left| left.min(half))
    }

    fn step_down(&mut self, why: &'static str) {
        self.tenure.end();
        self.valid_until = None;
        let holder = self.observed.as_ref().and_then(Observed::holder);
        warn!(lease = %self.settings.name, identity = %self.settings.identity, holder, why, "this replica no longer leads; it stays as standby");
    }

    /// Gives the Lease back, if it is ours.
    async fn resign(mut self) {
        self.tenure.end();
        if self.valid_until.take().is_none() {
            return;
        }
        match tokio::time::timeout(RELEASE_TIMEOUT, self.release()).await {
            Ok(Ok(())) => info!(lease = %self.settings.name, "the Lease is released"),
            Ok(Err(error)) => {
                warn!(%error, "cannot release the Lease; the next leader has to wait for its end");
            }
            Err(_) => {
                warn!(
                    "the API server does not answer; the next leader has to wait for the end of the Lease"
                );
            }
        }
    }

    async fn release(&self) -> Result<(), Failure> {
        // A renewal may have been under way, so what was seen last may not be the last.
        let Some(lease) = within(RELEASE_TIMEOUT, self.api.get_opt(&self.settings.name)).await?
        else {
            return Ok(());
        };
        let seen = Observed::read(lease, None, Moment::now());
        let Some(lease) = seen.released(self.settings, Timestamp::now()) else {
            return Ok(());
        };
        let params = params();
        let answer = self.api.replace(&self.settings.name, &params, &lease);
        within(RELEASE_TIMEOUT, answer).await.map_err(outrun)?;
        Ok(())
    }
}

fn params() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

/// The answer to a request, or why there is none.
async fn within<T>(
    timeout: Duration,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Failure> {
    let answer = tokio::time::timeout(timeout, request);
    match answer.await.map_err(|_| Failure::Unanswered(timeout))? {
        Ok(answer) => Ok(answer),
        Err(kube::Error::Api(status)) if status.code == 409 => Err(Failure::Outrun),
        Err(error) => Err(Failure::Refused(Box::new(error))),
    }
}

/// That a Lease is not there any more to be replaced is somebody else's doing.
fn outrun(failure: Failure) -> Failure {
    match failure {
        Failure::Refused(error) if is_not_served(&error) => Failure::Outrun,
        other @ (Failure::Refused(_) | Failure::Unanswered(_) | Failure::Outrun) => other,
    }
}
