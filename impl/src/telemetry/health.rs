//! The health and metrics endpoint of a role: `/livez`, `/readyz`, `/metrics`.
//!
//! `/readyz` is green only when every gate of the process has been opened; it names those that are closed.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{Router, extract::State, http::StatusCode, response::IntoResponse, routing::get};
use prometheus_client::{encoding::text::encode, registry::Registry};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

/// The endpoint could not be served.
#[derive(Debug, Error)]
pub enum Error {
    /// The address cannot be bound.
    #[error("cannot listen on --health-address {address}: {source}; choose a free address")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The server stopped.
    #[error("the health endpoint stopped: {0}")]
    Serve(#[source] std::io::Error),
}

/// What a process shows of itself: its metrics and its readiness gates. Cloning gives another handle.
#[derive(Debug, Clone)]
pub struct Health {
    registry: Arc<Registry>,
    gates: Arc<Mutex<BTreeMap<&'static str, bool>>>,
}

/// One condition of readiness. Closed at first.
#[derive(Debug, Clone)]
pub struct Gate {
    name: &'static str,
    gates: Arc<Mutex<BTreeMap<&'static str, bool>>>,
}

impl Gate {
    /// Opens or closes the gate.
    pub fn set(&self, open: bool) {
        lock(&self.gates).insert(self.name, open);
    }
}

impl Health {
    /// Health of a process whose metrics have all been registered.
    pub fn new(registry: Registry) -> Self {
        Self {
            registry: Arc::new(registry),
            gates: Arc::default(),
        }
    }

    /// Adds a closed gate.
    pub fn gate(&self, name: &'static str) -> Gate {
        lock(&self.gates).insert(name, false);
        Gate {
            name,
            gates: Arc::clone(&self.gates),
        }
    }

    /// The gates that are closed. The process is ready when there are none.
    pub fn closed(&self) -> Vec<&'static str> {
        lock(&self.gates)
            .iter()
            .filter(|(_, open)| !**open)
            .map(|(name, _)| *name)
            .collect()
    }

    /// Serves until cancelled.
    pub async fn serve(self, address: SocketAddr, cancel: CancellationToken) -> Result<(), Error> {
        let listener = TcpListener::bind(address)
            .await
            .map_err(|source| Error::Bind { address, source })?;
        if let Ok(bound) = listener.local_addr() {
            info!(address = %bound, "serving /livez, /readyz and /metrics");
        }
        let router = Router::new()
            .route("/livez", get(async || "ok\n"))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(self);
        axum::serve(listener, router)
            .with_graceful_shutdown(async move { cancel.cancelled().await })
            .await
            .map_err(Error::Serve)
    }
}

fn lock<'a>(
    gates: &'a Mutex<BTreeMap<&'static str, bool>>,
) -> std::sync::MutexGuard<'a, BTreeMap<&'static str, bool>> {
    gates
        .lock()
        .expect("no code panics while it holds the gates")
}

async fn readyz(State(health): State<Health>) -> impl IntoResponse {
    let closed = health.closed();
    if closed.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("waiting for: {}\n", closed.join(", ")),
        )
    }
}

async fn metrics(State(health): State<Health>) -> impl IntoResponse {
    let mut text = String::new();
    match encode(&mut text, &health.registry) {
        Ok(()) => (
            StatusCode::OK,
            [(
                "content-type",
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
            )],
            text,
        ),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [("content-type", "text/plain; charset=utf-8")],
            format!("cannot encode the metrics: {error}\n"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_when_its_last_gate_opens() {
        let health = Health::new(Registry::default());
        let caches = health.gate("caches");
        let store = health.gate("store");
        assert_eq!(health.closed(), ["caches", "store"]);

        caches.set(true);
        store.set(true);
        assert!(health.closed().is_empty());

        store.set(false);
        assert_eq!(health.closed(), ["store"]);
    }
}
