//! Between clusters: what this cluster publishes and what its peers say.

mod peer;
pub mod peers;
pub mod publisher;
pub mod tables;
