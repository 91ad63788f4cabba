//! The health and metrics endpoint of a role: `/livez`, `/readyz`, `/metrics`, and what a role adds to it.
//!
//! `/readyz` is green only when every gate of the process has been opened; it names those that are closed. It turns red when the
//! process is told to stop, and answers until everything else has ended. `/livez` fails when a part of the process is stuck in
//! a piece of work.

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, Uri, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use futures::future::join_all;
use prometheus_client::{encoding::text::encode, registry::Registry};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{
    checks::{Answer, Check, Question, answer},
    pulse::Pulses,
};

const TEXT: &str = "text/plain; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The gate that closes when the process is told to stop.
const STOPPING: &str = "stopping";

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

/// Gives checks of `/readyz` that come and go, such as one for each peer.
pub type Checks = Arc<dyn Fn() -> Vec<Check> + Send + Sync>;

/// What a process shows of itself: its metrics and its readiness gates. Cloning gives another handle.
#[derive(Clone)]
pub struct Health {
    registry: Arc<Registry>,
    gates: Arc<Mutex<BTreeMap<&'static str, bool>>>,
    checks: Vec<Checks>,
    pulses: Vec<Pulses>,
    routes: Router,
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

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health")
            .field("gates", &self.gates)
            .finish_non_exhaustive()
    }
}

impl Health {
    /// Health of a process whose metrics have all been registered.
    pub fn new(registry: Registry) -> Self {
        Self {
            registry: Arc::new(registry),
            gates: Arc::default(),
            checks: Vec::new(),
            pulses: Vec::new(),
            routes: Router::new(),
        }
    }

    /// Adds checks to `/readyz`.
    pub fn with_checks(mut self, checks: Checks) -> Self {
        self.checks.push(checks);
        self
    }

    /// Adds the parts that `/livez` watches over. Their time is counted while this is served.
    pub fn with_pulses(mut self, pulses: Pulses) -> Self {
        self.pulses.push(pulses);
        self
    }

    /// Adds pages.
    pub fn with_routes(mut self, routes: Router) -> Self {
        self.routes = self.routes.merge(routes);
        self
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

    /// The checks of `/readyz`: every gate, then what was added.
    pub fn readiness(&self) -> Vec<Check> {
        let gates = lock(&self.gates).clone();
        let gates = gates.into_iter().map(|(name, open)| Check {
            name: name.to_owned(),
            failure: (!open).then(|| "waiting".to_owned()),
            counts: true,
        });
        let more = self.checks.iter().flat_map(|checks| checks());
        gates.chain(more).collect()
    }

    /// The checks of `/livez`: the parts that are stuck.
    pub fn liveness(&self) -> Vec<Check> {
        let stuck = self.pulses.iter().flat_map(Pulses::stuck).map(|stuck| Check {
            name: stuck.part,
            failure: Some(format!(
                "no step of its work ended within {:?}, and none takes longer than {:?}: it is stuck; restart the process and report the log",
                stuck.silent, stuck.bound
            )),
            counts: true,
        });
        stuck.collect()
    }

    /// Serves until `finished`. From `stop` on the process is not ready.
    pub async fn serve(
        self,
        address: SocketAddr,
        stop: CancellationToken,
        finished: CancellationToken,
    ) -> Result<(), Error> {
        let listener = TcpListener::bind(address)
            .await
            .map_err(|source| Error::Bind { address, source })?;
        if let Ok(bound) = listener.local_addr() {
            info!(address = %bound, "serving /livez, /readyz, /metrics and what the role adds");
        }
        let pulses = self.pulses.clone();
        let stopping = Gate {
            name: STOPPING,
            gates: Arc::clone(&self.gates),
        };
        let stopped = async move {
            stop.cancelled().await;
            stopping.set(false);
            finished.cancelled().await;
        };
        let serve = axum::serve(listener, self.router()).with_graceful_shutdown(stopped);
        tokio::select! {
            served = serve => served.map_err(Error::Serve),
            () = count_for_ever(&pulses) => Ok(()),
        }
    }

    /// Every page.
    fn router(self) -> Router {
        let routes = self.routes.clone();
        Router::new()
            .route("/livez", get(livez))
            .route("/readyz", get(readyz))
            .route("/readyz/{*check}", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(self)
            .merge(routes)
    }
}

async fn count_for_ever(pulses: &[Pulses]) {
    join_all(pulses.iter().map(Pulses::count)).await;
    std::future::pending::<()>().await;
}

fn lock<'a>(
    gates: &'a Mutex<BTreeMap<&'static str, bool>>,
) -> MutexGuard<'a, BTreeMap<&'static str, bool>> {
    gates.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn livez(State(health): State<Health>, uri: Uri) -> Response {
    probe("livez", &health.liveness(), &uri)
}

async fn readyz(State(health): State<Health>, uri: Uri) -> Response {
    probe("readyz", &health.readiness(), &uri)
}

fn probe(name: &str, checks: &[Check], uri: &Uri) -> Response {
    let rest = uri.path().get(1 + name.len()..).unwrap_or_default();
    let (status, text) = match answer(name, checks, &Question::parse(rest, uri.query())) {
        Answer::Passed(text) => (StatusCode::OK, text),
        Answer::Failed(text) => (StatusCode::SERVICE_UNAVAILABLE, text),
        Answer::NotFound(text) => (StatusCode::NOT_FOUND, text),
    };
    (status, [(CONTENT_TYPE, TEXT)], text).into_response()
}

async fn metrics(State(health): State<Health>) -> impl IntoResponse {
    let mut text = String::new();
    match encode(&mut text, &health.registry) {
        Ok(()) => (StatusCode::OK, [(CONTENT_TYPE, OPEN_METRICS)], text),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [(CONTENT_TYPE, TEXT)],
            format!("cannot encode the metrics: {error}\n"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };
    use tombolo_testbed::{ClaimedPorts, patience};

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

    #[test]
    fn a_peer_has_a_check_that_does_not_close_readiness() {
        let peer = || {
            vec![Check {
                name: "peer/rome".to_owned(),
                failure: Some("Connecting".to_owned()),
                counts: false,
            }]
        };
        let health = Health::new(Registry::default()).with_checks(Arc::new(peer));
        let asked = |path: &'static str| {
            probe(
                "readyz",
                &health.readiness(),
                &path.parse().expect("a path"),
            )
        };

        assert_eq!(asked("/readyz").status(), StatusCode::OK);
        assert_eq!(
            asked("/readyz/peer/rome").status(),
            StatusCode::SERVICE_UNAVAILABLE
        );
        assert_eq!(asked("/readyz/peer/oslo").status(), StatusCode::NOT_FOUND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_is_stuck_makes_the_process_not_alive() {
        let bound = Duration::from_secs(30);
        let pulses = Pulses::default();
        let health = Health::new(Registry::default()).with_pulses(pulses.clone());
        let part = pulses.part("peer/rome", bound);
        let asked = || probe("livez", &health.liveness(), &Uri::from_static("/livez"));
        assert_eq!(asked().status(), StatusCode::OK);

        let work = part.begin();
        let _counted = tokio::time::timeout(bound * 2, pulses.count()).await;
        assert_eq!(asked().status(), StatusCode::SERVICE_UNAVAILABLE);

        drop(work);
        assert_eq!(asked().status(), StatusCode::OK);
    }

    /// Status and body of `/readyz`; none when nobody listens.
    async fn readiness(address: SocketAddr) -> Option<(String, String)> {
        let mut stream = TcpStream::connect(address).await.ok()?;
        let request = b"GET /readyz HTTP/1.0\r\n\r\n";
        stream.write_all(request).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?;
        Some((status.to_owned(), body.to_owned()))
    }

    #[tokio::test]
    async fn a_process_that_stops_says_that_it_is_not_ready_until_it_has_ended() {
        let claimed = ClaimedPorts::claim().unwrap();
        let [address, _] = claimed.addresses();
        let (stop, finished) = (CancellationToken::new(), CancellationToken::new());
        let health = Health::new(Registry::default());
        let serving = tokio::spawn(health.serve(address, stop.clone(), finished.clone()));
        let budget = Duration::from_secs(5) * patience();
        let says = async |status: &str, part: &str| {
            let said = |(code, body): (String, String)| code == status && body.contains(part);
            while !readiness(address).await.is_some_and(said) {
                tokio::task::yield_now().await;
            }
        };

        let ready = tokio::time::timeout(budget, says("200", "ok"));
        ready.await.expect("ready without gates");
        stop.cancel();
        let unready = tokio::time::timeout(budget, says("503", STOPPING));
        unready.await.expect("unready while it stops");
        assert!(!serving.is_finished());
        finished.cancel();

        serving.await.unwrap().unwrap();
        assert_eq!(readiness(address).await, None);
    }
}
