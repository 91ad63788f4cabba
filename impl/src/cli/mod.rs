//! The command line: what a user types and what becomes of it.
//!
//! Exit codes: 0 done, 1 failed, 2 bad input (a flag, a file, a kubeconfig).

pub mod args;
