//! Names of zones, and which server block is for which.

use std::fmt;

use thiserror::Error;

/// A zone such as `clusterset.local`: lower case, without a dot at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone(String);

/// A zone that is none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "expected a domain such as clusterset.local: labels of letters, digits and hyphens (at most 63), joined by dots, 253 in all"
)]
pub struct BadZone;

impl Zone {
    /// The zone as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this zone, written by somebody, is the same.
    pub(super) fn is(&self, written: &str) -> bool {
        written.trim_end_matches('.').eq_ignore_ascii_case(&self.0)
    }
}

impl TryFrom<&str> for Zone {
    type Error = BadZone;

    fn try_from(text: &str) -> Result<Self, BadZone> {
        let text = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let letter = |c: u8| c.is_ascii_alphanumeric() || c == b'-';
        let label = |it: &str| {
            (1..=63).contains(&it.len())
                && !it.starts_with('-')
                && !it.ends_with('-')
                && it.bytes().all(letter)
        };
        if text.len() <= 253 && text.split('.').all(label) {
            Ok(Self(text))
        } else {
            Err(BadZone)
        }
    }
}

impl std::str::FromStr for Zone {
    type Err = BadZone;

    fn from_str(text: &str) -> Result<Self, BadZone> {
        Self::try_from(text)
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The two zones of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zones {
    /// Its own, `cluster.local`.
    pub cluster: Zone,
    /// The ClusterSet's, `clusterset.local`.
    pub clusterset: Zone,
}

/// What a server block is for: `[SCHEME://]ZONE[:PORT][,]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    /// `dns` and its like, or nothing.
    pub(super) scheme: String,
    /// The zone, lower case, `.` for every name.
    pub(super) zone: String,
    /// The port, or nothing.
    pub(super) port: String,
}

impl Key {
    /// Reads one. A comma at the end is none of it.
    pub(super) fn read(text: &str) -> Self {
        let text = text.trim_end_matches(',').to_ascii_lowercase();
        let (scheme, rest) = text.split_once("://").unwrap_or(("", &text));
        let is_port = |it: &str| !it.is_empty() && it.bytes().all(|c| c.is_ascii_digit());
        let (zone, port) = match rest.rsplit_once(':') {
            Some((zone, port)) if is_port(port) => (zone, port),
            Some(_) | None => (rest, ""),
        };
        let zone = match zone.trim_end_matches('.') {
            "" => ".",
            zone => zone,
        };
        Self {
            scheme: scheme.to_owned(),
            zone: zone.to_owned(),
            port: port.to_owned(),
        }
    }

    /// Where it listens.
    pub(super) fn listens(&self) -> (&str, &str) {
        let scheme = if self.scheme.is_empty() {
            "dns"
        } else {
            &self.scheme
        };
        let default = match scheme {
            "dns" => "53",
            "tls" | "quic" => "853",
            _ => "443",
        };
        (
            scheme,
            if self.port.is_empty() {
                default
            } else {
                &self.port
            },
        )
    }

    /// Of two keys that cover a name, the one with more gets it.
    pub(super) fn depth(&self) -> usize {
        if self.zone == "." { 0 } else { self.zone.len() }
    }

    /// Whether names in the zone are among those it is for.
    pub(super) fn covers(&self, zone: &Zone) -> bool {
        let zone = zone.as_str();
        let below = || {
            zone.strip_suffix(&self.zone)
                .is_some_and(|it| it.ends_with('.'))
        };
        self.zone == "." || zone == self.zone || below()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("cluster.local", Some("cluster.local"))]
    #[case("Cluster.Local.", Some("cluster.local"))]
    #[case("", None)]
    #[case(".", None)]
    #[case("a..b", None)]
    #[case("-a.b", None)]
    #[case("a b", None)]
    #[case("a.b {", None)]
    #[case("a_b.c", None)]
    fn zones_are_domains(#[case] text: &str, #[case] expected: Option<&str>) {
        let zone = Zone::try_from(text).ok();

        assert_eq!(zone.as_ref().map(Zone::as_str), expected);
    }

    #[rstest]
    #[case(".:53", "", ".", "53")]
    #[case(".", "", ".", "")]
    #[case(":5353", "", ".", "5353")]
    #[case("Cluster.local.:53,", "", "cluster.local", "53")]
    #[case("tls://cluster.local", "tls", "cluster.local", "")]
    #[case("10.0.0.0/8", "", "10.0.0.0/8", "")]
    fn keys_have_scheme_zone_and_port(
        #[case] text: &str,
        #[case] scheme: &str,
        #[case] zone: &str,
        #[case] port: &str,
    ) {
        let key = Key::read(text);

        assert_eq!((&*key.scheme, &*key.zone, &*key.port), (scheme, zone, port));
    }

    #[rstest]
    #[case(".:53", true)]
    #[case("local", true)]
    #[case("clusterset.local", true)]
    #[case("set.local", false)]
    #[case("cluster.local", false)]
    #[case("a.clusterset.local", false)]
    fn a_key_covers_what_is_below_it(#[case] key: &str, #[case] covers: bool) {
        let zone = Zone::try_from("clusterset.local").unwrap();

        assert_eq!(Key::read(key).covers(&zone), covers);
    }
}
