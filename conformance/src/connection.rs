//! Requests whose connection breaks. A case is about an implementation; it must not fail because an idle connection to an API
//! server, or to the load balancer in front of it, was closed at the moment at which a request went out.
//!
//! API servers do that when a command in a pod is refused: they hand on the kubelet's answer, which lets the connection live, and
//! then close it.

use std::{error::Error, time::Duration};

use http::{Request, Response};
use kube::{Client, client::Body};

use crate::clusters::Cluster;

/// How often a request is sent, and the pause after the first time. It doubles.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(100);

/// The cluster, with a client that sends a request again when its connection broke before an answer came.
///
/// What an API server answers is never asked again. A request that changes something may have got through: then the API server
/// answers to the next one that the object exists, or does not any more, and the case fails as it would have without this.
pub(crate) fn steady(cluster: &Cluster) -> Cluster {
    let (inner, name) = (cluster.client.clone(), cluster.name.clone());
    let namespace = inner.default_namespace().to_owned();
    let service = tower::service_fn(move |request| send(inner.clone(), name.clone(), request));
    Cluster {
        client: Client::new(service, namespace),
        ..cluster.clone()
    }
}

async fn send(
    client: Client,
    cluster: String,
    mut request: Request<Body>,
) -> Result<Response<Body>, kube::Error> {
    for attempt in 0..ATTEMPTS - 1 {
        let Some(again) = copy(&request) else { break };
        match client.send(request).await {
            Err(error) if broke(&error) => {
                let (method, path) = (again.method(), again.uri().path());
                let error = with_causes(&error);
                eprintln!("cluster {cluster}: {method} {path} is sent again: {error}");
            }
            ended => return ended,
        }
        request = again;
        tokio::time::sleep(PAUSE * 2_u32.pow(attempt)).await;
    }
    client.send(request).await
}

/// The request once more; none of a body that is a stream.
fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let body = request.body().try_clone()?;
    let mut copy = Request::new(body);
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    copy.extensions_mut().clone_from(request.extensions());
    Some(copy)
}

/// Whether no answer came.
fn broke(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Service(_) | kube::Error::HyperError(_))
}

/// An error with its causes: the outermost text of an HTTP client does not say which of them it was.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use k8s_openapi::api::core::v1::Namespace;
    use kube::{Api, Config, api::PostParams};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    /// A server that closes the first so many connections when it has read a request, and then answers with that status;
    /// the number of connections that it took.
    async fn cluster(closes: u32, status: &'static str) -> (Cluster, Arc<AtomicU32>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let taken = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&taken);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let before = counter.fetch_add(1, Ordering::SeqCst);
                let read = stream.read(&mut [0; 4096]).await.unwrap();
                assert_ne!(read, 0, "a request is sent");
                if before < closes {
                    continue;
                }
                let body = r#"{"metadata":{"name":"a"},"code":409,"reason":"AlreadyExists"}"#;
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let client = Client::try_from(Config::new(url.parse().unwrap())).unwrap();
        let cluster = Cluster {
            name: "a".to_owned(),
            client,
            fake_node: None,
            runs_pods: false,
        };
        (cluster, taken)
    }

    #[tokio::test]
    async fn a_request_is_sent_again_when_its_connection_breaks() {
        let (cluster, taken) = cluster(2, "200 OK").await;
        let namespaces = Api::<Namespace>::all(steady(&cluster).client);

        let read = namespaces.get("a").await.unwrap();

        assert_eq!(read.metadata.name.as_deref(), Some("a"));
        assert_eq!(taken.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn an_answer_is_taken_as_it_is() {
        let (cluster, taken) = cluster(1, "409 Conflict").await;
        let namespaces = Api::<Namespace>::all(steady(&cluster).client);

        let (parameters, namespace) = (PostParams::default(), Namespace::default());
        let created = namespaces.create(&parameters, &namespace).await;

        let error = created.unwrap_err();
        assert!(
            matches!(&error, kube::Error::Api(status) if status.code == 409),
            "{error}"
        );
        assert_eq!(taken.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_server_that_never_answers_is_given_up_and_the_cause_is_said() {
        let (cluster, taken) = cluster(u32::MAX, "").await;
        let namespaces = Api::<Namespace>::all(steady(&cluster).client);

        let error = namespaces.get("a").await.unwrap_err();

        assert_eq!(taken.load(Ordering::SeqCst), ATTEMPTS);
        let text = with_causes(&error);
        assert!(
            text.contains("connection closed before message completed"),
            "{text}"
        );
    }
}
