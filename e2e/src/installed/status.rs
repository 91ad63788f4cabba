//! What `tombolo status` says of an installed cluster.

use std::{collections::BTreeSet, path::Path};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use tombolo_testbed::{Cluster, tombolo};

use crate::chart::manifests::list;

/// Exit codes that come with a report: well, a problem, unknown, behind.
const REPORTED: [i32; 4] = [0, 3, 4, 5];

/// Flags that wait until everything is well.
pub const WAIT: [&str; 3] = ["--wait", "--timeout", "100s"];

/// Asks, as a user does: from where the API server is reached, with a kubeconfig that has a context for the cluster.
pub async fn ask(cluster: &Cluster, kubeconfig: &Path, flags: &[&str]) -> Result<Value> {
    let kubeconfig = kubeconfig.display().to_string();
    let place = ["--kubeconfig", &kubeconfig, "--context", cluster.name()];
    let arguments = [&["status", "--output", "json"][..], &place, flags].concat();
    let output = cluster.run(&tombolo().await?, &arguments).await?;
    if !output.code.is_some_and(|code| REPORTED.contains(&code)) {
        bail!("tombolo status: {output:?}");
    }
    serde_json::from_str(&output.stdout).with_context(|| format!("{output:?}"))
}

/// Whether everything is well, and every process that follows peers follows these and no others; else why not.
pub fn knows(report: &Value, others: &[&str]) -> Result<(), String> {
    let verdict = report["verdict"].as_str().unwrap_or("no verdict");
    if verdict != "Well" {
        return Err(format!(
            "{verdict}: {} {}",
            report["summary"], report["findings"]
        ));
    }
    let expected: BTreeSet<&str> = others.iter().copied().collect();
    let mut following = 0;
    for process in list(&report["processes"]) {
        let peers = &process["answer"]["peers"];
        if peers.is_null() {
            continue;
        }
        following += 1;
        let names = list(&peers["peers"]).iter();
        let names: BTreeSet<&str> = names
            .filter_map(|peer| peer["status"]["cluster"].as_str())
            .collect();
        if names != expected {
            let (address, role) = (&process["address"], &process["answer"]["role"]);
            return Err(format!("{role} at {address} follows {names:?}"));
        }
    }
    if following == 0 {
        return Err("no process follows peers".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(verdict: &str, peers: &[&str]) -> Value {
        let peers: Vec<_> = peers
            .iter()
            .map(|name| json!({"status": {"cluster": name}}))
            .collect();
        json!({"verdict": verdict, "processes": [
            {"address": "x", "answer": {"role": "mesh", "peers": null}},
            {"address": "y", "answer": {"role": "operator", "peers": {"peers": peers}}},
        ]})
    }

    #[test]
    fn a_cluster_that_is_well_without_its_peers_is_not_there_yet() {
        let well = |peers: &[&str]| knows(&report("Well", peers), &["b"]);

        assert_eq!(well(&["b"]), Ok(()));
        assert!(well(&[]).is_err_and(|error| error.contains("operator")));
        assert!(well(&["b", "c"]).is_err());
        assert!(knows(&report("Behind", &["b"]), &["b"]).is_err_and(|it| it.contains("Behind")));
        let nobody = json!({"verdict": "Well", "processes": []});
        assert!(knows(&nobody, &["b"]).is_err());
    }
}
