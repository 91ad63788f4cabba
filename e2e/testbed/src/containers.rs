//! Containers that tests start for themselves, by testcontainers; so far an etcd.
//!
//! Their ports are published where the engine is, which need not be where this process is: a forwarder leads there, and its
//! address stays when the container comes back with another port.

use std::{
    net::{IpAddr, SocketAddr},
    process::Command,
};

use testcontainers::{
    ContainerAsync, GenericBuildableImage, GenericImage, ImageExt as _, TestcontainersError,
    core::{BuildImageOptions, IntoContainerPort as _, WaitFor},
    runners::{AsyncBuilder as _, AsyncRunner as _},
};
use tokio::sync::OnceCell;

use crate::{Assets, Engine, Forwarder, MissingAssets, MissingEngine};

/// Environment variable with the image of etcd to use, such as `registry.k8s.io/etcd:3.6.8-0`, instead of one that is made from
/// the etcd of `make assets`.
const IMAGE: &str = "TOMBOLO_ETCD_IMAGE";

/// Where images of etcd have it, the public ones too.
const PROGRAM: &str = "/usr/local/bin/etcd";

/// Port of etcd in its container.
const PORT: u16 = 2379;

/// What etcd says when it takes requests.
const READY: &str = "ready to serve client requests";

/// Why there is no container.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// No engine.
    #[error(transparent)]
    Engine(#[from] MissingEngine),
    /// No etcd to make an image of.
    #[error("{0}; or name an image of etcd in {IMAGE}")]
    Assets(#[from] MissingAssets),
    /// The name of an image is none.
    #[error("{IMAGE}={name}: no image and tag, such as registry.k8s.io/etcd:3.6.8-0")]
    Name {
        /// What was given.
        name: String,
    },
    /// The image could not be made.
    #[error("cannot make an image of etcd {}: {source}", etcd.display())]
    Image {
        /// The program.
        etcd: std::path::PathBuf,
        /// What the engine said.
        #[source]
        source: Box<TestcontainersError>,
    },
    /// The container did not start.
    #[error(
        "etcd in a container of {image}: {source}; an etcd that was built here must be static (CGO_ENABLED=0), see `docker logs`"
    )]
    Start {
        /// Name of the image.
        image: String,
        /// What the engine said.
        #[source]
        source: Box<TestcontainersError>,
    },
    /// The container could not be stopped, started or asked.
    #[error("etcd in a container: {0}")]
    Container(#[from] Box<TestcontainersError>),
    /// No way to it.
    #[error("no way to the port of a container: {0}")]
    Forwarder(#[from] std::io::Error),
    /// The engine's address cannot be used.
    #[error(
        "the engine publishes ports on {host}, which is no IP address; name it by its address in DOCKER_HOST"
    )]
    Host {
        /// What it is.
        host: String,
    },
}

/// A real etcd in a container, without data at first. Dropping it removes the container.
#[derive(Debug)]
pub struct EtcdContainer {
    engine: Engine,
    container: Option<ContainerAsync<GenericImage>>,
    forwarder: Forwarder,
}

impl EtcdContainer {
    /// Starts one and waits until it takes requests.
    pub async fn start() -> Result<Self, ContainerError> {
        let engine = Engine::find().await?;
        let container = run().await?;
        let published = published(&engine, &container).await?;
        let forwarder = engine.forwarder(published).await?;
        Ok(Self {
            engine,
            container: Some(container),
            forwarder,
        })
    }

    /// URL for clients; it stays the same.
    pub fn url(&self) -> String {
        format!("http://{}", self.forwarder.address())
    }

    /// Kills it. Its data stay.
    pub async fn kill(&mut self) -> Result<(), ContainerError> {
        if let Some(container) = &self.container {
            container
                .stop_with_timeout(Some(0))
                .await
                .map_err(Box::new)?;
        }
        Ok(())
    }

    /// Starts it again with its data; readiness is the caller's business.
    pub async fn resume(&mut self) -> Result<(), ContainerError> {
        if let Some(container) = &self.container {
            container.start().await.map_err(Box::new)?;
            self.forwarder
                .switch(published(&self.engine, container).await?);
        }
        Ok(())
    }

    /// Replaces it with one without data, of the same cluster id.
    pub async fn wipe(&mut self) -> Result<(), ContainerError> {
        if let Some(container) = self.container.take() {
            container.rm().await.map_err(Box::new)?;
        }
        let container = run().await?;
        self.forwarder
            .switch(published(&self.engine, &container).await?);
        self.container = Some(container);
        Ok(())
    }
}

async fn run() -> Result<ContainerAsync<GenericImage>, ContainerError> {
    let (name, tag) = image().await?;
    let image = GenericImage::new(name, tag)
        .with_exposed_port(PORT.tcp())
        .with_wait_for(WaitFor::message_on_stderr(READY))
        .with_cmd([
            PROGRAM,
            "--data-dir=/data",
            "--name=a",
            "--unsafe-no-fsync",
            "--listen-client-urls=http://0.0.0.0:2379",
            "--advertise-client-urls=http://127.0.0.1:2379",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--initial-advertise-peer-urls=http://127.0.0.1:2380",
            "--initial-cluster=a=http://127.0.0.1:2380",
        ]);
    image.start().await.map_err(|source| ContainerError::Start {
        image: format!("{name}:{tag}"),
        source: Box::new(source),
    })
}

/// Where the port of etcd is published, as seen from the engine's network.
async fn published(
    engine: &Engine,
    container: &ContainerAsync<GenericImage>,
) -> Result<SocketAddr, ContainerError> {
    let port = container.get_host_port_ipv4(PORT).await.map_err(Box::new)?;
    if engine.is_private() {
        return Ok((IpAddr::from([127, 0, 0, 1]), port).into());
    }
    let host = container.get_host().await.map_err(Box::new)?.to_string();
    let host = if host == "localhost" {
        "127.0.0.1"
    } else {
        &host
    };
    let ip: IpAddr = host.parse().map_err(|_| ContainerError::Host {
        host: host.to_owned(),
    })?;
    Ok((ip, port).into())
}

/// Name and tag of the image, which is made once when none is named.
async fn image() -> Result<(&'static str, &'static str), ContainerError> {
    static MADE: OnceCell<(String, String)> = OnceCell::const_new();
    let (name, tag) = MADE
        .get_or_try_init(async || match std::env::var(IMAGE) {
            Ok(name) if !name.is_empty() => split(&name),
            Ok(_) | Err(_) => make().await,
        })
        .await?;
    Ok((name, tag))
}

fn split(name: &str) -> Result<(String, String), ContainerError> {
    let parts = name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/'));
    let (image, tag) = parts.ok_or_else(|| ContainerError::Name {
        name: name.to_owned(),
    })?;
    Ok((image.to_owned(), tag.to_owned()))
}

/// An image of the etcd of `make assets` and nothing else. Its tag is the version of etcd.
async fn make() -> Result<(String, String), ContainerError> {
    let etcd = Assets::find()?.etcd;
    let output = Command::new(&etcd).arg("--version").output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.lines().next().and_then(|it| it.rsplit(' ').next());
    let (name, tag) = ("localhost/tombolo-etcd", version.unwrap_or("unknown"));
    let dockerfile = format!("FROM scratch\nCOPY etcd {PROGRAM}\n");
    let image = GenericBuildableImage::new(name, tag)
        .with_dockerfile_string(dockerfile)
        .with_file(&etcd, "etcd");
    let options = BuildImageOptions::new().with_skip_if_exists(true);
    let built = image.build_image_with(options).await;
    built.map(drop).map_err(|source| ContainerError::Image {
        etcd,
        source: Box::new(source),
    })?;
    Ok((name.to_owned(), tag.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_named_with_its_tag() {
        let named = split("registry.example:5000/etcd:3.6.8-0").unwrap();

        assert_eq!(
            named,
            (
                "registry.example:5000/etcd".to_owned(),
                "3.6.8-0".to_owned()
            )
        );
        for name in ["etcd", "registry.example:5000/etcd"] {
            let error = split(name).unwrap_err().to_string();
            assert!(
                error.contains(name) && error.contains("TOMBOLO_ETCD_IMAGE"),
                "{error}"
            );
        }
    }
}
