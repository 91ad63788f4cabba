//! etcd's answers to a watch as batches.
//!
//! The first answer says at which revision the store is. One that is behind what was asked for would accept the watch and stay
//! silent until it catches up, which for a wiped store may be never; so that is an error here.

use std::sync::Arc;

use etcd_client::{
    EventType, WatchOptions, WatchRequestSender, WatchResponse, WatchResponseStream, WatchStream,
};
use futures::stream;
use tokio::{sync::Notify, time::timeout};

use super::{
    super::{Error, Event, Scope, Step, Watch, WatchBatch},
    WATCH_ANSWER_MAX, entry,
    session::{EtcdStore, REQUEST_TIMEOUT, Session, check_store, header_of},
};

/// A watch that runs.
struct Running {
    store: EtcdStore,
    session: Session,
    requests: WatchRequestSender,
    responses: WatchResponseStream,
    /// Events before this one are left out.
    from_revision: i64,
    /// Somebody wants to know how far it is.
    asked: Arc<Notify>,
}

/// Watches, and waits until the store has accepted.
///
/// A watch from a revision that the store has yet to reach cannot be asked how far it is: etcd does not answer until it is
/// reached. Such a watch begins one revision earlier, and what is of that one is left out.
pub(super) async fn start(
    store: &EtcdStore,
    session: &Session,
    scope: &Scope,
    from_revision: i64,
) -> Result<Watch, Error> {
    let (at, mut watch) = create(session, scope, from_revision).await?;
    if at < from_revision - 1 {
        return Err(Error::StoreBehind {
            endpoint: session.endpoint.to_string(),
            step: Step::Watch,
            expected: from_revision - 1,
            got: at,
        });
    }
    if at < from_revision {
        (_, watch) = create(session, scope, at).await?;
    }
    let (requests, responses) = watch.split();
    let asked = Arc::new(Notify::new());
    let running = Running {
        store: store.clone(),
        session: session.clone(),
        requests,
        responses,
        from_revision,
        asked: Arc::clone(&asked),
    };
    let batches = stream::unfold(Some(running), |running| async {
        let mut running = running?;
        match running.batch().await {
            Ok(batch) => Some((Ok(batch), Some(running))),
            Err(error) => {
                running.store.settle(&running.session, &error).await;
                Some((Err(error), None))
            }
        }
    });
    Ok(Watch::new(batches, move || asked.notify_one()))
}

/// A watch that the store has accepted, and the revision that the store was at.
async fn create(
    session: &Session,
    scope: &Scope,
    start_revision: i64,
) -> Result<(i64, WatchStream), Error> {
    let mut options = WatchOptions::new()
        .with_start_revision(start_revision)
        .with_progress_notify()
        .with_fragment();
    if matches!(scope, Scope::Prefix(_)) {
        options = options.with_prefix();
    }
    let client = session.client.watch_client();
    let mut client = client.max_decoding_message_size(WATCH_ANSWER_MAX);
    let failed = |error| session.classify(Step::Watch, &error);
    let watch = client.watch(scope.as_str(), Some(options)).await;
    let mut watch = watch.map_err(failed)?;
    let first = received(session, watch.message().await)?;
    let header = header_of(first.header());
    check_store(session, Step::Watch, header)?;
    check_cancelled(session, &first)?;
    Ok((header.1, watch))
}

fn received(
    session: &Session,
    message: Result<Option<WatchResponse>, etcd_client::Error>,
) -> Result<WatchResponse, Error> {
    match message {
        Ok(Some(response)) => Ok(response),
        Ok(None) => Err(Error::Unreachable {
            endpoint: session.endpoint.to_string(),
            step: Step::Watch,
            detail: "the watch ended".to_owned(),
        }),
        Err(error) => Err(session.classify(Step::Watch, &error)),
    }
}

impl Running {
    /// The next batch; meanwhile passes on questions.
    async fn batch(&mut self) -> Result<WatchBatch, Error> {
        let response = loop {
            tokio::select! {
                biased;
                message = self.responses.message() => break received(&self.session, message)?,
                () = self.asked.notified() => {
                    ask(&self.session, &mut self.requests).await?;
                }
            }
        };
        let session = &self.session;
        let (store_id, revision) = header_of(response.header());
        check_store(session, Step::Watch, (store_id, revision))?;
        check_cancelled(session, &response)?;
        // A header may be ahead of what was delivered while more follows; the events are not.
        let last = response.events().last().and_then(etcd_client::Event::kv);
        let revision = last.map_or(revision, etcd_client::KeyValue::mod_revision);
        let events = response.events().iter().filter_map(event);
        let events = events.filter(|event| event.mod_revision() >= self.from_revision);
        let events = events.collect();
        Ok(WatchBatch {
            revision,
            store_id,
            events,
        })
    }
}

async fn ask(session: &Session, requests: &mut WatchRequestSender) -> Result<(), Error> {
    match timeout(REQUEST_TIMEOUT, requests.request_progress()).await {
        Ok(sent) => sent.map_err(|error| session.classify(Step::Watch, &error)),
        Err(_) => Err(Error::TimedOut {
            endpoint: session.endpoint.to_string(),
            step: Step::Watch,
            after: REQUEST_TIMEOUT,
        }),
    }
}

fn event(event: &etcd_client::Event) -> Option<Event> {
    let kv = event.kv()?;
    match event.event_type() {
        EventType::Put => entry(kv).map(Event::Put),
        EventType::Delete => Some(Event::Delete {
            key: kv.key_str().ok()?.to_owned(),
            mod_revision: kv.mod_revision(),
        }),
    }
}

fn check_cancelled(session: &Session, response: &WatchResponse) -> Result<(), Error> {
    let endpoint = session.endpoint.to_string();
    let step = Step::Watch;
    if response.compact_revision() != 0 {
        return Err(Error::Compacted { endpoint, step });
    }
    if !response.canceled() {
        return Ok(());
    }
    let detail = response.cancel_reason().to_owned();
    if detail.contains("permission denied") {
        return Err(Error::Denied {
            endpoint,
            step,
            user: session.user.to_string(),
            detail,
        });
    }
    Err(Error::Refused {
        endpoint,
        step,
        detail,
    })
}
