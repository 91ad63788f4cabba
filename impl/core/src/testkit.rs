//! Builders for tests, with defaults that read as English.

use jiff::Timestamp;

use crate::{
    names::{ClusterName, NamespacedName},
    service::{
        ExportSpec, ImportType, InternalTrafficPolicy, IpFamily, Protocol, ServicePort,
        SessionAffinity, TrafficDistribution,
    },
};

/// An export of a ClusterSetIP service `shop/web` on IPv4, without ports, made by `cluster` in second 0 of 1970.
pub(crate) fn export_from(cluster: &str) -> ExportSpec {
    ExportSpec {
        cluster: ClusterName::try_from(cluster).unwrap(),
        name: NamespacedName::parse("shop", "web").unwrap(),
        created_at: Timestamp::UNIX_EPOCH,
        labels: std::collections::BTreeMap::new(),
        annotations: std::collections::BTreeMap::new(),
        ports: Vec::new(),
        import_type: ImportType::ClusterSetIp,
        session_affinity: SessionAffinity::None,
        session_affinity_timeout_seconds: None,
        ip_families: vec![IpFamily::V4],
        internal_traffic_policy: Some(InternalTrafficPolicy::Cluster),
        traffic_distribution: None,
    }
}

/// A TCP port.
pub(crate) fn tcp(name: &str, port: u16) -> ServicePort {
    ServicePort {
        name: name.try_into().unwrap(),
        protocol: Protocol::Tcp,
        app_protocol: None,
        port,
    }
}

/// A UDP port.
pub(crate) fn udp(name: &str, port: u16) -> ServicePort {
    ServicePort {
        protocol: Protocol::Udp,
        ..tcp(name, port)
    }
}

impl ServicePort {
    pub(crate) fn speaking(mut self, app_protocol: &str) -> Self {
        self.app_protocol = Some(app_protocol.to_owned());
        self
    }
}

impl ExportSpec {
    pub(crate) fn created_at(mut self, second: i64) -> Self {
        self.created_at = Timestamp::from_second(second).unwrap();
        self
    }

    pub(crate) fn with_ports(mut self, ports: impl IntoIterator<Item = ServicePort>) -> Self {
        self.ports = ports.into_iter().collect();
        self
    }

    pub(crate) fn headless(mut self) -> Self {
        self.import_type = ImportType::Headless;
        self
    }

    pub(crate) fn with_client_ip_affinity(
        mut self,
        timeout_seconds: impl Into<Option<i32>>,
    ) -> Self {
        self.session_affinity = SessionAffinity::ClientIp;
        self.session_affinity_timeout_seconds = timeout_seconds.into();
        self
    }

    pub(crate) fn with_label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn with_annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn with_families(mut self, families: &[IpFamily]) -> Self {
        self.ip_families = families.to_vec();
        self
    }

    pub(crate) fn with_internal_policy(
        mut self,
        policy: impl Into<Option<InternalTrafficPolicy>>,
    ) -> Self {
        self.internal_traffic_policy = policy.into();
        self
    }

    pub(crate) fn with_distribution(mut self, distribution: TrafficDistribution) -> Self {
        self.traffic_distribution = Some(distribution);
        self
    }
}
