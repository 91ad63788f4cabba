//! Asks a process over plain HTTP, in time.

use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Request, Uri, body::Bytes};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use thiserror::Error;

/// Largest answer, in bytes: 511 peers need about 1 MiB.
const ANSWER_MAX: usize = 16 * 1024 * 1024;

/// Why there is no answer.
#[derive(Debug, Error)]
pub(super) enum Error {
    /// No connection, or it broke.
    #[error("no connection: {0}")]
    Unreachable(String),
    /// It took too long.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// Another status than 200.
    #[error("it answers {status}: {text}")]
    Refused {
        /// The status.
        status: u16,
        /// The beginning of what came with it.
        text: String,
    },
    /// The answer is too large, or no text.
    #[error("its answer cannot be read: {0}")]
    Unreadable(String),
}

/// The page at this address.
pub(super) async fn page(url: &Uri, within: Duration) -> Result<String, Error> {
    match tokio::time::timeout(within, fetch(url)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Error::TimedOut(within)),
    }
}

async fn fetch(url: &Uri) -> Result<String, Error> {
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::get(url)
        .header("cache-control", "no-cache")
        .header("accept", "application/json")
        .body(Empty::new())
        .map_err(|error| Error::Unreachable(error.to_string()))?;
    let answer = client.request(request).await;
    let answer = answer.map_err(|error| Error::Unreachable(causes(&error)))?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
    let body = body.map_err(|error| Error::Unreadable(error.to_string()))?;
    let text = String::from_utf8(body.to_bytes().into())
        .map_err(|error| Error::Unreadable(error.to_string()))?;
    if status.as_u16() == 200 {
        return Ok(text);
    }
    Err(Error::Refused {
        status: status.as_u16(),
        text: text.trim().chars().take(200).collect(),
    })
}

/// An error with its causes: the outermost of this library says nothing.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
