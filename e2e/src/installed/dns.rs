//! Cluster DNS of an installation: `tombolo dns configure`, on a Corefile as clusters have it before.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::PostParams};
use tombolo_testbed::{Cluster, tombolo};

/// Member of the ConfigMap.
const COREFILE: &str = "Corefile";

/// Takes the zone of imported services out of the Corefile, which testbeds put there, and has the command put it in, give CoreDNS
/// its rights, and prove that it answers.
pub(super) async fn configure(cluster: &Cluster, kubeconfig: &Path) -> Result<()> {
    let maps = Api::<ConfigMap>::namespaced(cluster.client(), "kube-system");
    let mut map = maps.get("coredns").await?;
    let data = map.data.as_mut().context("a Corefile")?;
    let corefile = data.get_mut(COREFILE).context("a Corefile")?;
    *corefile = plain(corefile);
    maps.replace("coredns", &PostParams::default(), &map)
        .await?;
    let kubeconfig = kubeconfig.display().to_string();
    let place = ["--kubeconfig", &kubeconfig, "--context", cluster.name()];
    let arguments = [&["dns", "configure", "--timeout", "110s"][..], &place].concat();
    let output = cluster.run(&tombolo().await?, &arguments).await?;
    ensure!(
        output.code == Some(0),
        "tombolo dns configure: {} {}",
        output.stdout,
        output.stderr
    );
    Ok(())
}

/// A Corefile without the zone of imported services.
fn plain(corefile: &str) -> String {
    let lines = corefile.lines();
    let lines = lines.filter(|line| !line.trim_start().starts_with("multicluster "));
    let lines = lines.map(|line| line.replace(" clusterset.local", "") + "\n");
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_corefile_loses_the_zone_and_nothing_else() {
        let before = ".:53 {\n    ready\n    kubernetes cluster.local clusterset.local ip6.arpa {\n        \
                      multicluster clusterset.local\n        ttl 5\n    }\n}\n";

        let after = plain(before);

        let expected =
            ".:53 {\n    ready\n    kubernetes cluster.local ip6.arpa {\n        ttl 5\n    }\n}\n";
        assert_eq!(after, expected);
        assert_eq!(plain(expected), expected);
    }
}
