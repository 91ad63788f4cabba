//! Between clusters: what this cluster publishes and what its peers say.

pub mod config_dir;
mod failure_log;
mod gaps;
pub mod inquiry;
mod ledger;
pub mod metrics;
mod peer;
mod peering;
pub mod peers;
pub mod publisher;
pub mod reflector;
mod remote_cluster;
mod reservations;
mod rows;
mod statuses;
pub mod tables;
mod tallies;
pub mod users;
