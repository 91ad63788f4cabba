//! The operator: what peers export becomes ServiceImports, derived Services and EndpointSlices of this cluster.
//!
//! Five controllers, each level-triggered: an event marks a name dirty, the work reads current state, decides in a pure
//! function and writes the difference, if there is one. [`apply`] is the only module that writes.

pub mod apply;
pub mod conditions;
pub mod context;
pub mod crds;
pub mod derived_service;
pub mod endpoint_slice_mirror;
pub mod endpoint_slice_sync;
pub mod gauges;
pub mod leadership;
pub mod metrics;
pub mod remote;
mod run;
pub mod service_export;
pub mod service_import;
pub mod slices;
pub mod triggers;
pub mod virtual_ips;

#[cfg(test)]
mod testkit;

pub use run::{Error, OnReconcile, Options, run};
