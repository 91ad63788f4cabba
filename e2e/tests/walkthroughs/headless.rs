//! A database with a headless Service in both clusters: each pod has a name of its own.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::{Value, json};
use tombolo_testbed::Testbed;

use super::pods::{
    CLUSTERSET, Servers, addresses, answered, export, resolves, start, start_client, turn,
};

/// Says its cluster and its name on the port of MySQL, after it has read what the client sends.
const DATABASE: Servers<'_> = Servers {
    name: "mysql",
    replicas: 2,
    script: r#"cat > /tmp/greet <<'END'
while read -r line; do [ ${#line} -gt 1 ] || break; done
echo "$CLUSTER $(hostname)"
END
exec socat TCP6-LISTEN:3306,fork,reuseaddr,ipv6only=0 EXEC:'/bin/sh /tmp/greet'"#,
};

fn service() -> Value {
    json!({
        "metadata": { "name": "mysql" },
        "spec": {
            "clusterIP": "None",
            "ipFamilyPolicy": "PreferDualStack",
            "selector": { "app": "mysql" },
            "ports": [{ "name": "mysql", "port": 3306 }],
        },
    })
}

pub(crate) async fn reached(bed: &Testbed) -> Result<()> {
    let namespace = bed.namespace().await?;
    let mut all = Vec::new();
    for cluster in bed.clusters() {
        start_client(cluster, &namespace).await?;
        let script = format!("export CLUSTER={}; {}", cluster.name(), DATABASE.script);
        let servers = Servers {
            script: &script,
            ..DATABASE
        };
        let pods = start(cluster, &namespace, &servers).await?;
        export(cluster, &namespace, service()).await?;
        all.push((cluster, pods));
    }

    let service = format!("mysql.{namespace}.svc.{CLUSTERSET}");
    let every: BTreeSet<_> = all.iter().flat_map(|(_, pods)| addresses(pods)).collect();
    for (from, _) in &all {
        resolves(from, &namespace, &service, Some(&every)).await?;
        for (of, pods) in &all {
            for (number, pod) in pods.iter().enumerate() {
                let name = format!("mysql-{number}.{}.{service}", of.name());
                let own = addresses(std::slice::from_ref(pod));
                resolves(from, &namespace, &name, Some(&own)).await?;
                let greeting = format!("{} mysql-{number}", of.name());
                answered(from, &namespace, (&name, 3306), &[&greeting]).await?;
            }
            // The name of a cluster alone is reserved.
            let reserved = format!("{}.{service}", of.name());
            resolves(from, &namespace, &reserved, None).await?;
        }
    }
    Ok(())
}

pub(crate) async fn unready(bed: &Testbed) -> Result<()> {
    let namespace = bed.namespace().await?;
    let [a, b] = [bed.cluster(0), bed.cluster(1)];
    start_client(b, &namespace).await?;
    let pods = start(a, &namespace, &DATABASE).await?;
    export(a, &namespace, service()).await?;
    let service = format!("mysql.{namespace}.svc.{CLUSTERSET}");
    let first = format!("mysql-0.{}.{service}", a.name());
    resolves(b, &namespace, &service, Some(&addresses(&pods))).await?;

    turn(a, &pods[0], false).await?;
    resolves(b, &namespace, &service, Some(&addresses(&pods[1..]))).await?;
    resolves(b, &namespace, &first, None).await?;

    turn(a, &pods[1], false).await?;
    resolves(b, &namespace, &service, None).await?;

    for pod in &pods {
        turn(a, pod, true).await?;
    }
    resolves(b, &namespace, &service, Some(&addresses(&pods))).await?;
    resolves(b, &namespace, &first, Some(&addresses(&pods[..1]))).await
}
