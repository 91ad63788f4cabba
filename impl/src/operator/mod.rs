//! The operator: what peers export becomes ServiceImports, derived Services and EndpointSlices of this cluster.
//!
//! Six controllers, each level-triggered: an event marks a name dirty, the work reads current state, decides in a pure
//! function and writes the difference, if there is one. [`apply`] is the only module that writes.

pub mod apply;
pub mod crds;
