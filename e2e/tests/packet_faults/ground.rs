//! What all faults share: an installed mesh, traffic through it, and the table of what was measured.

use std::{sync::Mutex, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use comfy_table::Table;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt as _;
use tombolo_e2e::{
    installed::{Authorities, Mesh, objects},
    scenarios::Shared,
    traffic::{
        self, Traffic,
        sample::{self, Sample, Uptime},
    },
};
use tombolo_testbed::{Testbed, eventually};

use super::{A, B};

/// Longest time for a backend that left the Service during a fault to leave the rotation after the fault has ended.
pub(crate) const STALE: Duration = Duration::from_secs(30);

/// Longest time for a kubelet to start a container again, and for that to be ready.
const RESTART: Duration = Duration::from_mins(1);

/// A mesh and traffic through it.
pub(crate) struct Ground {
    pub(crate) mesh: Mesh,
    traffic: Traffic,
    rows: Mutex<Vec<[String; 6]>>,
}

/// One fault, from its beginning on.
pub(crate) struct Fault<'g> {
    ground: &'g Ground,
    name: &'static str,
    /// The cluster of the backend that leaves.
    cluster: usize,
    stale: String,
    begin: Uptime,
    retired: Uptime,
    healed: Uptime,
}

impl Shared for Ground {
    fn testbed(&self) -> &Testbed {
        self.mesh.testbed()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let rows = self.rows.get_mut().map(std::mem::take).unwrap_or_default();
        let mut table = Table::new();
        table.set_header([
            "fault",
            "lasted",
            "requests",
            "failed",
            "slowest",
            "stale backend gone after the end (after it left)",
        ]);
        table.add_rows(rows);
        println!("{table}");
    }
}

impl Ground {
    /// Two installed clusters and traffic.
    pub(crate) async fn start() -> Result<Self> {
        let mesh = Mesh::start(2, Authorities::Shared).await?;
        let traffic = mesh.traffic().await?;
        let rows = Mutex::default();
        Ok(Self {
            mesh,
            traffic,
            rows,
        })
    }

    /// Begins a fault, with a backend in this cluster that will leave the Service in its course.
    pub(crate) async fn begin(&self, name: &'static str, cluster: usize) -> Result<Fault<'_>> {
        let stale = format!("stale-{}", self.rows.lock().map_or(0, |rows| rows.len()));
        self.traffic.add(cluster, &stale).await?;
        let begin = traffic::now()?;
        Ok(Fault {
            ground: self,
            name,
            cluster,
            stale,
            begin,
            retired: begin,
            healed: begin,
        })
    }

    /// The running container of this name in the only pod, or in the one of this name, that has it.
    pub(crate) async fn container(
        &self,
        cluster: usize,
        name: &str,
        pod_name: Option<&str>,
    ) -> Result<ContainerStatus> {
        let release = self.mesh.release(cluster).await?;
        for pod in objects::pods(&release).await? {
            if pod_name.is_some_and(|wanted| pod.name_any() != wanted) {
                continue;
            }
            if let Some(found) = containers(&pod).into_iter().find(|it| it.name == name) {
                return Ok(found);
            }
        }
        bail!("cluster {cluster} has no container {name}")
    }

    /// Waits until a container was started again, after it had been started `restarts` times again before.
    pub(crate) async fn is_restarted(
        &self,
        cluster: usize,
        name: &str,
        pod_name: Option<&str>,
        restarts: i32,
    ) -> Result<()> {
        let what = format!("{name} of cluster {cluster} to be restarted and ready");
        eventually(RESTART, &what, async || {
            let found = self.container(cluster, name, pod_name).await;
            let found = found.map_err(|error| format!("{error:#}"))?;
            let again = found.restart_count > restarts && found.ready;
            again.then_some(()).ok_or_else(|| format!("{found:?}"))
        })
        .await?;
        Ok(())
    }

    async fn samples(&self, cluster: usize, begin: Uptime) -> Result<Vec<Sample>> {
        let samples = self.traffic.samples(cluster).await?;
        Ok(sample::since(&samples, begin).to_vec())
    }
}

impl Fault<'_> {
    /// Takes the backend out of the Service.
    pub(crate) async fn retire(&mut self) -> Result<()> {
        self.ground
            .traffic
            .retire(self.cluster, &self.stale)
            .await?;
        self.retired = traffic::now()?;
        Ok(())
    }

    /// Waits until the client of a cluster has made some more requests.
    pub(crate) async fn goes_on(&self, cluster: usize) -> Result<()> {
        self.ground.traffic.goes_on(cluster, 8).await
    }

    /// Waits until a cluster's client has lost packets since the beginning: a request failed, or had to be sent again. Where the
    /// first packet is lost before a connection is tracked, the next one may go to another backend, so few requests fail.
    pub(crate) async fn is_felt(&self, cluster: usize) -> Result<()> {
        let what = format!("{} to be felt in cluster {cluster}", self.name);
        eventually(traffic::BUDGET, &what, async || {
            let samples = self.samples(cluster).await;
            let samples = samples.map_err(|error| format!("{error:#}"))?;
            let felt = samples.iter().any(|it| it.failed() || it.lost_packets());
            felt.then_some(())
                .ok_or_else(|| format!("{} requests, none lost a packet", samples.len()))
        })
        .await?;
        Ok(())
    }

    /// Notes that the fault has ended.
    pub(crate) fn healed(&mut self) -> Result<()> {
        self.healed = traffic::now()?;
        Ok(())
    }

    /// The requests of a cluster's client since the beginning.
    pub(crate) async fn samples(&self, cluster: usize) -> Result<Vec<Sample>> {
        self.ground.samples(cluster, self.begin).await
    }

    /// Ends it: the backend has to go, everything has to be well again, and no request may have failed.
    pub(crate) async fn end(self) -> Result<()> {
        self.end_with(|_, _| false).await
    }

    /// The same, with failures that the fault itself is, by the time of its end.
    pub(crate) async fn end_with(self, excused: fn(&Sample, Uptime) -> bool) -> Result<()> {
        let ground = self.ground;
        let gone = ground.traffic.is_gone(&self.stale).await?;
        ground.traffic.remove(self.cluster, &self.stale).await?;
        ground.mesh.is_well().await?;
        let gone = gone.into_iter().flatten().max();
        let gone = gone.context("the backend answered before it left")?;
        let mut all = Vec::new();
        for cluster in [A, B] {
            ground.traffic.goes_on(cluster, 2).await?;
            let samples = self.samples(cluster).await?;
            ensure!(samples.len() > 20, "{} requests", samples.len());
            all.extend(samples);
        }
        self.note(&all, gone);
        let after = gone.saturating_sub(self.healed);
        ensure!(
            after <= STALE,
            "{}: the backend that had left answered until {after:?} after the end",
            self.name
        );
        all.retain(|sample| !(sample.failed() && excused(sample, self.healed)));
        traffic::all_answered(self.name, &all, 40)
    }

    fn note(&self, samples: &[Sample], gone: Uptime) {
        let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
        let row = [
            self.name.to_owned(),
            seconds(self.healed.saturating_sub(self.begin)),
            samples.len().to_string(),
            sample::failures(samples).len().to_string(),
            seconds(sample::slowest(samples)),
            format!(
                "{} ({})",
                seconds(gone.saturating_sub(self.healed)),
                seconds(gone.saturating_sub(self.retired))
            ),
        ];
        println!("{}", row.join(" | "));
        if let Ok(mut rows) = self.ground.rows.lock() {
            rows.push(row);
        }
    }
}

/// The id of a container in its runtime.
pub(crate) fn id_of(container: &ContainerStatus) -> Result<&str> {
    let id = container.container_id.as_deref().context("an id")?;
    id.strip_prefix("containerd://").context("of containerd")
}

fn containers(pod: &Pod) -> Vec<ContainerStatus> {
    let status = pod.status.clone().unwrap_or_default();
    let early = status.init_container_statuses.unwrap_or_default();
    let others = status.container_statuses.unwrap_or_default();
    early.into_iter().chain(others).collect()
}
