//! How a started process shows that it is ready.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::{Api, Client, Config, api::DeleteParams};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::dialer::Dialer;

/// Longest that one look may take: a process that is paused accepts connections and never answers.
const LOOK: Duration = Duration::from_secs(2);

/// What to ask a process, and from where.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    dialer: Dialer,
    question: Question,
}

#[derive(Clone, Debug)]
enum Question {
    /// `GET` over plain HTTP must answer 200 with a body that contains `expect`.
    Http {
        address: SocketAddr,
        path: &'static str,
        expect: &'static str,
    },
    /// The API server must say `ok` on `/readyz`.
    ApiServer(Config),
    /// The controller manager must do work: the ServiceAccount `default` of the namespace `default` exists.
    ControllerManager(Config),
    /// The kubelet must have registered its node.
    Node(Config, String),
    /// Something must accept connections on this unix socket.
    Socket(PathBuf),
}

impl Probe {
    /// `GET` over plain HTTP must answer 200 with a body that contains `expect`.
    pub(crate) fn http(
        dialer: Dialer,
        address: SocketAddr,
        path: &'static str,
        expect: &'static str,
    ) -> Self {
        let question = Question::Http {
            address,
            path,
            expect,
        };
        Self { dialer, question }
    }

    /// The API server must say `ok` on `/readyz`.
    pub(crate) fn api_server(dialer: Dialer, config: Config) -> Self {
        let question = Question::ApiServer(config);
        Self { dialer, question }
    }

    /// The controller manager must have done some work.
    pub(crate) fn controller_manager(dialer: Dialer, config: Config) -> Self {
        let question = Question::ControllerManager(config);
        Self { dialer, question }
    }

    /// The kubelet must have registered the node with this name.
    pub(crate) fn node(dialer: Dialer, config: Config, name: &str) -> Self {
        let question = Question::Node(config, name.to_owned());
        Self { dialer, question }
    }

    /// Something must accept connections on a unix socket.
    pub(crate) fn socket(path: PathBuf) -> Self {
        let question = Question::Socket(path);
        Self {
            dialer: Dialer::Here,
            question,
        }
    }

    /// Makes the probe meaningful before a restart: traces of the previous process go.
    pub(crate) async fn prepare_restart(&self) -> Result<(), String> {
        let Question::ControllerManager(config) = &self.question else {
            return Ok(());
        };
        let accounts = Api::<ServiceAccount>::namespaced(self.client(config)?, "default");
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
        let late = |_| Err(format!("no answer within {LOOK:?}"));
        tokio::time::timeout(LOOK, self.ask())
            .await
            .unwrap_or_else(late)
    }

    async fn ask(&self) -> Result<(), String> {
        match &self.question {
            Question::Http {
                address,
                path,
                expect,
            } => http_get(&self.dialer, *address, path, expect).await,
            Question::ApiServer(config) => ready_api_server(self.client(config)?).await,
            Question::ControllerManager(config) => {
                let accounts = Api::<ServiceAccount>::namespaced(self.client(config)?, "default");
                let account = accounts.get_opt("default").await;
                match account.map_err(|error| error.to_string())? {
                    Some(_) => Ok(()),
                    None => Err("no ServiceAccount default/default yet".to_owned()),
                }
            }
            Question::Node(config, name) => {
                let node = Api::<Node>::all(self.client(config)?).get_opt(name).await;
                match node.map_err(|error| error.to_string())? {
                    Some(_) => Ok(()),
                    None => Err(format!("no Node {name} yet")),
                }
            }
            Question::Socket(path) => match tokio::net::UnixStream::connect(path).await {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("{}: {error}", path.display())),
            },
        }
    }

    fn client(&self, config: &Config) -> Result<Client, String> {
        self.dialer
            .client(config)
            .map_err(|error| error.to_string())
    }
}

async fn ready_api_server(client: Client) -> Result<(), String> {
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

async fn http_get(
    dialer: &Dialer,
    address: SocketAddr,
    path: &str,
    expect: &str,
) -> Result<(), String> {
    let body = http_page(dialer, address, path).await?;
    if body.contains(expect) {
        Ok(())
    } else {
        Err(format!("http://{address}{path} says {body}"))
    }
}

/// The smallest HTTP client that can read a health page: the body of an answer 200.
pub(crate) async fn http_page(
    dialer: &Dialer,
    address: SocketAddr,
    path: &str,
) -> Result<String, String> {
    let ask = async {
        let mut stream = dialer.connect(address).await?;
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
