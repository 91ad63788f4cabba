//! Services as the mesh sees them: ports, types, policies, what one cluster exports and which backends it has.
//!
//! Domain types only. How they look in etcd is the business of `wire`, how they look in Kubernetes that of the shell.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use jiff::Timestamp;

use crate::names::{ClusterId, ClusterName, NamespacedName, PortName};

/// Transport protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP, the default of Kubernetes.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// IP family of an address or a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Type of a ServiceImport (`KEP-1645#50`, `KEP-1645#51`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImportType {
    /// Reached by a virtual IP.
    ClusterSetIp,
    /// No virtual IP, consumed by DNS.
    Headless,
}

/// Session affinity of a Service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SessionAffinity {
    /// Connections go anywhere.
    #[default]
    None,
    /// Connections of one client address stay on one backend.
    ClientIp,
}

/// Internal traffic policy of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InternalTrafficPolicy {
    /// All endpoints, the default of Kubernetes.
    Cluster,
    /// Endpoints on the client's node only.
    Local,
}

/// Traffic distribution of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrafficDistribution {
    /// Prefer endpoints in the same zone (older spelling).
    PreferClose,
    /// Prefer endpoints in the same zone.
    PreferSameZone,
    /// Prefer endpoints on the same node.
    PreferSameNode,
}

macro_rules! spelled {
    ($type:ident { $($variant:ident = $text:literal),+ $(,)? }) => {
        impl $type {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The spelling that Kubernetes and Cilium use.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }

            /// The value with exactly this spelling, if there is one.
            pub fn parse(text: &str) -> Option<Self> {
                match text {
                    $($text => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

spelled!(Protocol { Tcp = "TCP", Udp = "UDP", Sctp = "SCTP" });
spelled!(IpFamily { V4 = "IPv4", V6 = "IPv6" });
spelled!(ImportType { ClusterSetIp = "ClusterSetIP", Headless = "Headless" });
spelled!(SessionAffinity { None = "None", ClientIp = "ClientIP" });
spelled!(InternalTrafficPolicy { Cluster = "Cluster", Local = "Local" });
spelled!(TrafficDistribution {
    PreferClose = "PreferClose",
    PreferSameZone = "PreferSameZone",
    PreferSameNode = "PreferSameNode",
});

impl IpFamily {
    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

/// A port of an exported or imported service. There is no target port: endpoints are matched by port name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServicePort {
    /// Name, unique in its service; empty for an unnamed port.
    pub name: PortName,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Application protocol, if stated. An empty text counts as absent.
    pub app_protocol: Option<String>,
    /// Port number, 1 to 65535.
    pub port: u16,
}

/// Number and protocol of a frontend or backend port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct L4Port {
    /// Transport protocol.
    pub protocol: Protocol,
    /// Port number.
    pub port: u16,
}

/// What one cluster exports under one name: the content of a `serviceexports` record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportSpec {
    /// The exporting cluster.
    pub cluster: ClusterName,
    /// The exported service.
    pub name: NamespacedName,
    /// Creation time of the ServiceExport, which decides precedence (`KEP-1645#141`).
    pub created_at: Timestamp,
    /// `spec.exportedLabels` of the ServiceExport (`KEP-1645#17`).
    pub labels: BTreeMap<String, String>,
    /// `spec.exportedAnnotations` of the ServiceExport (`KEP-1645#17`).
    pub annotations: BTreeMap<String, String>,
    /// Ports, in the order of the Service.
    pub ports: Vec<ServicePort>,
    /// ClusterSetIP or Headless.
    pub import_type: ImportType,
    /// Session affinity.
    pub session_affinity: SessionAffinity,
    /// Session affinity time-out, in seconds, if stated.
    pub session_affinity_timeout_seconds: Option<i32>,
    /// IP families in the Service's order; empty for exporters that do not tell (Cilium up to 1.18).
    pub ip_families: Vec<IpFamily>,
    /// Internal traffic policy, if stated. Absent means Cluster.
    pub internal_traffic_policy: Option<InternalTrafficPolicy>,
    /// Traffic distribution, if stated.
    pub traffic_distribution: Option<TrafficDistribution>,
}

/// Zone of a backend and the zones it is meant for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BackendZone {
    /// The zone the backend is in.
    pub zone: String,
    /// Topology hints; empty without hints.
    pub for_zones: Vec<String>,
}

/// A global service of one cluster with its backends: the content of a `services` record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterService {
    /// The cluster that has the service.
    pub cluster: ClusterName,
    /// Its numeric id.
    pub cluster_id: ClusterId,
    /// The service.
    pub name: NamespacedName,
    /// Virtual IPs and their ports, by port name; empty for headless services.
    pub frontends: BTreeMap<IpAddr, BTreeMap<PortName, L4Port>>,
    /// Backend addresses and their ports, by the endpoint's port name.
    pub backends: BTreeMap<IpAddr, BTreeMap<PortName, L4Port>>,
    /// Host names of backends that have one.
    pub hostnames: BTreeMap<IpAddr, String>,
    /// Zones of backends that have one.
    pub zones: BTreeMap<IpAddr, BackendZone>,
    /// Labels of the Service.
    pub labels: BTreeMap<String, String>,
    /// Selector of the Service.
    pub selector: BTreeMap<String, String>,
    /// Whether other clusters may use the backends. A record that says no counts as deleted.
    pub shared: bool,
}
