//! Scenarios over whole clusters: real API servers, real etcd, Tombolo's roles as processes.
//!
//! Nothing here looks inside the product: only at API objects, at the records in the mesh's etcd, at logs and metrics.

pub mod chart;
pub mod demo;
pub mod events;
pub mod hand_written;
pub mod installed;
pub mod manifest;
pub mod mock_peers;
pub mod mutants;
pub mod records;
pub mod replicas;
pub mod scenarios;
pub mod scene;
pub mod stats;
pub mod traffic;
pub mod upstream;
pub mod view;
