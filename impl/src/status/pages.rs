//! The pages `/v1/status` and `/v1/cluster` of a role.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{
        StatusCode, Uri,
        header::{CACHE_CONTROL, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
    routing::get,
};
use futures::future::{OptionFuture, join};
use jiff::Timestamp;
use serde::Serialize;
use tokio::{sync::Semaphore, time::Instant};

use super::{
    answer::{Answer, Asked, Leadership, Member, Peer, Peers, Ready, Work},
    remote_cluster::RemoteCluster,
};
use crate::{
    cluster::reach::Reach,
    mesh::{
        inquiry::Found,
        peers::{PeerState, PeerStatus, Statuses},
        publisher::View,
        reflector,
    },
    telemetry::{
        checks::Check,
        health::{Checks, Health},
    },
};

/// How long stores and followers have for an answer.
pub const ASK_TIMEOUT: Duration = Duration::from_secs(3);

/// Questions that are worked on at a time: each reads from every store.
const QUESTIONS_MAX: usize = 2;

/// What an answer is made of.
pub struct Source {
    /// `operator`, `mesh` or `kvstoremesh`.
    pub role: &'static str,
    /// Who this cluster is, once it is known.
    pub who: Box<dyn Fn() -> Option<Member> + Send + Sync>,
    /// The checks of the process.
    pub health: Health,
    /// The peers, if the role follows any.
    pub peers: Option<Statuses>,
    /// The own store, if the role writes one.
    pub store: Option<View>,
    /// The copies of the peers, if the role makes any.
    pub copies: Option<reflector::View>,
    /// The API server of this cluster.
    pub api_server: Reach,
    /// What an operator says of itself.
    pub controllers: Option<Controllers>,
}

/// Tells who leads, and what is still to be done.
pub type Controllers = Box<dyn Fn() -> (Leadership, Vec<Work>) + Send + Sync>;

struct Asking {
    source: Source,
    since: Instant,
    turns: Semaphore,
}

/// A check of `/readyz` for each peer. They do not count: that a peer is away is no reason to take this process for unready.
pub fn peer_checks(statuses: &Statuses) -> Checks {
    let statuses = statuses.clone();
    Arc::new(move || {
        let checks = statuses.peers().into_iter().map(|peer| {
            let why = || peer.error().unwrap_or_default();
            let failure =
                (peer.state != PeerState::Ready).then(|| format!("{}: {}", peer.state, why()));
            Check {
                name: format!("peer/{}", peer.cluster),
                failure,
                counts: false,
            }
        });
        checks.collect()
    })
}

impl Source {
    /// The health of the process, with the pages. The process counts as started now.
    pub fn shown(self) -> Health {
        let health = self.health.clone();
        health.with_routes(self.pages())
    }

    fn pages(self) -> Router {
        let asking = Asking {
            source: self,
            since: Instant::now(),
            turns: Semaphore::new(QUESTIONS_MAX),
        };
        Router::new()
            .route("/v1/status", get(status))
            .route("/v1/cluster", get(cluster))
            .with_state(Arc::new(asking))
    }
}

async fn status(State(asking): State<Arc<Asking>>, uri: Uri) -> Response {
    let Ok(_turn) = asking.turns.try_acquire() else {
        let text = "other questions are being answered; ask again\n";
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    let pairs = uri.query().unwrap_or_default().split('&');
    let mut nonces = pairs.filter_map(|pair| pair.strip_prefix("nonce="));
    let nonce = nonces.next().unwrap_or_default();
    json(&asking.answer(nonce).await)
}

async fn cluster(State(asking): State<Arc<Asking>>) -> Response {
    let peers = asking.source.peers.as_ref().map(Statuses::peers);
    let clusters: Vec<_> = peers.iter().flatten().map(RemoteCluster::of).collect();
    json(&clusters)
}

fn json(value: &impl Serialize) -> Response {
    let headers = [
        (CONTENT_TYPE, "application/json"),
        (CACHE_CONTROL, "no-store"),
    ];
    match serde_json::to_string(value) {
        Ok(text) => (StatusCode::OK, headers, text + "\n").into_response(),
        Err(error) => {
            let text = format!("cannot write the answer: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }
    }
}

impl Asking {
    async fn answer(&self, nonce: &str) -> Answer {
        let source = &self.source;
        let peers: OptionFuture<_> = source.peers.as_ref().map(peers).into();
        let store: OptionFuture<_> = source.store.as_ref().map(|it| it.ask(ASK_TIMEOUT)).into();
        let before = join(join(peers, store), source.api_server.look(ASK_TIMEOUT));
        let ((peers, store), api_server) = before.await;
        // After the peers: what has come of them has to be written, or to wait, by now. So for the queues.
        let copies: OptionFuture<_> = source.copies.as_ref().map(|it| it.ask(ASK_TIMEOUT)).into();
        let copies = copies.await;
        let controllers = source.controllers.as_ref().map(|controllers| controllers());
        let (leadership, queues) = controllers.unzip();
        let ready = source.health.readiness().into_iter().map(|check| Ready {
            check: check.name,
            ok: check.failure.is_none(),
            failure: check.failure,
            counts: check.counts,
        });
        let stuck = source.health.liveness().into_iter();
        Answer {
            nonce: nonce.to_owned(),
            at: Timestamp::now(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            role: source.role.to_owned(),
            cluster: (source.who)(),
            up_seconds: self.since.elapsed().as_secs(),
            ready: ready.collect(),
            stuck: stuck.map(|check| check.name).collect(),
            api_server,
            leadership,
            queues: queues.unwrap_or_default(),
            peers,
            store: store.flatten(),
            copies,
        }
    }
}

async fn peers(statuses: &Statuses) -> Peers {
    let found = statuses.inquiries().ask_all(ASK_TIMEOUT).await;
    let configured = statuses.is_current();
    let peers = statuses.peers().into_iter().map(|status| {
        let asked = asked(found.get(&status.cluster), &status);
        Peer { status, asked }
    });
    Peers {
        configured,
        peers: peers.collect(),
    }
}

fn asked(found: Option<&Found>, status: &PeerStatus) -> Asked {
    let Some(found) = found else {
        let why = status.error();
        return Asked {
            head: None,
            error: Some(why.unwrap_or("nobody follows it").to_owned()),
            age_seconds: 0.0,
            current: Vec::new(),
        };
    };
    Asked::of(found)
}

impl Asked {
    /// What was found out.
    pub fn of(found: &Found) -> Self {
        Self {
            head: found.head.as_ref().ok().copied(),
            error: found.head.as_ref().err().cloned(),
            age_seconds: found.read_at.elapsed().as_secs_f64(),
            current: found.current.clone(),
        }
    }
}
