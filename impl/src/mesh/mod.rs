//! Between clusters: what this cluster publishes and what its peers say.

pub mod tables;
