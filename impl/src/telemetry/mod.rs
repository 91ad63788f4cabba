//! How a running process is seen: logs, metrics, health. Nothing here decides anything.

pub mod checks;
pub mod health;
pub mod logs;
pub mod pulse;
pub mod series;
