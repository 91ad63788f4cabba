//! Whether the API server answers: asked every few seconds, so that silence is noticed before somebody has waited in vain.
//!
//! Tells people only. Nothing is removed, and no process is unready, because the API server is silent.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use kube::Client;
use prometheus_client::{metrics::gauge::Gauge, registry::Registry};
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{info, warn};

use crate::telemetry::checks::Check;

/// Time between two questions.
const INTERVAL: Duration = Duration::from_secs(5);

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(3);

/// What is known of the API server. Cloning gives another handle.
#[derive(Debug, Clone, Default)]
pub struct Reach {
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
    /// Shows in a registry whether the API server answers.
    pub fn register(registry: &mut Registry) -> Self {
        let reach = Self::default();
        registry.register(
            "tombolo_api_server_reachable",
            "Whether the API server of this cluster answered when it was asked last: 1 or 0",
            reach.gauge.clone(),
        );
        reach
    }

    /// The check `api-server`. It does not count: what is known goes on serving.
    pub fn check(&self) -> Check {
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

    /// Asks for ever.
    pub async fn ask(&self, client: &Client) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let answer = tokio::time::timeout(ANSWER, client.apiserver_version()).await;
            self.note(match answer {
                // A refusal is an answer.
                Ok(Ok(_) | Err(kube::Error::Api(_))) => Ok(()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("the connection is silent for {ANSWER:?}")),
            });
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
        let reach = Reach::default();
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
