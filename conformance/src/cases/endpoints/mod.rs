//! Endpoints of imports, as EndpointSlices: which there are, how they are marked, and where traffic would go.
//!
//! "Traffic" is judged from API objects: the ready endpoints behind the derived Service, per port.

pub mod pods;
pub mod ports;
pub mod presence;
pub mod slices;
pub mod state;
pub mod traffic;
