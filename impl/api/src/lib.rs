//! The Multi-Cluster Services API of sig-multicluster (KEP-1645) as Rust types, and the names that go with it.
//!
//! Shared by the product and the conformance suite; holds no behaviour.

pub mod about;
pub mod conditions;
pub mod crds;
pub mod keys;
pub mod v1beta1;

/// API group of ServiceExport and ServiceImport.
pub const GROUP: &str = "multicluster.x-k8s.io";
