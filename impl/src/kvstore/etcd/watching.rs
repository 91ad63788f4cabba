//! etcd's answers to a watch as batches.
//!
//! The first answer says at which revision the store is. One that is behind what was asked for would accept the watch and stay
//! silent until it catches up, which for a wiped store may be never; so that is an error here.

use etcd_client::{EventType, WatchResponse, WatchStream};
use futures::stream;

use super::{
    super::{Error, Event, Step, Watch, WatchBatch},
    entry,
    failure::classify,
    session::{EtcdStore, Session, check_store, header_of},
};

/// Waits until the store has accepted the watch.
pub(super) async fn start(
    store: &EtcdStore,
    session: &Session,
    mut responses: WatchStream,
    from_revision: i64,
) -> Result<Watch, Error> {
    let first = next(session, &mut responses).await?;
    let header = header_of(first.header());
    check_store(session, Step::Watch, header)?;
    check_cancelled(session, &first)?;
    if header.1 < from_revision - 1 {
        return Err(Error::StoreBehind {
            endpoint: session.endpoint.to_string(),
            step: Step::Watch,
            expected: from_revision - 1,
            got: header.1,
        });
    }
    let state = Some((store.clone(), session.clone(), responses));
    Ok(Watch::new(stream::unfold(state, |state| async {
        let (store, session, mut responses) = state?;
        match batch(&session, &mut responses).await {
            Ok(batch) => Some((Ok(batch), Some((store, session, responses)))),
            Err(error) => {
                store.settle(&session, &error).await;
                Some((Err(error), None))
            }
        }
    })))
}

async fn next(session: &Session, responses: &mut WatchStream) -> Result<WatchResponse, Error> {
    match responses.message().await {
        Ok(Some(response)) => Ok(response),
        Ok(None) => Err(Error::Unreachable {
            endpoint: session.endpoint.to_string(),
            step: Step::Watch,
            detail: "the watch ended".to_owned(),
        }),
        Err(error) => Err(classify(&session.endpoint, Step::Watch, &error)),
    }
}

async fn batch(session: &Session, responses: &mut WatchStream) -> Result<WatchBatch, Error> {
    let response = next(session, responses).await?;
    let (store_id, revision) = header_of(response.header());
    check_store(session, Step::Watch, (store_id, revision))?;
    check_cancelled(session, &response)?;
    let events: Vec<_> = response.events().iter().filter_map(event).collect();
    // A header may be ahead of what was delivered while fragments follow; the events are not.
    let revision = events.last().map_or(revision, Event::mod_revision);
    Ok(WatchBatch {
        revision,
        store_id,
        events,
    })
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
            detail,
        });
    }
    Err(Error::Refused {
        endpoint,
        step,
        detail,
    })
}
