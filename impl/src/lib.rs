//! Tombolo, the library behind the one binary: the shells around `tombolo-core`.

pub mod certificate;
pub mod cli;
mod clock;
pub mod cluster;
pub mod kvstore;
pub mod mesh;
pub mod operator;
pub mod queue;
pub mod status;
pub mod telemetry;
