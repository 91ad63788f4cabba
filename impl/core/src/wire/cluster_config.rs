//! `cluster-config`: the id of a cluster and what it can do. Cilium, `CiliumClusterConfig`.

use serde::{Deserialize, Serialize};

use super::{Error, cluster_service, go_json, json, key};
use crate::names::{ClusterId, ClusterName};

/// What a cluster says of itself before it says anything else. Serialised only to show it to users; the stored bytes are
/// [`encode`]'s.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterConfig {
    /// Its numeric id.
    pub id: ClusterId,
    /// What it can do.
    pub capabilities: Capabilities,
}

/// What a cluster can do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Capabilities {
    /// Whether it writes canaries; without, what is listed at once is taken as complete.
    pub synced_canaries: bool,
    /// Whether this is a copy in another cluster's store, with the data under `cilium/cache`.
    pub cached: bool,
    /// How many clusters its mesh may have (255 or 511); 0 when it does not say.
    pub max_connected_clusters: u32,
    /// Whether it exports by MCS-API; absent when it predates that. Readers follow its exports when it is present.
    pub service_exports_enabled: Option<bool>,
    /// Whether it publishes EndpointSlices.
    pub endpoint_slices_export_mode: EndpointSlicesExportMode,
}

/// Which of the two forms of global services a cluster publishes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum EndpointSlicesExportMode {
    /// `services` records only; also what clusters older than 1.20 mean by saying nothing.
    #[default]
    ServicesOnly,
    /// Both.
    ServicesAndEndpointSlices,
    /// EndpointSlices only: there is no `services` canary to wait for.
    EndpointSlicesOnly,
    /// A mode of a later version, as written, at most 80 characters of it.
    Other(String),
}

impl EndpointSlicesExportMode {
    fn as_str(&self) -> &str {
        match self {
            Self::ServicesOnly => "",
            Self::ServicesAndEndpointSlices => "services-and-endpointslices",
            Self::EndpointSlicesOnly => "endpointslices-only",
            Self::Other(text) => text,
        }
    }

    fn parse(text: &str) -> Self {
        match text {
            "" => Self::ServicesOnly,
            "services-and-endpointslices" => Self::ServicesAndEndpointSlices,
            "endpointslices-only" => Self::EndpointSlicesOnly,
            _ => Self::Other(super::clip(text)),
        }
    }
}

impl From<String> for EndpointSlicesExportMode {
    fn from(text: String) -> Self {
        Self::parse(&text)
    }
}

impl From<EndpointSlicesExportMode> for String {
    fn from(mode: EndpointSlicesExportMode) -> Self {
        mode.as_str().to_owned()
    }
}

/// Key and value of a cluster's configuration.
///
/// ```
/// use tombolo_core::wire::cluster_config::{Capabilities, ClusterConfig, encode};
/// let config = ClusterConfig {
///     id: 7.try_into().unwrap(),
///     capabilities: Capabilities {
///         synced_canaries: true,
///         max_connected_clusters: 255,
///         service_exports_enabled: Some(true),
///         ..Capabilities::default()
///     },
/// };
/// let (key, value) = encode(&"paris".try_into().unwrap(), &config);
/// assert_eq!(key, "cilium/cluster-config/paris");
/// assert_eq!(
///     value,
///     br#"{"id":7,"capabilities":{"syncedCanaries":true,"maxConnectedClusters":255,"serviceExportsEnabled":true}}"#
/// );
/// ```
pub fn encode(cluster: &ClusterName, config: &ClusterConfig) -> (String, Vec<u8>) {
    let mut out = String::new();
    let can = &config.capabilities;
    go_json::object(&mut out, |record| {
        record.literal("id", config.id);
        record.object("capabilities", |object| {
            for (name, value) in [
                ("syncedCanaries", can.synced_canaries),
                ("cached", can.cached),
            ] {
                if value {
                    object.literal(name, true);
                }
            }
            if can.max_connected_clusters > 0 {
                object.literal("maxConnectedClusters", can.max_connected_clusters);
            }
            if let Some(enabled) = can.service_exports_enabled {
                object.literal("serviceExportsEnabled", enabled);
            }
            let mode = can.endpoint_slices_export_mode.as_str();
            if !mode.is_empty() {
                object.text("endpointSlicesExportMode", mode);
            }
        });
    });
    (key::cluster_config_key(cluster), out.into_bytes())
}

/// Reads a cluster's configuration. Whether the id is free, and whether the limits match, is for the reader to say.
pub fn decode(bytes: &[u8]) -> Result<ClusterConfig, Error> {
    let json = json::parse(bytes)?;
    let record = json.members("the value")?;
    let id = record.integer("id")?.unwrap_or(0);
    let can = record.members("capabilities")?;
    let max = can.integer("maxConnectedClusters")?.unwrap_or(0);
    Ok(ClusterConfig {
        id: cluster_service::parse_cluster_id("id", id)?,
        capabilities: Capabilities {
            synced_canaries: can.boolean("syncedCanaries")?,
            cached: can.boolean("cached")?,
            max_connected_clusters: u32::try_from(max).map_err(|_| Error::Type {
                field: "maxConnectedClusters",
                expected: "a 32-bit number",
            })?,
            service_exports_enabled: can.optional_boolean("serviceExportsEnabled")?,
            endpoint_slices_export_mode: EndpointSlicesExportMode::parse(
                can.text("endpointSlicesExportMode")?,
            ),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::wire::testkit::fixtures;

    #[rstest]
    #[case::recorded("c1")]
    #[case::recorded_too("c2")]
    fn recorded_configurations_come_back_byte_for_byte(#[case] cluster: &str) {
        let file = fixtures().join(format!("00-mesh/{cluster}-mesh-keys.json"));
        let keys: serde_json::Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        let recorded = keys
            .as_array()
            .unwrap()
            .iter()
            .find(|entry| {
                entry["key"]
                    .as_str()
                    .unwrap()
                    .starts_with(key::CLUSTER_CONFIG)
            })
            .unwrap();
        let value = recorded["value"].as_str().unwrap();

        let config = decode(value.as_bytes()).unwrap();
        let (key, bytes) = encode(&cluster.try_into().unwrap(), &config);

        assert_eq!(key, recorded["key"].as_str().unwrap());
        assert_eq!(String::from_utf8(bytes).unwrap(), value);
    }

    #[rstest]
    #[case::absent("{\"id\":1}", None)]
    #[case::null(r#"{"id":1,"capabilities":{"serviceExportsEnabled":null}}"#, None)]
    #[case::off(
        r#"{"id":1,"capabilities":{"serviceExportsEnabled":false}}"#,
        Some(false)
    )]
    fn whether_exports_are_off_differs_from_not_known(
        #[case] text: &str,
        #[case] expected: Option<bool>,
    ) {
        let config = decode(text.as_bytes()).unwrap();

        assert_eq!(config.capabilities.service_exports_enabled, expected);
    }

    #[test]
    fn a_mode_of_a_later_version_is_kept_and_an_unknown_capability_ignored() {
        let text = br#"{"id":1,"capabilities":{"endpointSlicesExportMode":"something-new","newCapability":{"x":1}}}"#;

        let config = decode(text).unwrap();

        let mode = config.capabilities.endpoint_slices_export_mode;
        assert_eq!(
            mode,
            EndpointSlicesExportMode::Other("something-new".to_owned())
        );
    }

    #[rstest]
    #[case::zero("{}", "ClusterID 0 is reserved")]
    #[case::negative(r#"{"id":-1}"#, "id: expected a number from 1 to 511")]
    #[case::too_large(
        r#"{"id":512}"#,
        "cluster id \"512\" is not valid: expected a number from 1 to 511"
    )]
    fn ids_out_of_range_are_refused(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(decode(text.as_bytes()).unwrap_err().to_string(), expected);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }

        #[test]
        fn encode_then_decode_gives_the_configuration_back(
            id in 1..=511_u32,
            flags in any::<[bool; 2]>(),
            max in any::<u32>(),
            exports in proptest::option::of(any::<bool>()),
            mode in "[a-z<>&-]{0,30}",
        ) {
            let config = ClusterConfig {
                id: id.try_into().unwrap(),
                capabilities: Capabilities {
                    synced_canaries: flags[0],
                    cached: flags[1],
                    max_connected_clusters: max,
                    service_exports_enabled: exports,
                    endpoint_slices_export_mode: EndpointSlicesExportMode::parse(&mode),
                },
            };

            let (_, bytes) = encode(&"paris".try_into().unwrap(), &config);

            prop_assert_eq!(decode(&bytes), Ok(config));
        }
    }
}
