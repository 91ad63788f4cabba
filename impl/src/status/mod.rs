//! What a running process says of itself when it is asked (`/v1/status`), and what is to be made of it.
//!
//! No word of comfort without proof: how far a store is, is read from the store when the question comes, and a follower counts as
//! current only when it has shown, after the question, that it has reached that point. What was not found out is unknown, and
//! unknown is never green.

pub mod answer;
pub mod judge;
pub mod pages;
pub mod remote_cluster;
#[cfg(test)]
pub(crate) mod testkit;

pub use answer::Answer;
pub use judge::{Finding, Level, Verdict};
