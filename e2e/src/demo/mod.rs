//! The demo: two control planes, one mesh, and what a user of multi-cluster Services sees.

mod pods;
mod screen;
mod story;
mod table;

use std::path::PathBuf;

pub use self::story::{play, play_on};

/// What to show, and whether to stay.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory of the manifests.
    pub examples: PathBuf,
    /// Leave everything up at the end, until Ctrl-C.
    pub keep: bool,
    /// On clusters with nodes: real pods, which are asked as well.
    pub nodes: bool,
}
