//! Which pods answer: of both clusters, per port, protocol and family; not those that are unready; and the same one to a client
//! with session affinity.

use std::collections::BTreeSet;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Service;

use super::{NEEDS, imports_with_ips, ips};
use crate::{
    case::{Case, Failure, Outcome},
    context::Context,
    expect::Seen,
    objects::{self, served},
    rules::Rule,
    traffic::{Answer, IN_A_ROW, Target, answers},
    workloads::Server,
};

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        id: "connectivity/both",
        title: "From every cluster pods of both answer at each port, by TCP and UDP, in each family, at the port of the pod that the Service names",
        rules: &[Rule(12), Rule(15), Rule(41), Rule(63)],
        features: NEEDS,
        upstream: None,
        bugs: &[],
        fails_first: "the import has IPs",
        run: |ctx| Box::pin(both(ctx)),
    },
    Case {
        id: "connectivity/unready",
        title: "From every cluster a pod that turns unready gets no traffic, and gets it again when it is ready",
        rules: &[Rule(15), Rule(41), Rule(63)],
        features: NEEDS,
        upstream: None,
        bugs: &[],
        fails_first: "the import has IPs",
        run: |ctx| Box::pin(unready(ctx)),
    },
    Case {
        id: "connectivity/affinity",
        title: "With session affinity a client is answered by the same pod every time, and by several without",
        rules: &[Rule(150), Rule(15), Rule(63)],
        features: NEEDS,
        upstream: None,
        bugs: &[],
        fails_first: "the import has IPs",
        run: |ctx| Box::pin(affinity(ctx)),
    },
];

/// Whom to ask behind an IP, and which port of the pods answers.
type Ask = fn(&str) -> (Target, u16);

/// Four ports, two numbers of the pods, without session affinity.
fn spread() -> Service {
    objects::service_with(|spec| {
        spec.session_affinity = None;
        spec.session_affinity_config = None;
        spec.ports = Some(vec![
            served("tcp", "TCP", 42, 42),
            served("udp", "UDP", 42, 42),
            served("other", "TCP", 80, 43),
            served("other-udp", "UDP", 80, 43),
        ]);
    })
}

/// Servers in both clusters, which export the Service alike.
async fn export_both(ctx: &Context, service: &Service) -> Result<[Vec<Server>; 2], Failure> {
    ctx.prepare().await?;
    let (first, second) = futures::try_join!(ctx.start_servers(0, 1), ctx.start_servers(1, 1))?;
    let (_, older) = ctx.export(0, service.clone()).await?;
    ctx.export_later(1, service.clone(), &older).await?;
    Ok([first, second])
}

/// Waits in every cluster until each IP is answered so at those ports.
async fn answered(ctx: &Context, step: &'static str, servers: &[Server], ports: &[Ask]) -> Outcome {
    let imports = imports_with_ips(ctx).await?;
    let asked = imports.iter().enumerate().map(async |(cluster, import)| {
        for (_, ip) in ips(import) {
            for port in ports {
                let (target, of_pod) = port(&ip);
                ctx.answered_by(step, cluster, &target, &answers(servers, of_pod))
                    .await?;
            }
        }
        Ok(())
    });
    try_join_all(asked).await.map(|_| ())
}

async fn both(ctx: &Context) -> Outcome {
    let servers = export_both(ctx, &spread()).await?.concat();

    let ports: [Ask; 4] = [
        |ip| (Target::tcp(ip, 42), 42),
        |ip| (Target::udp(ip, 42), 42),
        |ip| (Target::tcp(ip, 80), 43),
        |ip| (Target::udp(ip, 80), 43),
    ];
    answered(ctx, "pods of both clusters answer", &servers, &ports).await
}

async fn unready(ctx: &Context) -> Outcome {
    let servers = export_both(ctx, &spread()).await?;
    let [first, second] = &servers;
    let tcp: [Ask; 1] = [|ip| (Target::tcp(ip, 42), 42)];
    answered(ctx, "pods of both clusters answer", &servers.concat(), &tcp).await?;

    ctx.turn(1, &second[0], false).await?;
    answered(ctx, "the unready pod does not answer", first, &tcp).await?;

    ctx.turn(1, &second[0], true).await?;
    answered(ctx, "the pod answers again", &servers.concat(), &tcp).await
}

async fn affinity(ctx: &Context) -> Outcome {
    let servers = export_both(ctx, &spread()).await?;
    let tcp: [Ask; 1] = [|ip| (Target::tcp(ip, 42), 42)];
    answered(ctx, "without affinity both answer", &servers.concat(), &tcp).await?;

    // The time-out is longer than the case takes.
    let config = serde_json::json!({ "clientIP": { "timeoutSeconds": 3600 } });
    let patch = serde_json::json!({ "spec": { "sessionAffinity": "ClientIP", "sessionAffinityConfig": config } });
    for cluster in 0..2 {
        ctx.patch_service(cluster, &patch).await?;
    }

    let imports = imports_with_ips(ctx).await?;
    let all = answers(&servers.concat(), 42);
    for (cluster, import) in imports.iter().enumerate() {
        for (_, ip) in ips(import) {
            sticks(ctx, cluster, &Target::tcp(&ip, 42), &all).await?;
        }
    }
    Ok(())
}

/// Waits until one of the servers answers all the time.
async fn sticks(ctx: &Context, cluster: usize, target: &Target, all: &BTreeSet<Answer>) -> Outcome {
    let times = 2 * IN_A_ROW;
    let expected = format!("{times} answers in a row by the same of {all:?}");
    ctx.until(
        "with affinity the same pod answers",
        cluster,
        &expected,
        || async move {
            let answers = ctx.ask(cluster, target, times).await?;
            let by: BTreeSet<_> = answers.iter().copied().collect();
            if answers.len() == times && by.len() == 1 && by.is_subset(all) {
                return Ok(());
            }
            Err(Seen::from(format!("{} answers, by {by:?}", answers.len())))
        },
    )
    .await
}
