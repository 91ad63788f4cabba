//! Why a Corefile is left as it is.

use thiserror::Error;

/// Something in a Corefile that is not edited, with its line, counted from 1, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// A quoted word does not end.
    #[error("line {line}: a quote is opened and not closed; close it")]
    OpenQuote {
        /// Where.
        line: usize,
    },
    /// A block does not end.
    #[error("line {line}: a block is opened and not closed; close it with `}}`")]
    OpenBlock {
        /// Where.
        line: usize,
    },
    /// A server block without braces.
    #[error("line {line}: a server block without braces; put its plugins between `{{` and `}}`")]
    NoBraces {
        /// Where.
        line: usize,
    },
    /// A brace where none can be.
    #[error(
        "line {line}: a brace that does not open or close a block; put a blank before `{{`, and both at the end of a line"
    )]
    Brace {
        /// Where.
        line: usize,
    },
    /// A block on one line.
    #[error(
        "line {line}: something follows a brace on its line; put each plugin, option and `}}` on a line of its own"
    )]
    OneLine {
        /// Where.
        line: usize,
    },
    /// Nothing serves the cluster's zone.
    #[error(
        "no server block has the plugin kubernetes with the zone {zone}{found}; name the cluster's zone with --cluster-domain"
    )]
    NoKubernetes {
        /// The zone.
        zone: String,
        /// What there is instead, with lines.
        found: String,
    },
    /// The plugin is in a snippet.
    #[error(
        "line {line}: the plugin kubernetes is in a snippet, and which server blocks use it is not followed; put it into the server block, or add the zone {zone} and the option `multicluster {zone}` by hand"
    )]
    InSnippet {
        /// Where.
        line: usize,
        /// The ClusterSet's zone.
        zone: String,
    },
    /// The plugin names no zone.
    #[error(
        "line {line}: the plugin kubernetes names no zone and so serves every name; name them: `kubernetes {cluster} in-addr.arpa ip6.arpa`"
    )]
    NoZones {
        /// Where.
        line: usize,
        /// The cluster's zone.
        cluster: String,
    },
    /// The ClusterSet's zone stands before the cluster's.
    #[error(
        "line {line}: {zone} stands before {cluster}, so that reverse names of all Services end in {zone}; put it behind"
    )]
    Order {
        /// Where.
        line: usize,
        /// The ClusterSet's zone.
        zone: String,
        /// The cluster's zone.
        cluster: String,
    },
    /// Another block gets the questions.
    #[error(
        "line {line}: another server block takes the names in {zone}; remove it, or give it the plugin kubernetes with {zone} and `multicluster {zone}`"
    )]
    Taken {
        /// Where.
        line: usize,
        /// The ClusterSet's zone.
        zone: String,
    },
    /// The plugin that was there before CoreDNS 1.12.2.
    #[error(
        "line {line}: the external plugin multicluster serves names; with CoreDNS 1.12.2 or later remove it and run this again, with an earlier one there is nothing to do"
    )]
    ExternalPlugin {
        /// Where.
        line: usize,
    },
    /// The cache on nodes does not know the cluster's zone.
    #[error(
        "no server block is for {zone} with the plugin forward; add one for {clusterset} that forwards to the cluster's DNS"
    )]
    NotForwarded {
        /// The cluster's zone.
        zone: String,
        /// The ClusterSet's zone.
        clusterset: String,
    },
    /// What was configured is not to be found again.
    #[error(
        "the Corefile was changed since, and what was added is not to be told apart: {what}; take the zone {zone} and `multicluster {zone}` out by hand"
    )]
    Unrecognised {
        /// What differs.
        what: &'static str,
        /// The ClusterSet's zone.
        zone: String,
    },
}
