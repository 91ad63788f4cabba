//! Where imports are, for how long, and what is in them.

pub mod content;
pub mod life;
pub mod metadata;
pub mod settings;
