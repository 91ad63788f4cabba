//! Clusters to test on: real control planes, ways to break them, and waiting that explains itself.
//!
//! A test asks [`Testbed::shared`] or [`Testbed::start`] for clusters and gets [`kube::Client`]s, fake pods that the real
//! EndpointSlice controller turns into slices (with provider `local` real pods, and commands in them), Tombolo's roles as
//! processes, and faults. Which clusters these are is the choice of `TOMBOLO_CLUSTERS` (see [`Provider`]). Nothing here simulates an API server or etcd, and nothing falls back
//! to another provider, skips or pretends: what cannot be done is an error that says so.

mod api;
pub mod assets;
mod cluster;
mod command;
mod component;
#[cfg(feature = "containers")]
pub mod containers;
mod contexts;
mod dialer;
mod down;
mod engine;
mod error;
pub mod evidence;
mod exec;
mod forwarder;
mod interruption;
mod kind;
mod local;
#[cfg(feature = "containers")]
pub mod lone_etcd;
mod namespaces;
mod nodes;
mod own_address;
mod peers;
mod pods;
mod probe;
mod process;
mod provider;
mod records;
mod rights;
mod roles;
mod run;
mod testbed;
pub mod wait;
mod workload;

pub use api::{CertificateError, ClaimedPorts, PortError};
pub use assets::{Assets, MissingAssets, MissingNodeAssets, NodeAssets};
pub use cluster::Cluster;
pub use component::{Component, ComponentError};
pub use down::{Leftover, down};
pub use engine::{Engine, MissingEngine};
pub use error::Error;
pub use exec::ExecOutput;
pub use forwarder::Forwarder;
pub use interruption::{interruption, unless_interrupted};
pub use kind::{KindError, KindTools, MissingKind};
pub use local::LocalError;
pub use own_address::own_address;
pub use peers::PeerError;
pub use pods::{FAKE_NODE, FakePod, PodOptions, ZONE_LABEL};
pub use process::ProcessError;
pub use provider::{Provider, ProviderError};
pub use roles::{Role, RoleError, tombolo};
pub use testbed::Testbed;
pub use wait::{WaitError, eventually, patience, stays_for};
pub use workload::{CLIENT_IMAGE, SERVER_IMAGE};
