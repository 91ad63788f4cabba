//! Edits Corefiles: has CoreDNS serve the ClusterSet's zone, and takes that back.
//!
//! Pure. Whatever is not part of the edit stays byte for byte. What is not understood is refused with its line and what to do;
//! nothing is guessed. The zone comes after the cluster's own in the line of the plugin `kubernetes`: CoreDNS makes reverse names
//! of the first zone there, so that before it the names of all addresses would change.

mod edit;
mod lexer;
mod node_local;
mod parse;
mod refusal;
mod undo;
mod zone;

pub use self::{
    edit::{Edited, Note, configure, reloads},
    node_local::{Forwarding, configure_node_local, undo_node_local},
    refusal::Refusal,
    undo::undo,
    zone::{BadZone, Zone, Zones},
};

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
