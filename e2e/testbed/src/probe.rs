//! How a started process shows that it is ready.

use std::{net::SocketAddr, time::Duration};

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client, Config, api::DeleteParams};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Longest that one look may take: a process that is paused accepts connections and never answers.
const LOOK: Duration = Duration::from_secs(2);

/// What to ask a process.
#[derive(Clone, Debug)]
pub(crate) enum Probe {
    /// `GET` over plain HTTP must answer 200 with a body that contains `expect`.
    Http {
        /// Where it listens.
        address: SocketAddr,
        /// Path of the URL.
        path: &'static str,
        /// Part of the body.
        expect: &'static str,
    },
    /// The API server must say `ok` on `/readyz`.
    ApiServer(Config),
    /// The controller manager must do work: the ServiceAccount `default` of the namespace `default` exists.
    ControllerManager(Config),
}

impl Probe {
    /// Makes the probe meaningful before a restart: traces of the previous process go.
    pub(crate) async fn prepare_restart(&self) -> Result<(), String> {
        let Self::ControllerManager(config) = self else {
            return Ok(());
        };
        let accounts = default_accounts(config)?;
        let parameters = DeleteParams::default();
        let delete = accounts.delete("default", &parameters);
        match tokio::time::timeout(LOOK, delete).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() => Ok(()),
            Ok(Err(error)) => Err(format!("the API server must answer first: {error}")),
            Err(_) => Err("the API server must answer first, and does not".to_owned()),
        }
    }

    /// One look; `Err` says what was found.
    pub(crate) async fn look(&self) -> Result<(), String> {
        let answer = async {
            match self {
                Self::Http {
                    address,
                    path,
                    expect,
                } => http_get(*address, path, expect).await,
                Self::ApiServer(config) => ready_api_server(config).await,
                Self::ControllerManager(config) => {
                    let account = default_accounts(config)?.get_opt("default").await;
                    match account.map_err(|error| error.to_string())? {
                        Some(_) => Ok(()),
                        None => Err("no ServiceAccount default/default yet".to_owned()),
                    }
                }
            }
        };
        let late = |_| Err(format!("no answer within {LOOK:?}"));
        tokio::time::timeout(LOOK, answer)
            .await
            .unwrap_or_else(late)
    }
}

fn default_accounts(config: &Config) -> Result<Api<ServiceAccount>, String> {
    let client = Client::try_from(config.clone()).map_err(|error| error.to_string())?;
    Ok(Api::namespaced(client, "default"))
}

async fn ready_api_server(config: &Config) -> Result<(), String> {
    let client = Client::try_from(config.clone()).map_err(|error| error.to_string())?;
    let request = http::Request::get("/readyz")
        .body(Vec::new())
        .map_err(|e| e.to_string())?;
    match client.request_text(request).await {
        Ok(body) if body == "ok" => Ok(()),
        Ok(body) => Err(format!("/readyz says {body}")),
        Err(error) => Err(chain(&error)),
    }
}

/// An error with its causes: the outermost text of an HTTP client seldom says which of them it was.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

async fn http_get(address: SocketAddr, path: &str, expect: &str) -> Result<(), String> {
    let body = http_page(address, path).await?;
    if body.contains(expect) {
        Ok(())
    } else {
        Err(format!("http://{address}{path} says {body}"))
    }
}

/// The smallest HTTP client that can read a health page: the body of an answer 200.
pub(crate) async fn http_page(address: SocketAddr, path: &str) -> Result<String, String> {
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = tokio::time::timeout(LOOK, ask)
        .await
        .map_err(|_| format!("http://{address}{path}: no answer within {LOOK:?}"))?
        .map_err(|error| format!("http://{address}{path}: {error}"))?;
    let status_ok = answer.split_whitespace().nth(1) == Some("200");
    match answer.split_once("\r\n\r\n") {
        Some((_, body)) if status_ok => Ok(body.to_owned()),
        _ => Err(format!(
            "http://{address}{path} says {}",
            answer.replace("\r\n", " | ")
        )),
    }
}
