//! Flags that say how peers are followed, equal for every role that follows them.

use std::time::Duration;

use clap::Args;

use super::args::duration;
use crate::mesh::peers::{Budget, Options};

/// How peers are followed.
#[derive(Debug, Clone, Args)]
pub struct PeerArgs {
    /// How long a peer may not be heard of (no connection, cluster-config or heartbeat) before its services, exports and
    /// EndpointSlices are removed here, for instance `15m`; 0s for ever. They are shown again when it is back.
    #[arg(long, default_value = "0s", value_parser = duration)]
    pub clustermesh_cache_ttl: Duration,
    /// How long records stay after a peer withdrew the capability to publish them, for instance by a downgrade; 0s for ever.
    #[arg(long, default_value = "1h", value_parser = duration)]
    pub clustermesh_withdrawn_ttl: Duration,
    /// Most records of one peer, of all kinds together. What is beyond is not taken over; what was taken over stays.
    #[arg(long, default_value_t = Budget::default().records)]
    pub peer_max_records: usize,
    /// Most bytes of the records of one peer, keys and values, of all kinds together.
    #[arg(long, default_value_t = Budget::default().bytes)]
    pub peer_max_bytes: usize,
    /// Most changes per second that are taken from one peer, on average; ten times as many at once. What is beyond waits.
    #[arg(
        long,
        default_value_t = Budget::default().events_per_second,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub peer_max_events_per_second: u32,
}

impl PeerArgs {
    /// The flags' meaning.
    pub(super) fn options(&self) -> Options {
        Options {
            cache_ttl: self.clustermesh_cache_ttl,
            withdrawn_for: self.clustermesh_withdrawn_ttl,
            budget: Budget {
                records: self.peer_max_records,
                bytes: self.peer_max_bytes,
                events_per_second: self.peer_max_events_per_second,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Flags {
        #[command(flatten)]
        peers: PeerArgs,
    }

    #[test]
    fn the_defaults_are_those_of_the_options() {
        let flags = Flags::parse_from(["tombolo"]);

        assert_eq!(flags.peers.options(), Options::default());
    }

    #[test]
    fn a_rate_of_nothing_is_refused() {
        let outcome = Flags::try_parse_from(["tombolo", "--peer-max-events-per-second", "0"]);

        assert!(outcome.unwrap_err().to_string().contains("1.."));
    }
}
