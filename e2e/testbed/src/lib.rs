//! Clusters to test on: real control planes, ways to break them, and waiting that explains itself.
//!
//! A test asks [`Testbed::shared`] or [`Testbed::start`] for clusters and gets [`kube::Client`]s, fake pods that the real
//! EndpointSlice controller turns into slices, Tombolo's roles as processes, and faults. Which clusters these are is the
//! choice of `TOMBOLO_CLUSTERS` (see [`Provider`]). Nothing here simulates an API server or etcd, and nothing falls back
//! to another provider, skips or pretends: what cannot be done is an error that says so.

mod api;
pub mod assets;
mod cluster;
mod component;
mod contexts;
mod error;
pub mod evidence;
mod forwarder;
mod namespaces;
mod peers;
mod pods;
mod probe;
mod process;
mod provider;
mod roles;
mod run;
mod testbed;
pub mod wait;

pub use api::{CertificateError, PortError};
pub use assets::{Assets, MissingAssets, MissingNodeAssets, NodeAssets};
pub use cluster::Cluster;
pub use component::{Component, ComponentError};
pub use error::Error;
pub use forwarder::Forwarder;
pub use peers::PeerError;
pub use pods::{FAKE_NODE, FakePod, PodOptions, ZONE_LABEL};
pub use process::ProcessError;
pub use provider::{Provider, ProviderError};
pub use roles::{Role, RoleError, tombolo};
pub use testbed::Testbed;
pub use wait::{WaitError, eventually, stays_for};
