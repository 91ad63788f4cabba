//! Certificates by `tombolo certs`, and a mesh that uses them: real etcd, real API servers, mutual TLS.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod certs;
mod certs_refused;
mod mesh;
mod processes;
mod program;
mod reflector;
