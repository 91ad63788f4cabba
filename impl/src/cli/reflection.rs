//! The part of the mesh role that copies what peers publish into this cluster's store, when it is switched on.

use std::path::PathBuf;

use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use super::{components::Component, role_args::MeshArgs, roles::OwnName};
use crate::{
    kvstore::etcd::EtcdStore,
    mesh::{
        config_dir,
        metrics::{self, Counterpart},
        peers::{LocalCluster, Statuses},
        reflector::{self, DRAIN_GRACE, Metrics, Patience, View},
    },
    telemetry::health::Health,
};

/// The part, before the process shows its metrics and gates.
pub(super) struct Reflection {
    args: MeshArgs,
    directory: PathBuf,
    metrics: Metrics,
    view: View,
    statuses: Statuses,
}

impl Reflection {
    /// The part, if the flags ask for it. An error when the directory of the peers cannot be read.
    pub(super) fn of(
        args: &MeshArgs,
        registry: &mut Registry,
    ) -> Result<Option<Self>, config_dir::Error> {
        let Some(directory) = &args.reflector.clustermesh_config else {
            return Ok(None);
        };
        config_dir::check(directory)?;
        let statuses = Statuses::default();
        statuses.register_metrics(registry);
        metrics::register(registry, &statuses, Counterpart::KvStoreMesh);
        Ok(Some(Self {
            args: args.clone(),
            directory: directory.clone(),
            metrics: Metrics::register(registry),
            view: View::default(),
            statuses,
        }))
    }

    /// The peers that are copied.
    pub(super) fn statuses(&self) -> Statuses {
        self.statuses.clone()
    }

    /// What is seen of the copies.
    pub(super) fn view(&self) -> View {
        self.view.clone()
    }

    /// The part, as it runs.
    pub(super) fn component(
        self,
        health: &Health,
        name: OwnName,
        store: EtcdStore,
        stop: CancellationToken,
    ) -> Component {
        let gate = health.gate("reflected");
        let run = async move {
            let Some(name) = name.get(&stop).await else {
                return Ok(());
            };
            let MeshArgs {
                cluster,
                lease_ttl,
                reflector: flags,
                peers,
                ..
            } = self.args;
            let local = LocalCluster {
                name,
                id: cluster.cluster_id,
                max_connected: cluster.max_connected_clusters,
            };
            let options = reflector::Options {
                config_dir: self.directory,
                local,
                peers: peers.options(),
                lease_ttl,
                drain_grace: (!flags.disable_drain_on_disconnection).then_some(DRAIN_GRACE),
                patience: Patience {
                    per_cluster: flags.per_cluster_ready_timeout,
                    global: flags.global_ready_timeout,
                },
                metrics: self.metrics,
                view: self.view,
                statuses: self.statuses,
                gate: Some(gate),
            };
            Ok(Box::pin(reflector::run(store, options, stop)).await?)
        };
        Component {
            name: "reflector",
            run: Box::pin(run),
        }
    }
}
