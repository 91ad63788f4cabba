//! The steps of the demo, each of which waits until what it announces is there.

use std::{
    collections::BTreeSet,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams},
};
use tombolo_api::v1beta1::ServiceExport;
use tombolo_testbed::{Cluster, Component, Provider, Testbed, eventually, interruption};

use super::{
    Options,
    pods::{self, Server},
    screen::Screen,
    table::Row,
};
use crate::{manifest::Manifest, view::Objects};

/// Namespace and Service of the examples.
pub(super) const NAMESPACE: &str = "shop";
pub(super) const SERVICE: &str = "web";
/// Longest wait for a step. It takes well under a second on an idle machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// How long the partition is watched.
const PARTITION: Duration = Duration::from_secs(3);
/// Pause between two looks at the clusters.
const LOOK: Duration = Duration::from_millis(50);

const A: usize = 0;
const B: usize = 1;

/// The manifests of the demo.
struct Examples {
    namespace: Manifest,
    service: Manifest,
    export: Manifest,
    conflict: Manifest,
}

impl Examples {
    fn read(directory: &Path) -> Result<Self, crate::manifest::Error> {
        let read = |name: &str| Manifest::read(&directory.join(name));
        Ok(Self {
            namespace: read("namespace.yaml")?,
            service: read("service.yaml")?,
            export: read("export.yaml")?,
            conflict: read("service-conflict.yaml")?,
        })
    }
}

/// Plays the demo; what it started ends when this returns or is dropped.
pub async fn play(options: &Options) -> Result<()> {
    let start = Instant::now();
    Examples::read(&options.examples)?;
    let mut screen = Screen::new();
    let testbed = if options.nodes {
        screen.step("Two clusters with a node each: containerd, kubelet, kube-proxy, CoreDNS beside the control planes");
        Testbed::start_with(&Provider::with_nodes()?, 2).await?
    } else {
        screen.step("Two control planes: etcd, kube-apiserver, kube-controller-manager each");
        Testbed::start(2).await?
    };
    screen.say(&format!("up after {:.1?}", start.elapsed()));
    screen.step("One mesh: etcd, `tombolo run mesh` and `tombolo run operator` beside each");
    testbed.start_mesh().await?;
    screen.say(&format!("ready after {:.1?}", start.elapsed()));
    play_on(&testbed, options).await?;
    println!("\nDone in {:.1?}.", start.elapsed());
    Ok(())
}

/// Plays it on two clusters that have a mesh already. The namespace of the examples is left behind.
pub async fn play_on(testbed: &Testbed, options: &Options) -> Result<()> {
    let mut demo = Demo {
        testbed,
        clients: testbed.clusters().iter().map(Cluster::client).collect(),
        examples: Examples::read(&options.examples)?,
        screen: Screen::new(),
        nodes: options.nodes,
    };
    demo.export().await?;
    let pods = demo.second_cluster().await?;
    demo.conflict().await?;
    demo.partition(&pods).await?;
    if options.keep {
        demo.keep().await?;
    } else {
        demo.end().await?;
    }
    Ok(())
}

struct Demo<'t> {
    testbed: &'t Testbed,
    clients: Vec<Client>,
    examples: Examples,
    screen: Screen,
    nodes: bool,
}

impl<'t> Demo<'t> {
    async fn export(&mut self) -> Result<()> {
        self.screen
            .step("Namespace, Service and pods in a; only the namespace in b");
        for cluster in [A, B] {
            self.examples
                .namespace
                .apply(&self.clients[cluster])
                .await?;
            if self.nodes {
                pods::start_client(self.testbed.cluster(cluster)).await?;
            }
        }
        self.examples.service.apply(&self.clients[A]).await?;
        self.pod(A, "web-1").await?;
        self.pod(A, "web-2").await?;
        self.show_now().await?;

        self.screen.step(
            "Export it from a: b gets an import, a derived Service with an IP, and the pods of a",
        );
        self.examples.export.apply(&self.clients[A]).await?;
        let what = "both clusters to have the import with the two pods of a";
        self.until(what, |rows| {
            rows.iter()
                .all(|row| !row.ips.is_empty() && row.endpoints_of("a") == 2)
        })
        .await?;
        self.asked(B, &["web-1 of a", "web-2 of a"]).await
    }

    async fn second_cluster(&mut self) -> Result<Vec<Server<'t>>> {
        self.screen
            .step("Export it from b too: one service, pods of both clusters");
        let client = self.clients[B].clone();
        self.examples.service.apply(&client).await?;
        let pods = vec![self.pod(B, "web-1").await?, self.pod(B, "web-2").await?];
        self.examples.export.apply(&client).await?;
        let what = "both clusters to have two pods of each";
        self.until(what, |rows| {
            rows.iter()
                .all(|row| row.endpoints_of("a") == 2 && row.endpoints_of("b") == 2)
        })
        .await?;
        let everybody = ["web-1 of a", "web-2 of a", "web-1 of b", "web-2 of b"];
        self.asked(A, &everybody).await?;
        self.asked(B, &everybody).await?;

        self.screen
            .step("A pod of b becomes unready: no more traffic to it, from either cluster");
        pods[0].set_ready(false).await?;
        self.until("one pod of b", |rows| {
            rows.iter().all(|row| row.endpoints_of("b") == 1)
        })
        .await?;
        self.asked(A, &["web-1 of a", "web-2 of a", "web-2 of b"])
            .await?;
        pods[0].set_ready(true).await?;
        Ok(pods)
    }

    async fn conflict(&mut self) -> Result<()> {
        self.screen.step(
            "b changes its port number: a conflict, the oldest export (a's) wins, both are told",
        );
        let client = self.clients[B].clone();
        self.examples.conflict.apply(&client).await?;
        let rows = self
            .rows_when("both exports to be in conflict", |rows| {
                rows.iter().all(|row| row.conflict.is_some())
                    && rows.iter().all(|row| row.endpoints_of("b") == 0)
            })
            .await?;
        for row in rows {
            self.screen
                .say(&format!("{} says: {}", row.cluster, row.conflict_message));
        }
        self.asked(B, &["web-1 of a", "web-2 of a"]).await?;

        self.screen.step("b changes it back: the conflict is over");
        self.examples.service.apply(&client).await?;
        self.until("no conflict and two pods of each", |rows| {
            rows.iter()
                .all(|row| row.conflict.is_none() && row.endpoints_of("b") == 2)
        })
        .await
    }

    async fn partition(&mut self, pods_of_b: &[Server<'t>]) -> Result<()> {
        self.screen.step("A partition: the etcd that b publishes into stops answering; a pod of b becomes unready");
        let b = self.testbed.cluster(B);
        b.pause(Component::MeshEtcd)?;
        pods_of_b[1].set_ready(false).await?;
        self.pod(A, "web-3").await?;
        self.until("local work to go on: three pods of a, in a", |rows| {
            rows[A].endpoints_of("a") == 3 && rows[B].endpoints_of("b") == 1
        })
        .await?;
        self.nothing_lost(PARTITION).await?;
        self.screen.say(&format!(
            "for {PARTITION:?} a has kept everything that b had exported: absence is not deletion"
        ));
        let of_a = ["web-1 of a", "web-2 of a", "web-3 of a"];
        let kept = [&of_a[..], &["web-1 of b", "web-2 of b"]].concat();
        self.asked(A, &kept).await?;

        self.screen
            .step("The partition heals: a learns what it missed");
        b.resume(Component::MeshEtcd)?;
        self.until("three pods of a and one of b, in both clusters", |rows| {
            rows.iter()
                .all(|row| row.endpoints_of("a") == 3 && row.endpoints_of("b") == 1)
        })
        .await?;
        let known = [&of_a[..], &["web-1 of b"]].concat();
        self.asked(A, &known).await
    }

    async fn nothing_lost(&mut self, duration: Duration) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < duration {
            let rows = self.show_now().await?;
            if rows[A].endpoints_of("b") != 2 {
                bail!(
                    "cluster a lost endpoints of b during the partition: {:?}",
                    rows[A].endpoints
                );
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    async fn end(&mut self) -> Result<()> {
        self.screen
            .step("Both end their exports: the import goes everywhere");
        for cluster in [A, B] {
            let client = self.clients[cluster].clone();
            let exports = Api::<ServiceExport>::namespaced(client, NAMESPACE);
            exports.delete(SERVICE, &DeleteParams::default()).await?;
        }
        self.until("no import", |rows| {
            rows.iter().all(|row| row.import.is_empty())
        })
        .await?;
        self.asked(A, &[]).await
    }

    async fn keep(&mut self) -> Result<()> {
        // Before it is told: a signal that comes sooner than this is listened to would end it at once.
        let interrupted = interruption().context("listen to Ctrl-C")?;
        self.screen.step("KEEP=1: everything stays up until Ctrl-C");
        for cluster in self.testbed.clusters() {
            let kubeconfig = cluster.kubeconfig()?.display().to_string();
            self.screen.say(&format!("kubectl --kubeconfig {kubeconfig} -n {NAMESPACE} get serviceimports,services,endpointslices"));
        }
        interrupted.await;
        self.testbed.discard_files();
        Ok(())
    }

    async fn pod(&self, cluster: usize, name: &str) -> Result<Server<'t>> {
        Server::start(self.testbed.cluster(cluster), name, self.nodes).await
    }

    /// Where pods run: asks by the Service's name from a pod of a cluster until exactly these pods answer, and says how often
    /// each did.
    async fn asked(&mut self, cluster: usize, servers: &[&str]) -> Result<()> {
        if !self.nodes {
            return Ok(());
        }
        let cluster = self.testbed.cluster(cluster);
        // A pod that is in the rotation with four others is missed by one in 800 looks.
        let times = 6 * servers.len().max(1);
        let wanted: BTreeSet<_> = servers.iter().copied().collect();
        let what = format!("answers by {servers:?}");
        let answers = eventually(PATIENCE, &what, async || {
            let answers = pods::ask(cluster, times).await;
            let answers = answers.map_err(|error| format!("{error:#}"))?;
            let same = answers
                .keys()
                .map(String::as_str)
                .eq(wanted.iter().copied());
            same.then(|| answers.clone())
                .ok_or_else(|| format!("{answers:?}"))
        });
        let answers = answers.await?;
        let counts: Vec<_> = answers.iter().map(|(it, n)| format!("{n} {it}")).collect();
        let by = if counts.is_empty() {
            "nobody".to_owned()
        } else {
            counts.join(", ")
        };
        let (name, host) = (cluster.name(), pods::name());
        let asked = format!("a pod of {name} asks {host} {times} times");
        self.screen.say(&format!("{asked}; answered by: {by}"));
        Ok(())
    }

    async fn until(&mut self, what: &str, holds: impl Fn(&[Row]) -> bool) -> Result<()> {
        self.rows_when(what, holds).await.map(drop)
    }

    /// Shows the state until it is as wanted, and says how long that took.
    async fn rows_when(&mut self, what: &str, holds: impl Fn(&[Row]) -> bool) -> Result<Vec<Row>> {
        let start = Instant::now();
        let rows = eventually(PATIENCE, what, async || {
            let rows = self.show_now().await;
            let rows = rows.map_err(|error| format!("{error:#}"))?;
            if holds(&rows) {
                Ok(rows)
            } else {
                Err(format!("{rows:?}"))
            }
        });
        let rows = rows.await?;
        let took = start.elapsed();
        self.screen.say(&format!("seen after {took:.1?}"));
        Ok(rows)
    }

    async fn show_now(&mut self) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for (cluster, client) in self.testbed.clusters().iter().zip(&self.clients) {
            let all = ListParams::default();
            let in_namespace = || client.clone();
            let objects = Objects {
                imports: Api::namespaced(in_namespace(), NAMESPACE)
                    .list(&all)
                    .await?
                    .items,
                exports: Api::namespaced(in_namespace(), NAMESPACE)
                    .list(&all)
                    .await?
                    .items,
                services: Api::namespaced(in_namespace(), NAMESPACE)
                    .list(&all)
                    .await?
                    .items,
                slices: Api::namespaced(in_namespace(), NAMESPACE)
                    .list(&all)
                    .await?
                    .items,
            };
            rows.push(Row::of(cluster.name(), SERVICE, &objects));
        }
        self.screen.show(&rows);
        Ok(rows)
    }
}
