//! Pods without a node behind them: objects whose status the testbed writes, so that the real EndpointSlice controller
//! makes EndpointSlices of them.

use std::{net::IpAddr, sync::atomic::Ordering};

use k8s_openapi::api::core::v1::{Container, ContainerPort, Node, Pod, PodSpec};
use kube::{
    Api,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{Cluster, Error, ProviderError, api::ControlPlane};

/// Name of the node that all fake pods are on.
pub const FAKE_NODE: &str = "fake";

/// Label of the node that names its zone; in cluster `a` the zone is `zone-a`.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// What a fake pod is like. By default: ready, no ports, one IPv4 and one IPv6 address that no other pod has.
#[derive(Clone, Debug, Default)]
pub struct PodOptions {
    ips: Option<Vec<IpAddr>>,
    unready: bool,
    ports: Vec<ContainerPort>,
    hostname: Option<String>,
    subdomain: Option<String>,
}

impl PodOptions {
    /// A named TCP port.
    #[must_use]
    pub fn tcp(self, name: &str, port: u16) -> Self {
        self.port(name, "TCP", port)
    }

    /// A named UDP port.
    #[must_use]
    pub fn udp(self, name: &str, port: u16) -> Self {
        self.port(name, "UDP", port)
    }

    fn port(mut self, name: &str, protocol: &str, port: u16) -> Self {
        self.ports.push(ContainerPort {
            name: Some(name.to_owned()),
            container_port: port.into(),
            protocol: Some(protocol.to_owned()),
            ..Default::default()
        });
        self
    }

    /// Not ready at first.
    #[must_use]
    pub fn unready(mut self) -> Self {
        self.unready = true;
        self
    }

    /// These addresses instead of assigned ones; at most one of each family.
    #[must_use]
    pub fn ips(mut self, ips: impl IntoIterator<Item = IpAddr>) -> Self {
        self.ips = Some(ips.into_iter().collect());
        self
    }

    /// Name in DNS; `subdomain` is the name of a headless Service.
    #[must_use]
    pub fn hostname(mut self, hostname: &str, subdomain: &str) -> Self {
        self.hostname = Some(hostname.to_owned());
        self.subdomain = Some(subdomain.to_owned());
        self
    }
}

/// A fake pod that exists in a cluster until [`FakePod::delete`].
#[derive(Clone, Debug)]
pub struct FakePod<'a> {
    cluster: &'a Cluster,
    api: Api<Pod>,
    name: String,
    ips: Vec<IpAddr>,
}

impl Cluster {
    /// Makes sure that the node of the fake pods exists: without it the EndpointSlice controller skips them.
    pub async fn fake_node(&self) -> Result<(), Error> {
        self.fake_plane()?;
        self.fake_node
            .get_or_try_init(|| self.create_node())
            .await?;
        Ok(())
    }

    /// The control plane, when none of its controllers looks after nodes.
    fn fake_plane(&self) -> Result<&ControlPlane, ProviderError> {
        let operation = "hold fake pods";
        if self.nodes(operation).is_ok() {
            return Err(self.unsupported(operation, "api"));
        }
        self.plane(operation)
    }

    async fn create_node(&self) -> Result<(), Error> {
        let zone = format!("zone-{}", self.name);
        let labels = [
            (ZONE_LABEL, zone.as_str()),
            ("kubernetes.io/hostname", FAKE_NODE),
        ];
        let node = Node {
            metadata: metadata(FAKE_NODE, &labels),
            ..Default::default()
        };
        let api = Api::<Node>::all(self.client());
        let failed = |error| self.api_error(format!("create node {FAKE_NODE}"), error);
        match api.create(&PostParams::default(), &node).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(failed(error)),
        }
        let status = json!({ "status": {
            "conditions": [{ "type": "Ready", "status": "True", "reason": "Fake" }],
            "allocatable": { "cpu": "8", "memory": "8Gi", "pods": "1000" },
            "capacity": { "cpu": "8", "memory": "8Gi", "pods": "1000" },
        }});
        let patched = api
            .patch_status(FAKE_NODE, &PatchParams::default(), &Patch::Merge(&status))
            .await;
        patched.map(drop).map_err(failed)
    }

    /// Creates a pod that runs nowhere and says that it does.
    pub async fn fake_pod(
        &self,
        namespace: &str,
        name: &str,
        labels: &[(&str, &str)],
        options: PodOptions,
    ) -> Result<FakePod<'_>, Error> {
        let plane = self.fake_plane()?;
        self.fake_node().await?;
        let ips = options.ips.unwrap_or_else(|| {
            let number = self.pods.fetch_add(1, Ordering::Relaxed) % u32::from(u16::MAX);
            plane
                .network
                .pod(u16::try_from(number).unwrap_or_default())
                .to_vec()
        });
        let container = Container {
            name: "fake".to_owned(),
            image: Some("fake".to_owned()),
            ports: Some(options.ports),
            ..Default::default()
        };
        let spec = PodSpec {
            node_name: Some(FAKE_NODE.to_owned()),
            containers: vec![container],
            hostname: options.hostname,
            subdomain: options.subdomain,
            automount_service_account_token: Some(false),
            ..Default::default()
        };
        let pod = Pod {
            metadata: metadata(name, labels),
            spec: Some(spec),
            status: None,
        };
        let api = Api::namespaced(self.client(), namespace);
        let created = api.create(&PostParams::default(), &pod).await;
        created.map_err(|error| self.api_error(format!("create pod {namespace}/{name}"), error))?;
        let pod = FakePod {
            cluster: self,
            api,
            name: name.to_owned(),
            ips,
        };
        pod.set_ready(!options.unready).await?;
        Ok(pod)
    }
}

impl FakePod<'_> {
    /// Name of the pod.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its addresses.
    pub fn ips(&self) -> &[IpAddr] {
        &self.ips
    }

    /// Writes the status of a running pod that is, or is not, ready.
    pub async fn set_ready(&self, ready: bool) -> Result<(), Error> {
        let ready = if ready { "True" } else { "False" };
        let now = jiff::Timestamp::now()
            .round(jiff::Unit::Second)
            .unwrap_or_default();
        let condition =
            |kind, status| json!({ "type": kind, "status": status, "lastTransitionTime": now });
        let status = json!({ "status": {
            "phase": "Running",
            "podIP": self.ips.first(),
            "podIPs": self.ips.iter().map(|ip| json!({ "ip": ip })).collect::<Vec<_>>(),
            "conditions": [
                condition("PodScheduled", "True"),
                condition("Initialized", "True"),
                condition("ContainersReady", ready),
                condition("Ready", ready),
            ],
        }});
        let patch = Patch::Merge(&status);
        let patched = self
            .api
            .patch_status(&self.name, &PatchParams::default(), &patch)
            .await;
        patched
            .map(drop)
            .map_err(|error| self.failed("write the status of", error))
    }

    /// Removes the pod at once: nobody is there who would end it gracefully.
    pub async fn delete(self) -> Result<(), Error> {
        let deleted = self
            .api
            .delete(&self.name, &DeleteParams::default().grace_period(0))
            .await;
        deleted
            .map(drop)
            .map_err(|error| self.failed("delete", error))
    }

    fn failed(&self, action: &str, error: kube::Error) -> Error {
        self.cluster
            .api_error(format!("{action} pod {}", self.name), error)
    }
}

fn metadata(name: &str, labels: &[(&str, &str)]) -> ObjectMeta {
    let labels = labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(labels.collect()),
        ..Default::default()
    }
}
