//! Why kind clusters could not be made.

use crate::Component;

/// Any failure of provider `kind` besides those of its commands.
#[derive(Debug, thiserror::Error)]
pub enum KindError {
    /// Nothing to make nodes of.
    #[error(
        "node image {image}: it is not in the Docker engine and cannot be pulled; name one that is in KIND_NODE_IMAGE, or, where \
         there is no registry, make one with `kind/node-image`: {why}"
    )]
    NodeImage {
        /// Its name.
        image: String,
        /// What Docker said.
        why: String,
    },
    /// No seed.
    #[error("KIND_NODE_SEED={}: {source}; `kind/node-image` makes it", path.display())]
    Seed {
        /// What was named.
        path: std::path::PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The engine told something else than the addresses of a node.
    #[error("{node}: the engine says {said:?} of its addresses; one of each family is needed")]
    Addresses {
        /// Name of the node.
        node: String,
        /// What was said.
        said: String,
    },
    /// The kubeconfig of kind does not lead to a port of the engine.
    #[error("{cluster}: the API server is at {url}, which is no address of the engine")]
    Server {
        /// Name of the cluster.
        cluster: String,
        /// Its URL.
        url: String,
    },
    /// A signal was not sent.
    #[error("{node}: cannot send {signal} to {component}: {why}")]
    Signal {
        /// Name of the node.
        node: String,
        /// What was sent.
        signal: &'static str,
        /// To whom.
        component: Component,
        /// What happened.
        why: String,
    },
}
