//! Whether the API server answers: asked every few seconds, so that silence is noticed before somebody has waited in vain, and
//! when somebody wants to know. What it is asked for is in its store, so that it cannot answer while that is away.
//!
//! Tells people only. Nothing is removed, and no process is unready, because the API server is silent.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, api::ListParams};
use prometheus_client::{metrics::gauge::Gauge, registry::Registry};
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{info, warn};

use super::heard::{Heard, is_answer};
use crate::{status::answer::ApiServer, telemetry::checks::Check};

/// Time between two questions.
const INTERVAL: Duration = Duration::from_secs(5);

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(3);

/// What is known of the API server. Cloning gives another handle.
#[derive(Clone)]
pub struct Reach {
    client: Client,
    heard: Heard,
    record: Record,
}

/// What was found out so far.
#[derive(Debug, Clone, Default)]
struct Record {
    silent: Arc<Mutex<Option<Silence>>>,
    gauge: Gauge,
}

/// Since when there was no answer, and why.
#[derive(Debug, Clone)]
struct Silence {
    since: Instant,
    why: String,
}

impl Reach {
    /// Shows in a registry whether the API server of a client answers. `heard` listens to the client.
    pub fn register(registry: &mut Registry, client: Client, heard: Heard) -> Self {
        let record = Record::default();
        registry.register(
            "tombolo_api_server_reachable",
            "Whether the API server of this cluster answered when it was asked last: 1 or 0",
            record.gauge.clone(),
        );
        Self {
            client,
            heard,
            record,
        }
    }

    /// The check `api-server`. It does not count: what is known goes on serving.
    pub fn check(&self) -> Check {
        self.record.check()
    }

    /// Asks for ever.
    pub async fn ask(&self) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.record.note(self.question(ANSWER).await);
        }
    }

    /// What is heard of the API server, asked now. Takes at most `bound`.
    pub async fn look(&self, bound: Duration) -> ApiServer {
        let error = self.question(bound).await.err();
        let answered = self.heard.answered();
        ApiServer {
            answered_seconds_ago: answered.map(|at| at.elapsed().as_secs_f64()),
            error,
            watches: self.heard.watches(),
        }
    }

    /// Asks for something that is in the API server's store.
    async fn question(&self, bound: Duration) -> Result<(), String> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let one = ListParams::default().limit(1);
        match tokio::time::timeout(bound, namespaces.list_metadata(&one)).await {
            // A refusal is an answer.
            Ok(Err(kube::Error::Api(status))) if is_answer(status.code) => Ok(()),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("the connection is silent for {bound:?}")),
        }
    }
}

impl Record {
    fn check(&self) -> Check {
        let silent = self.silent.lock();
        let silent = silent.unwrap_or_else(PoisonError::into_inner).clone();
        Check {
            name: "api-server".to_owned(),
            failure: silent.map(|silence| {
                format!(
                    "no answer for {:.0?}: {}",
                    silence.since.elapsed(),
                    silence.why
                )
            }),
            counts: false,
        }
    }

    fn note(&self, answer: Result<(), String>) {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        self.gauge.set(i64::from(answer.is_ok()));
        match (answer, silent.as_mut()) {
            (Ok(()), None) => {}
            (Ok(()), Some(silence)) => {
                info!(silent = ?silence.since.elapsed(), "the API server answers again");
                *silent = None;
            }
            (Err(why), Some(silence)) => silence.why = why,
            (Err(why), None) => {
                warn!(
                    error = why,
                    "the API server does not answer; what is known is kept; check the network and the API server"
                );
                let since = Instant::now();
                *silent = Some(Silence { since, why });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_is_told_with_its_length_until_there_is_an_answer() {
        let reach = Record::default();
        assert_eq!(reach.check().failure, None);

        reach.note(Err("connection refused".to_owned()));
        tokio::time::advance(Duration::from_secs(7)).await;
        reach.note(Err("timed out".to_owned()));
        assert_eq!(
            reach.check().failure.as_deref(),
            Some("no answer for 7s: timed out")
        );
        assert_eq!(reach.gauge.get(), 0);
        assert!(!reach.check().counts);

        reach.note(Ok(()));
        assert_eq!((reach.check().failure, reach.gauge.get()), (None, 1));
    }
}
