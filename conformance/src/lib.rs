//! Conformance cases for the Multi-Cluster Services API (KEP-1645), for any implementation.
//!
//! A case sees nothing but the API servers of its clusters, and what pods of its own see: it must never look into a store, a log or
//! a process of the implementation, and this crate must never depend on one. Cases are values in one array per file, see [`cases`].

pub mod budgets;
pub mod bugs;
pub mod case;
pub mod cases;
mod changes;
pub mod cli;
pub mod clusters;
mod connection;
pub mod context;
pub mod coverage;
pub mod evidence;
pub mod exec;
pub mod expect;
pub mod lookup;
pub mod objects;
pub mod report;
pub mod rules;
pub mod suite;
pub mod traffic;
pub mod upstream;
pub mod workloads;
