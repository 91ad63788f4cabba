//! This process's own cluster: its API server's client and the caches of its objects.
//!
//! Reads only. What is written goes through `operator::apply`.

pub mod cache;
pub mod client;
pub mod facts;
pub mod heard;
pub mod identity;
pub mod reach;
