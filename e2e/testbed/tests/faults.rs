//! Faults of one cluster's processes, and that they heal.

use std::{collections::BTreeSet, time::Duration};

use anyhow::Result;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use tokio::sync::{Mutex, MutexGuard, OnceCell};
use tombolo_testbed::{
    Cluster, Component, ComponentError, Error, PodOptions, Role, Testbed, eventually, stays_for,
};

/// Longest wait for something to heal.
const BUDGET: Duration = Duration::from_secs(30);

/// One cluster for this test binary, for one test at a time: each breaks it, and mends it again.
async fn bed() -> Result<(&'static Testbed, MutexGuard<'static, ()>)> {
    static BED: OnceCell<Testbed> = OnceCell::const_new();
    static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());
    let guard = ONE_AT_A_TIME.lock().await;
    Ok((BED.get_or_try_init(|| Testbed::start(1)).await?, guard))
}

#[tokio::test]
async fn a_killed_etcd_comes_back_with_its_objects() -> Result<()> {
    objects_survive(Component::Etcd).await
}

#[tokio::test]
async fn a_killed_api_server_comes_back_with_its_objects() -> Result<()> {
    objects_survive(Component::ApiServer).await
}

async fn objects_survive(component: Component) -> Result<()> {
    let (bed, _guard) = bed().await?;
    let cluster = bed.cluster(0);
    let namespace = cluster.namespace().await?;
    create_config(cluster, &namespace, "before").await?;

    cluster.kill9(component)?;

    let pids = cluster.pids()?;
    assert!(!pids.contains_key(&component), "{pids:?}");
    let dead = create_config(cluster, &namespace, "during");
    let dead = tokio::time::timeout(Duration::from_secs(2), dead).await;
    assert!(
        !matches!(dead, Ok(Ok(()))),
        "nothing can be written without it"
    );

    cluster.restart(component).await?;

    eventually(BUDGET, "a write", async || {
        match create_config(cluster, &namespace, "after").await {
            // Of a look before, whose answer was lost.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => other.map_err(|error| error.to_string()),
        }
    })
    .await?;
    let api = Api::<ConfigMap>::namespaced(cluster.client(), &namespace);
    assert!(api.get_opt("before").await?.is_some());
    Ok(())
}

#[tokio::test]
async fn a_killed_controller_manager_does_its_work_again_after_a_restart() -> Result<()> {
    let (bed, _guard) = bed().await?;
    let cluster = bed.cluster(0);

    cluster.kill9(Component::ControllerManager)?;
    let namespace = cluster.namespace().await?;
    let api = Api::<ServiceAccount>::namespaced(cluster.client(), &namespace);
    let default_account = async || {
        api.get_opt("default")
            .await
            .map_err(|error| error.to_string())
    };
    stays_for(
        Duration::from_millis(500),
        "nobody makes accounts",
        async || {
            default_account()
                .await?
                .map_or(Ok(()), |_| Err("an account".to_owned()))
        },
    )
    .await?;

    cluster.restart(Component::ControllerManager).await?;

    eventually(BUDGET, "an account", async || {
        default_account()
            .await?
            .map(drop)
            .ok_or_else(|| "none".to_owned())
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_killed_mesh_etcd_keeps_its_records_and_a_wiped_one_does_not() -> Result<()> {
    let (bed, _guard) = bed().await?;
    let cluster = bed.cluster(0);
    let before = put(cluster, "kept").await?;

    cluster.kill9(Component::MeshEtcd)?;
    cluster.restart(Component::MeshEtcd).await?;

    assert!(has(cluster, "kept").await?);

    cluster.wipe_and_restart(Component::MeshEtcd).await?;

    assert!(!has(cluster, "kept").await?);
    let after = put(cluster, "new").await?;
    assert_eq!(
        before.cluster_id(),
        after.cluster_id(),
        "same flags, same cluster id"
    );
    assert!(
        after.revision() <= before.revision(),
        "revisions begin again"
    );
    Ok(())
}

#[tokio::test]
async fn a_paused_api_server_answers_again_after_it_is_resumed() -> Result<()> {
    let (bed, _guard) = bed().await?;
    let cluster = bed.cluster(0);
    let client = cluster.client();
    client.apiserver_version().await?;

    cluster.pause(Component::ApiServer)?;
    let pid = cluster.pids()?[&Component::ApiServer];
    let running = threads(pid)?.into_iter().filter(|state| state != "T");
    assert_eq!(running.count(), 0, "threads that did not stop");
    let silent = tokio::time::timeout(Duration::from_millis(500), client.apiserver_version()).await;
    cluster.resume(Component::ApiServer)?;

    assert!(silent.is_err(), "a stopped process does not answer");
    eventually(BUDGET, "an answer", async || {
        client
            .apiserver_version()
            .await
            .map(drop)
            .map_err(|error| error.to_string())
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_stopped_process_ends_by_itself_and_restarts() -> Result<()> {
    let (bed, _guard) = bed().await?;
    let cluster = bed.cluster(0);

    cluster.stop(Component::MeshEtcd).await?;

    assert!(!cluster.pids()?.contains_key(&Component::MeshEtcd));
    let again = cluster
        .stop(Component::MeshEtcd)
        .await
        .unwrap_err()
        .to_string();
    assert!(again.contains("a/mesh-etcd: is not running"), "{again}");
    cluster.restart(Component::MeshEtcd).await?;
    assert!(cluster.pids()?.contains_key(&Component::MeshEtcd));
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_done_is_a_typed_error() -> Result<()> {
    let (bed, _guard) = bed().await?;
    let cluster = bed.cluster(0);

    let wiped = cluster.wipe_and_restart(Component::Etcd).await;
    let role = cluster.kill9(Role::Operator);

    assert!(
        matches!(
            wiped,
            Err(Error::Component(ComponentError::NotWipeable { .. }))
        ),
        "{wiped:?}"
    );
    assert!(
        matches!(role, Err(Error::Component(ComponentError::Absent { .. }))),
        "{role:?}"
    );
    assert!(
        cluster.pids()?.contains_key(&Component::Etcd),
        "it was not touched"
    );
    Ok(())
}

#[tokio::test]
async fn peers_are_files_named_as_their_clusters() -> Result<()> {
    let (bed, _guard) = bed().await?;
    let cluster = bed.cluster(0);
    let directory = cluster.peers_directory()?;
    let names = || -> Result<BTreeSet<_>> {
        std::fs::read_dir(&directory)?
            .map(|it| Ok(it?.file_name().into_string().unwrap()))
            .collect()
    };

    cluster.write_peer("west", "http://127.0.0.1:1")?;
    cluster.write_peer("east", "http://127.0.0.1:2")?;
    cluster.write_peer("east", "http://127.0.0.1:3")?;
    cluster.remove_peer("west")?;

    assert_eq!(names()?, BTreeSet::from(["east".to_owned()]));
    let east = std::fs::read_to_string(directory.join("east"))?;
    assert_eq!(east, "endpoints:\n- http://127.0.0.1:3\n");
    assert!(cluster.remove_peer("west").is_err());
    Ok(())
}

#[tokio::test]
async fn evidence_holds_objects_records_and_logs() -> Result<()> {
    let bed = Testbed::start(1).await?;
    let cluster = bed.cluster(0);
    let namespace = cluster.namespace().await?;
    cluster
        .fake_pod(&namespace, "web-0", &[], PodOptions::default())
        .await?;
    put(cluster, "cilium/state/test").await?;

    let failed: Result<()> = bed
        .with_evidence(&namespace, async { anyhow::bail!("for a reason") })
        .await;

    let run = bed.directory().to_owned();
    let directory = run.join(format!("evidence-{namespace}")).join("a");
    let read = |name: &str| std::fs::read_to_string(directory.join(name));
    assert_eq!(failed.unwrap_err().to_string(), "for a reason");
    assert!(read("Pod.yaml")?.contains("name: web-0"));
    assert!(
        read("ServiceExport.yaml")?.starts_with("# not readable"),
        "there are no CRDs"
    );
    assert!(read("mesh-etcd.txt")?.contains("cilium/state/test @"));
    assert!(directory.join("kube-apiserver.log").is_file());
    drop(bed);
    assert!(directory.exists(), "evidence outlives the clusters");
    std::fs::remove_dir_all(run)?;
    Ok(())
}

/// The state of each thread of a process, as proc_pid_stat(5) has it: a letter after the name in parentheses.
fn threads(pid: u32) -> Result<Vec<String>> {
    std::fs::read_dir(format!("/proc/{pid}/task"))?
        .map(|task| {
            let stat = std::fs::read_to_string(task?.path().join("stat"))?;
            let state = stat.rsplit(") ").next().unwrap_or_default();
            Ok(state.chars().take(1).collect())
        })
        .collect()
}

async fn create_config(cluster: &Cluster, namespace: &str, name: &str) -> Result<(), kube::Error> {
    let api = Api::<ConfigMap>::namespaced(cluster.client(), namespace);
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        ..Default::default()
    };
    let config = ConfigMap {
        metadata,
        ..Default::default()
    };
    api.create(&PostParams::default(), &config).await.map(drop)
}

async fn put(cluster: &Cluster, key: &str) -> Result<etcd_client::ResponseHeader> {
    let answer = etcd(cluster).await?.put(key, "value", None).await?;
    answer
        .header()
        .cloned()
        .ok_or_else(|| anyhow::anyhow!("an answer without header"))
}

async fn has(cluster: &Cluster, key: &str) -> Result<bool> {
    Ok(etcd(cluster).await?.get(key, None).await?.count() == 1)
}

async fn etcd(cluster: &Cluster) -> Result<etcd_client::Client> {
    Ok(etcd_client::Client::connect([cluster.mesh_etcd_endpoint()?], None).await?)
}
