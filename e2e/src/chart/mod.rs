//! The Helm chart, as `helm` makes it: rendered manifests, and installations in a cluster.

pub mod helm;
pub mod installation;
pub mod manifests;
pub mod pods;
pub mod site;

pub use helm::{Error, Helm};
pub use installation::{Account, Installation};
pub use manifests::Manifests;
pub use site::Site;
