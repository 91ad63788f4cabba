//! What the etcd of the mesh takes, by the product's own client: writes of a record, lists in pages, and the way of one
//! change to a reader.
//!
//! The etcd is a real one, in a container where there is a Docker engine, else a process; the ids say which. See the README
//! of this folder for what the numbers mean.

use std::{cell::OnceCell, collections::BTreeMap, net::IpAddr, process::ExitCode, time::Duration};

use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, measurement::WallTime};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio::runtime::Runtime;
use tombolo::kvstore::{
    Attempt, Condition, Error, Event, KvStore as _, Scope, config::EtcdConfig, etcd::EtcdStore,
};
use tombolo_core::{
    names::{ClusterName, NamespacedName, PortName},
    service::{ClusterService, L4Port, Protocol},
    wire::cluster_service,
};
use tombolo_testbed::lone_etcd::{Fixture, LoneEtcd};

/// Backends of the record that is written.
const BACKENDS: u16 = 1_000;
/// Backends of each of the records that are listed.
const LISTED_BACKENDS: u16 = 10;
/// How many records are listed, in the state of a cluster with this name.
const LISTS: [(&str, u16); 2] = [("rome", 1_000), ("oslo", 10_000)];
/// Writes at a time while records to be listed are made.
const AT_ONCE: usize = 32;
/// etcd keeps every version of a record until it compacts: what a run writes has to fit in its 2 GiB.
const WARM_UP: Duration = Duration::from_millis(500);
const MEASUREMENT: Duration = Duration::from_secs(2);
const SAMPLES: usize = 20;

fn main() -> ExitCode {
    let runtime = Runtime::new().expect("the system gives threads");
    let fixture = match runtime.block_on(Fixture::find()) {
        Ok(fixture) => fixture,
        Err(missing) => {
            eprintln!("benches of the store: {missing}");
            return ExitCode::FAILURE;
        }
    };
    if let Fixture::Process(missing) = &fixture {
        println!("not run: benches of the store in a container: {missing}. They run on a process");
    }
    let subject = Subject {
        fixture,
        runtime,
        etcd: OnceCell::new(),
    };
    let mut criterion = Criterion::default()
        .warm_up_time(WARM_UP)
        .measurement_time(MEASUREMENT)
        .sample_size(SAMPLES)
        .configure_from_args();
    let mut group = criterion.benchmark_group(format!("store/{}", subject.fixture));
    for (cluster, count) in LISTS {
        list(&mut group, &subject, cluster, count);
    }
    put(&mut group, &subject);
    transaction(&mut group, &subject);
    change(&mut group, &subject);
    group.finish();
    criterion.final_summary();
    subject.end();
    ExitCode::SUCCESS
}

/// The etcd, started by the first bench that is run: `--list` and filters may want none.
struct Subject {
    fixture: Fixture,
    runtime: Runtime,
    etcd: OnceCell<LoneEtcd>,
}

impl Subject {
    /// A client, as the roles of the product make theirs.
    fn store(&self) -> EtcdStore {
        let etcd = self.etcd.get_or_init(|| {
            let started = self.runtime.block_on(self.fixture.start());
            started.unwrap_or_else(|error| panic!("{error}"))
        });
        EtcdStore::new(EtcdConfig::from_urls(&[etcd.url()]).expect("invariant: a good URL"))
    }

    fn wait<T>(&self, call: impl Future<Output = Result<T, Error>>) -> T {
        let answer = self.runtime.block_on(call);
        answer.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Ends the etcd, inside of the runtime that its end needs.
    fn end(self) {
        self.runtime.block_on(async { drop(self.etcd) });
    }
}

/// A service with a port and some backends.
fn service(cluster: &str, number: u16, backends: u16) -> ClusterService {
    let http = PortName::try_from("http").expect("invariant: a label");
    let port = |port| {
        let protocol = Protocol::Tcp;
        BTreeMap::from([(http.clone(), L4Port { protocol, port })])
    };
    let address = |n: u16| IpAddr::from([10, 20, n.to_be_bytes()[0], n.to_be_bytes()[1]]);
    let name = format!("service-{number}");
    ClusterService {
        cluster: cluster.try_into().expect("invariant: a label"),
        cluster_id: 7.try_into().expect("invariant: an id"),
        name: NamespacedName::parse("shop", &name).expect("invariant: two labels"),
        frontends: BTreeMap::from([(address(0), port(80))]),
        backends: (1..=backends).map(|n| (address(n), port(8080))).collect(),
        hostnames: BTreeMap::new(),
        zones: BTreeMap::new(),
        labels: BTreeMap::new(),
        selector: BTreeMap::new(),
        shared: true,
    }
}

/// One key, and two values by turns, so that each write changes something.
struct Turns {
    key: String,
    values: [Vec<u8>; 2],
    turn: usize,
}

impl Turns {
    fn new(number: u16) -> Self {
        let [one, other] = [BACKENDS, BACKENDS - 1]
            .map(|it| cluster_service::encode(&service("paris", number, it)));
        Self {
            key: one.0,
            values: [one.1, other.1],
            turn: 0,
        }
    }

    fn bytes(&self) -> Throughput {
        Throughput::Bytes(self.values[0].len() as u64)
    }

    fn next(&mut self) -> Vec<u8> {
        self.turn = 1 - self.turn;
        self.values[self.turn].clone()
    }
}

/// A reader that begins: every record of a peer, in pages.
fn list(group: &mut BenchmarkGroup<'_, WallTime>, subject: &Subject, cluster: &str, count: u16) {
    let filled = OnceCell::new();
    let fill = async |store: &EtcdStore| {
        let writing = stream::iter(0..count).map(|number| async move {
            let (key, value) = cluster_service::encode(&service(cluster, number, LISTED_BACKENDS));
            store.put(&key, value, None).await.map(drop)
        });
        writing.buffer_unordered(AT_ONCE).try_collect::<()>().await
    };
    let name = ClusterName::try_from(cluster).expect("invariant: a label");
    let prefix = tombolo_core::wire::key::services_prefix(&name, false);
    group.throughput(Throughput::Elements(u64::from(count)));
    group.bench_function(
        BenchmarkId::new("list", format!("{count}-services")),
        |bencher| {
            let store = subject.store();
            filled.get_or_init(|| subject.wait(fill(&store)));
            bencher.iter(|| {
                let listing = subject.wait(store.list(&prefix));
                assert_eq!(listing.entries.len(), usize::from(count));
            });
        },
    );
}

/// A publisher after a change of one endpoint.
fn put(group: &mut BenchmarkGroup<'_, WallTime>, subject: &Subject) {
    let mut turns = Turns::new(1);
    group.throughput(turns.bytes());
    group.bench_function(
        BenchmarkId::new("put", format!("{BACKENDS}-backends")),
        |bencher| {
            let store = subject.store();
            bencher.iter(|| {
                let value = turns.next();
                subject.wait(store.put(&turns.key, value, None))
            });
        },
    );
}

/// The same while a lock is held, as the copies of peers' records are written.
fn transaction(group: &mut BenchmarkGroup<'_, WallTime>, subject: &Subject) {
    let mut turns = Turns::new(2);
    let lock = "bench/lock".to_owned();
    group.throughput(turns.bytes());
    group.bench_function(
        BenchmarkId::new("transaction", format!("{BACKENDS}-backends")),
        |bencher| {
            let store = subject.store();
            subject.wait(store.put(&lock, Vec::new(), None));
            let held = subject.wait(store.get(&lock)).entry;
            let held = [Condition::MadeAt {
                key: lock.clone(),
                create_revision: held.expect("it was written").create_revision,
            }];
            bencher.iter(|| {
                let value = turns.next();
                let written = store.put_if(&held, &turns.key, value, None);
                let written = subject.wait(written);
                assert!(matches!(written, Attempt::Done(_)), "the lock is held");
            });
        },
    );
}

/// One change, from before its write until a watch has delivered it.
fn change(group: &mut BenchmarkGroup<'_, WallTime>, subject: &Subject) {
    let mut turns = Turns::new(3);
    group.throughput(turns.bytes());
    group.bench_function(
        BenchmarkId::new("put-to-watch", format!("{BACKENDS}-backends")),
        |bencher| {
            // A reader has a connection of its own.
            let (writer, reader) = (subject.store(), subject.store());
            let now = subject.wait(reader.get(&turns.key)).revision;
            let scope = Scope::Key(turns.key.clone());
            let mut watch = subject.wait(reader.watch(&scope, now + 1));
            bencher.iter(|| {
                let value = turns.next();
                subject.wait(async {
                    let seen = async {
                        while let Some(batch) = watch.try_next().await? {
                            let mut events = batch.events.iter();
                            if events.any(|event| matches!(event, Event::Put(_))) {
                                return Ok(());
                            }
                        }
                        panic!("the watch ended");
                    };
                    let written = writer.put(&turns.key, value, None);
                    futures::future::try_join(written, seen).await
                });
            });
        },
    );
}
