//! A web server of one cluster, asked from the other.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tombolo_testbed::Testbed;

use super::pods::{
    self, BUDGET, CLUSTERSET, Servers, answered, export, resolve, resolves, start, start_client,
    turn,
};

/// Says over HTTP which pod it is, after it has read the request to its end.
const SCRIPT: &str = r#"cat > /tmp/page <<'END'
while read -r line; do [ ${#line} -gt 1 ] || break; done
printf 'HTTP/1.0 200 OK\r\n\r\nWelcome to %s' "$(hostname)"
END
exec socat TCP6-LISTEN:80,fork,reuseaddr,ipv6only=0 EXEC:'/bin/sh /tmp/page'"#;

const WEB: Servers<'_> = Servers {
    name: "web",
    replicas: 1,
    script: SCRIPT,
};

fn service() -> Value {
    json!({
        "metadata": { "name": "web" },
        "spec": {
            "ipFamilyPolicy": "PreferDualStack",
            "selector": { "app": "web" },
            "ports": [{ "name": "http", "port": 80 }],
        },
    })
}

/// What a server says to a request.
fn page(host: &str) -> String {
    format!("HTTP/1.0 200 OK\r\n\r\nWelcome to {host}")
}

pub(crate) async fn reached(bed: &Testbed) -> Result<()> {
    let namespace = bed.namespace().await?;
    let [a, b] = [bed.cluster(0), bed.cluster(1)];
    for cluster in [a, b] {
        start_client(cluster, &namespace).await?;
    }
    start(a, &namespace, &WEB).await?;

    export(a, &namespace, service()).await?;

    let shared = format!("web.{namespace}.svc.{CLUSTERSET}");
    let local = format!("web.{namespace}.svc.cluster.local");
    for cluster in [a, b] {
        answered(cluster, &namespace, (&shared, 80), &[&page("web-0")]).await?;
    }
    answered(a, &namespace, (&local, 80), &[&page("web-0")]).await?;
    // In b there is no Service of that name: the local name is not there, and reaches nobody.
    resolves(b, &namespace, &local, None).await?;
    let asked = pods::ask(b, &namespace, &local, 80).await;
    ensure!(asked.is_err(), "{asked:?}");

    // With a Service in b that is not exported the local name leads to b's own pod, and the ClusterSet's name still to a's.
    let script = SCRIPT.replace("Welcome to %s", "Own page of %s");
    let own = Servers {
        script: &script,
        ..WEB
    };
    start(b, &namespace, &own).await?;
    let services = kube::Api::namespaced(b.client(), &namespace);
    let object: k8s_openapi::api::core::v1::Service = serde_json::from_value(service())?;
    services
        .create(&kube::api::PostParams::default(), &object)
        .await?;
    answered(
        b,
        &namespace,
        (&local, 80),
        &[&page("web-0").replace("Welcome to", "Own page of")],
    )
    .await?;
    answered(b, &namespace, (&shared, 80), &[&page("web-0")]).await?;
    let [of_local, of_shared] = [
        resolve(b, &namespace, &local).await,
        resolve(b, &namespace, &shared).await,
    ];
    let addresses = |it: Result<_, String>| it.map_err(anyhow::Error::msg);
    let [of_local, of_shared] = [addresses(of_local)?, addresses(of_shared)?];
    ensure!(
        of_local
            .as_ref()
            .context("a name")?
            .is_disjoint(of_shared.as_ref().context("a name")?)
    );
    Ok(())
}

/// A virtual IP stays, and what turns unready behind it gets no traffic.
pub(crate) async fn unready(bed: &Testbed) -> Result<()> {
    let namespace = bed.namespace().await?;
    let [a, b] = [bed.cluster(0), bed.cluster(1)];
    start_client(b, &namespace).await?;
    let two = Servers { replicas: 2, ..WEB };
    let pods = start(a, &namespace, &two).await?;
    export(a, &namespace, service()).await?;
    let host = format!("web.{namespace}.svc.{CLUSTERSET}");
    let [first, second] = [page("web-0"), page("web-1")];
    answered(b, &namespace, (&host, 80), &[&first, &second]).await?;
    let before = resolve(b, &namespace, &host)
        .await
        .map_err(anyhow::Error::msg)?;

    turn(a, &pods[0], false).await?;
    answered(b, &namespace, (&host, 80), &[&second]).await?;
    turn(a, &pods[1], false).await?;
    tombolo_testbed::eventually(BUDGET, "nobody answers", async || {
        pods::ask(b, &namespace, &host, 80)
            .await
            .map_or(Ok(()), Err)
    })
    .await?;
    let after = resolve(b, &namespace, &host)
        .await
        .map_err(anyhow::Error::msg)?;
    ensure!(
        before == after && after.is_some(),
        "the name keeps its addresses: {before:?}, {after:?}"
    );

    for pod in &pods {
        turn(a, pod, true).await?;
    }
    answered(b, &namespace, (&host, 80), &[&first, &second]).await
}
