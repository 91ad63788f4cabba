//! Where connections to a cluster start: in the network namespace of this process, or in that of a node.
//!
//! A cluster of provider `local` listens nowhere but in its own network namespace. A socket belongs to the namespace of
//! the thread that makes it, for as long as it lives; so one short-lived thread makes it there, and this process uses it.

use std::{fs::File, io, net::SocketAddr, os::fd::AsFd as _, sync::Arc, time::Duration};

use http::Uri;
use hyper_util::{
    client::legacy,
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt as _},
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::net::{TcpSocket, TcpStream};
use tower::ServiceBuilder;

/// How long an unused connection is kept. An API server closes it after 90 s, and after 32 s when nothing was sent
/// on it yet, perhaps just when a request is sent.
const IDLE: Duration = Duration::from_secs(30);

/// Where connections start.
#[derive(Clone, Debug, Default)]
pub(crate) enum Dialer {
    /// The network namespace of this process.
    #[default]
    Here,
    /// The network namespace that this file is the link of (`/proc/PID/ns/net`).
    Inside(Arc<File>),
}

impl Dialer {
    /// A TCP connection, without the delay of small packets (RFC 896).
    pub(crate) async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let stream = match self {
            Self::Here => TcpStream::connect(address).await?,
            Self::Inside(namespace) => socket_inside(namespace, address)?.connect(address).await?,
        };
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// A client of the API server, whose URL must have an IP address as its host when it is not reached from here.
    pub(crate) fn client(&self, config: &Config) -> Result<Client, kube::Error> {
        if matches!(self, Self::Here) {
            return Client::try_from(config.clone());
        }
        let dialer = self.clone();
        let connector = tower::service_fn(move |uri: Uri| {
            let dialer = dialer.clone();
            async move {
                let stream = dialer.connect(socket_address(&uri)?).await?;
                stream.set_nodelay(true)?;
                Ok::<_, io::Error>(TokioIo::new(stream))
            }
        });
        let https = config.rustls_https_connector_with_connector(connector)?;
        let http: legacy::Client<_, Body> = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(https);
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(config.auth_layer()?)
            .map_err(tower::BoxError::from)
            .service(http);
        Ok(Client::new(service, config.default_namespace.clone()))
    }
}

fn socket_address(uri: &Uri) -> io::Result<SocketAddr> {
    let host = uri.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let ip = host.parse().map_err(|_| {
        let message =
            format!("{uri}: a cluster with a network namespace is reached by an IP address");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })?;
    Ok(SocketAddr::new(ip, uri.port_u16().unwrap_or(443)))
}

/// A socket in that network namespace. The thread that enters it does nothing else.
fn socket_inside(namespace: &File, address: SocketAddr) -> io::Result<TcpSocket> {
    let enter_and_make = || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        if address.is_ipv4() {
            TcpSocket::new_v4()
        } else {
            TcpSocket::new_v6()
        }
    };
    std::thread::scope(|scope| {
        let made = scope.spawn(enter_and_make).join();
        made.unwrap_or_else(|_| Err(io::Error::other("the thread that makes a socket panicked")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_url_is_an_ip_address_with_or_without_brackets() {
        for (uri, expected) in [
            ("https://172.30.1.1:6443/api", "172.30.1.1:6443"),
            ("https://[fd00:30::1]/api", "[fd00:30::1]:443"),
        ] {
            let address = socket_address(&uri.parse().unwrap()).unwrap();

            assert_eq!(address.to_string(), expected);
        }
        let error = socket_address(&"https://a.example".parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("IP address"), "{error}");
    }
}
