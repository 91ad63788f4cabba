//! The pure core of Tombolo: what the words mean and what follows from what.
//!
//! Names, identity, exports, merge, conditions, wire formats, evidence, diff. Nothing here performs I/O, reads a clock, draws a
//! random number or knows a Kubernetes client: time and identity come in as arguments, and equal inputs give equal outputs.

pub mod conditions;
pub mod diff;
pub mod evidence;
pub mod explain;
pub mod export;
pub mod families;
pub mod identity;
pub mod merge;
pub mod mutant;
pub mod names;
pub mod peer_status;
pub mod service;
pub mod wire;

#[cfg(test)]
mod testkit;
