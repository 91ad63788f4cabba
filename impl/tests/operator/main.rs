//! The operator on a real API server. What peers say comes from a table that the tests fill.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod at_rest;
mod bad_input;
mod definitions;
mod fake_peers;
mod importing;
mod leadership;
mod local;
mod namespaces;
mod orders;
mod repair;
mod restart;
mod statuses;
mod switches;
mod world;
