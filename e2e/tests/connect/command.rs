//! Runs the command, and looks at what it wrote.

use std::{collections::BTreeMap, path::Path, process::Output, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};
use kube::ResourceExt as _;
use tokio::process::Command;
use tombolo_e2e::chart::{Helm, Installation, Site, site::etcd_address};
use tombolo_testbed::{Testbed, tombolo};

/// Objects that the command writes.
pub(crate) const OBJECTS: [&str; 3] = [
    "cilium-kvstoremesh",
    "cilium-clustermesh",
    "clustermesh-remote-users",
];

/// Pause between two renewals of mounted files.
const RENEWAL: Duration = Duration::from_millis(200);

/// What a run came to.
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Answer {
    /// The answer, if the run ended with this code and says all of these.
    pub(crate) fn expect(self, code: i32, parts: &[&str]) -> Result<Self> {
        let both = format!("{}{}", self.stdout, self.stderr);
        ensure!(
            self.code == Some(code),
            "{:?}, not {code}: {both}",
            self.code
        );
        for part in parts {
            ensure!(both.contains(part), "{part:?} is not in: {both}");
        }
        Ok(self)
    }
}

/// The command with the kubeconfigs of all clusters.
pub(crate) async fn command(testbed: &Testbed, words: &[&str]) -> Result<Command> {
    let mut command = Command::new(tombolo().await?);
    command.env_remove("KUBECONFIG").args(words);
    for cluster in testbed.clusters() {
        command.arg("--kubeconfig").arg(cluster.kubeconfig()?);
    }
    command.kill_on_drop(true);
    Ok(command)
}

/// Runs it to its end.
pub(crate) async fn run(testbed: &Testbed, words: &[&str]) -> Result<Answer> {
    let output = command(testbed, words).await?.output().await?;
    Ok(answer(&output))
}

/// Runs it to its end, while kubelets would renew the files of these.
pub(crate) async fn run_beside(
    testbed: &Testbed,
    words: &[&str],
    sites: &[&Site<'_>],
) -> Result<Answer> {
    let running = run(testbed, words);
    tokio::pin!(running);
    loop {
        tokio::select! {
            answer = &mut running => return answer,
            () = tokio::time::sleep(RENEWAL) => {
                for site in sites {
                    site.renew_files().await?;
                }
            }
        }
    }
}

fn answer(output: &Output) -> Answer {
    Answer {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// `--endpoint` for each of these clusters: where their etcds listen here.
pub(crate) fn endpoints(testbed: &Testbed, clusters: &[usize]) -> Result<Vec<String>> {
    let mut words = Vec::new();
    for index in clusters {
        let cluster = testbed.cluster(*index);
        words.push("--endpoint".to_owned());
        words.push(format!("{}={}", cluster.name(), etcd_address(cluster)?));
    }
    Ok(words)
}

/// Words of a command line.
pub(crate) fn words<'a>(first: &[&'a str], more: &'a [String]) -> Vec<&'a str> {
    let more = more.iter().map(String::as_str);
    first.iter().copied().chain(more).collect()
}

/// The chart with its defaults and these values, in a cluster without a release.
pub(crate) async fn install<'t>(
    testbed: &'t Testbed,
    helm: &'t Helm,
    index: usize,
    more: &str,
) -> Result<Installation<'t>> {
    let release = Installation::prepare(helm, testbed.cluster(index)).await?;
    release.install(&values(testbed, index, more))?;
    Ok(release)
}

/// Values for a cluster: its name and id, and more.
pub(crate) fn values(testbed: &Testbed, index: usize, more: &str) -> String {
    let cluster = testbed.cluster(index);
    format!(
        "cluster: {{name: {}, id: {}}}\n{more}\n",
        cluster.name(),
        cluster.id()
    )
}

/// Takes a release away with all that `connect` and helm leave on purpose.
pub(crate) async fn remove(release: &Installation<'_>) -> Result<()> {
    release.uninstall()?;
    let params = kube::api::DeleteParams::default();
    for name in OBJECTS.into_iter().chain(["tombolo-ca"]) {
        let _absent = release.api::<Secret>().delete(name, &params).await;
        let _absent = release.api::<ConfigMap>().delete(name, &params).await;
    }
    Ok(())
}

/// What was written, by object.
pub(crate) type Written = BTreeMap<String, BTreeMap<String, ByteString>>;

/// Everything that was written in a cluster.
pub(crate) async fn written(release: &Installation<'_>) -> Result<Written> {
    let mut all = BTreeMap::new();
    for name in OBJECTS {
        if let Some(secret) = release.api::<Secret>().get_opt(name).await? {
            all.insert(name.to_owned(), secret.data.unwrap_or_default());
        }
        if let Some(map) = release.api::<ConfigMap>().get_opt(name).await? {
            let data = map.data.unwrap_or_default().into_iter();
            let data = data.map(|(key, text)| (key, ByteString(text.into_bytes())));
            all.insert(name.to_owned(), data.collect());
        }
    }
    Ok(all)
}

/// Versions of everything that was written in a cluster.
pub(crate) async fn versions(release: &Installation<'_>) -> Result<Vec<Option<String>>> {
    let mut versions = Vec::new();
    for name in OBJECTS {
        let secret = release.api::<Secret>().get_opt(name).await?;
        versions.push(secret.and_then(|it| it.resource_version()));
        let map = release.api::<ConfigMap>().get_opt(name).await?;
        versions.push(map.and_then(|it| it.resource_version()));
    }
    Ok(versions)
}

/// How many requests to change Secrets, ConfigMaps and Services an API server has had.
pub(crate) async fn changes_asked_for(release: &Installation<'_>) -> Result<u64> {
    let request = http_get("/metrics")?;
    let page = release.cluster().client().request_text(request).await?;
    let counts = page.lines().filter(|line| {
        let of = |label: &str, values: &[&str]| {
            values
                .iter()
                .any(|value| line.contains(&format!("{label}=\"{value}\"")))
        };
        line.starts_with("apiserver_request_total{")
            && of(
                "verb",
                &[
                    "POST",
                    "PUT",
                    "PATCH",
                    "APPLY",
                    "DELETE",
                    "DELETECOLLECTION",
                ],
            )
            && of("resource", &["secrets", "configmaps", "services"])
    });
    let mut sum = 0.0;
    for line in counts {
        let number = line.rsplit(' ').next().context("a number")?;
        sum += number.parse::<f64>()?;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small count"
    )]
    Ok(sum as u64)
}

fn http_get(path: &str) -> Result<http::Request<Vec<u8>>> {
    Ok(http::Request::get(path).body(Vec::new())?)
}

/// Whether a file is there, and readable by its owner alone.
pub(crate) fn is_private(file: &Path) -> Result<bool> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(std::fs::metadata(file)?.permissions().mode() & 0o777 == 0o600)
}
