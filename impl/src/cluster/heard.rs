//! What is heard of the API server: every answer to the client of this process, and when the watches of whole kinds began.
//!
//! A watch without events looks the same as one that brings nothing any more. But each is asked to end after
//! [`super::client::WATCH_TIMEOUT_SECONDS`] and is then begun anew, so that one that was not begun for longer is dead, or nobody
//! listens to it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use tokio::time::Instant;
use tower::{Layer, Service};

use crate::status::answer::Watched;

/// Watches of these may end for good: the kind is optional.
const OPTIONAL: &str = "/apis/about.k8s.io/";

/// What is heard of an API server. Clones are the same. As a [`Layer`] it listens to a client.
#[derive(Debug, Clone, Default)]
pub struct Heard(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// When there was an answer last.
    answered: Option<Instant>,
    /// The watches of whole kinds, by path.
    watches: BTreeMap<String, Watch>,
}

#[derive(Debug)]
struct Watch {
    begun: Instant,
    /// Why it, or the list before it, failed since.
    failure: Option<String>,
}

/// What a request is about, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
enum About {
    /// A watch of all objects of a kind.
    Watch(String),
    /// A list of them.
    List(String),
    /// Anything else.
    Other,
}

impl Heard {
    /// When there was an answer last, be it a refusal.
    pub fn answered(&self) -> Option<Instant> {
        self.lock().answered
    }

    /// The watches of whole kinds that were ever begun.
    pub fn watches(&self) -> Vec<Watched> {
        let state = self.lock();
        let watches = state.watches.iter().map(|(path, watch)| Watched {
            path: path.clone(),
            begun_seconds_ago: watch.begun.elapsed().as_secs_f64(),
            failure: watch.failure.clone(),
        });
        watches.collect()
    }

    /// A request was answered with this status, or failed.
    fn note(&self, about: &About, outcome: Result<StatusCode, String>) {
        let now = Instant::now();
        let mut state = self.lock();
        if outcome
            .as_ref()
            .is_ok_and(|status| is_answer(status.as_u16()))
        {
            state.answered = Some(now);
        }
        let failure = match outcome {
            Ok(status) if status.is_success() => None,
            Ok(status) => Some(format!("the API server answers {status}")),
            Err(error) => Some(error),
        };
        match (about, failure) {
            (About::Watch(path), None) => {
                let begun = Watch {
                    begun: now,
                    failure: None,
                };
                state.watches.insert(path.clone(), begun);
            }
            (About::Watch(path) | About::List(path), Some(failure)) => {
                if let Some(watch) = state.watches.get_mut(path) {
                    watch.failure = Some(failure);
                }
            }
            (About::List(_) | About::Other, _) => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a status is an answer of the API server itself. A refusal is; that its store is away, or that it is overloaded, is none.
pub(super) fn is_answer(status: u16) -> bool {
    status < 500 && status != StatusCode::TOO_MANY_REQUESTS.as_u16()
}

impl About {
    fn of<B>(request: &Request<B>) -> Self {
        let uri = request.uri();
        let query = uri.query().unwrap_or_default();
        let has = |wanted: &str| query.split('&').any(|pair| pair == wanted);
        let selects = query.contains("fieldSelector=") || query.contains("labelSelector=");
        let counts = request.method() == Method::GET && !selects && !has("limit=1");
        if !counts || uri.path().starts_with(OPTIONAL) {
            Self::Other
        } else if has("watch=true") || has("watch=1") {
            Self::Watch(uri.path().to_owned())
        } else {
            Self::List(uri.path().to_owned())
        }
    }
}

impl<S> Layer<S> for Heard {
    type Service = Listening<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Listening {
            inner,
            heard: self.clone(),
        }
    }
}

/// A client that is listened to.
#[derive(Debug, Clone)]
pub struct Listening<S> {
    inner: S,
    heard: Heard,
}

impl<S, B, R> Service<Request<B>> for Listening<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    S::Error: std::fmt::Display,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (about, heard) = (About::of(&request), self.heard.clone());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let outcome = match &answer {
                Ok(response) => Ok(response.status()),
                Err(error) => Err(error.to_string()),
            };
            heard.note(&about, outcome);
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SERVICES: &str = "/api/v1/services";

    fn about(method: Method, uri: &str) -> About {
        About::of(&Request::builder().method(method).uri(uri).body(()).unwrap())
    }

    fn watch() -> About {
        About::Watch(SERVICES.to_owned())
    }

    fn failure(heard: &Heard) -> Option<String> {
        heard.watches()[0].failure.clone()
    }

    #[test]
    fn watches_and_lists_of_whole_kinds_count() {
        let of = |query: &str| about(Method::GET, &format!("{SERVICES}?{query}"));
        let list = About::List(SERVICES.to_owned());

        assert_eq!(of("watch=true&timeoutSeconds=25"), watch());
        assert_eq!(of("limit=500"), list);
        assert_eq!(of("limit=1"), About::Other);
        assert_eq!(of("watch=true&fieldSelector=a%3Db"), About::Other);
        assert_eq!(about(Method::POST, SERVICES), About::Other);
        let optional = "/apis/about.k8s.io/v1beta1/clusterproperties?watch=true";
        assert_eq!(about(Method::GET, optional), About::Other);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_ages_until_it_is_begun_anew() {
        let heard = Heard::default();
        assert_eq!(heard.watches(), []);

        heard.note(&watch(), Ok(StatusCode::OK));
        tokio::time::advance(Duration::from_secs(26)).await;
        let aged = heard.watches();
        heard.note(&watch(), Ok(StatusCode::OK));

        assert_eq!(aged[0].path, SERVICES);
        assert!(aged[0].begun_seconds_ago >= 26.0, "{aged:?}");
        assert!(heard.watches()[0].begun_seconds_ago < 1.0);
    }

    #[test]
    fn a_watch_that_fails_says_why_until_it_is_begun() {
        let heard = Heard::default();
        heard.note(&watch(), Ok(StatusCode::OK));

        heard.note(&watch(), Ok(StatusCode::FORBIDDEN));
        assert!(failure(&heard).unwrap().contains("403"));
        heard.note(&About::List(SERVICES.to_owned()), Err("refused".to_owned()));
        assert_eq!(failure(&heard).as_deref(), Some("refused"));
        heard.note(&About::List(SERVICES.to_owned()), Ok(StatusCode::OK));
        assert!(failure(&heard).is_some(), "a list is no watch");
        heard.note(&watch(), Ok(StatusCode::OK));

        assert_eq!(failure(&heard), None);
    }

    #[test]
    fn a_refusal_is_an_answer_and_a_store_that_is_away_is_none() {
        let answers = |status| {
            let heard = Heard::default();
            heard.note(&About::Other, Ok(status));
            heard.answered().is_some()
        };

        assert!(answers(StatusCode::OK) && answers(StatusCode::FORBIDDEN));
        assert!(!answers(StatusCode::INTERNAL_SERVER_ERROR));
        assert!(!answers(StatusCode::TOO_MANY_REQUESTS));
    }
}
