//! How a running process is seen: logs, metrics, health. Nothing here decides anything.

pub mod health;
pub mod logs;
