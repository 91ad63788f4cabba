//! Asks every process at the same time, each question with a number of its own.

use std::{fmt, time::Duration};

use futures::future::join_all;
use hyper::Uri;
use kube::Client;

use super::{cluster, http, pods};
use crate::{
    kvstore::backoff,
    status::{Answer, Finding, Level},
};

/// A process that is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// At this address.
    Address(Uri),
    /// In this pod.
    Pod(pods::Place),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => {
                let authority = address.authority().map_or("", |it| it.as_str());
                write!(f, "http://{authority}")
            }
            Self::Pod(place) => write!(f, "{}/{}:{}", place.namespace, place.pod, place.port),
        }
    }
}

/// A process and its answer, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked {
    pub(super) target: Target,
    pub(super) answer: Result<Box<Answer>, String>,
}

impl Asked {
    /// No answer.
    pub(super) fn failed(target: Target, why: impl Into<String>) -> Self {
        Self {
            target,
            answer: Err(why.into()),
        }
    }

    /// An answer, if it is one to this question.
    pub(super) fn parse(target: Target, text: &str, nonce: &str) -> Self {
        let answer = match serde_json::from_str::<Answer>(text) {
            Ok(answer) if answer.nonce == nonce => Ok(Box::new(answer)),
            Ok(_) => Err("the answer is to an earlier question: something between here and there keeps answers".to_owned()),
            Err(error) => Err(format!(
                "its answer is not one of this version ({error}); is it a role of Tombolo, of the same version?"
            )),
        };
        Self { target, answer }
    }
}

/// Everything that was found out.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Gathered {
    pub(super) asked: Vec<Asked>,
    /// What is the matter beyond single processes.
    pub(super) findings: Vec<Finding>,
}

impl Gathered {
    /// Nobody could be asked, since the kubeconfig gave no client in time.
    pub(super) fn without_client() -> Self {
        let finding = Finding::new(
            Level::Unknown,
            "cluster",
            "the kubeconfig gave no credentials in time".to_owned(),
            "check that the command of its user (`exec`) ends when it is run by hand; give more --timeout; or name the processes with --address",
        );
        Self {
            findings: vec![finding],
            ..Self::default()
        }
    }
}

/// Asks processes at addresses.
pub(super) async fn at_addresses(addresses: &[Uri], within: Duration) -> Gathered {
    let asked = addresses.iter().map(async |address| {
        let (target, nonce) = (Target::Address(address.clone()), nonce());
        let url = format!("{target}/v1/status?nonce={nonce}");
        let page = match url.parse::<Uri>() {
            Ok(url) => http::page(&url, within).await,
            Err(error) => return Asked::failed(target, error.to_string()),
        };
        match page {
            Ok(text) => Asked::parse(target, &text, &nonce),
            Err(error) => Asked::failed(target, error.to_string()),
        }
    });
    let asked = join_all(asked).await;
    let findings = cluster::leaders(&asked);
    Gathered { asked, findings }
}

/// Asks every pod of Tombolo in a cluster.
pub(super) async fn in_cluster(client: &Client, within: Duration) -> Gathered {
    let places = match pods::find(client, within).await {
        Ok(places) => places,
        Err(error) => {
            let finding = Finding::new(
                Level::Unknown,
                "cluster",
                format!("its pods cannot be listed: {error}"),
                "check the kubeconfig, and that this user may list pods in all namespaces; or name the processes with --address",
            );
            return Gathered {
                findings: vec![finding],
                ..Gathered::default()
            };
        }
    };
    let asked = places.iter().map(async |place| {
        let nonce = nonce();
        pods::ask(client, place, &nonce, within).await
    });
    let asked = join_all(asked).await;
    let findings = cluster::findings(&asked);
    Gathered { asked, findings }
}

/// A number that no earlier question had.
fn nonce() -> String {
    format!("{:016x}", backoff::random())
}
