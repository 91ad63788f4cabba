//! What the pods of CoreDNS answer: the proof that the zone is served, or no more.
//!
//! Each pod is asked by DNS over TCP through the API server (`pods/portforward`), so that no other server can answer in its place. It
//! serves the zone when it knows the zone's schema version, which nothing but its option `multicluster` makes up, and when a
//! name that does not exist is an answer: before CoreDNS has read all imports, that is an error.

mod message;

use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{Api, Client, ResourceExt as _, api::ListParams, core::Selector};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::{Instant, timeout},
};

use simple_dns::{RCODE, TYPE};

use self::message::Code;
use super::{args::ConfigureArgs, corefile::Zones};

/// How long one pod may take to answer all questions.
const ANSWER: Duration = Duration::from_secs(5);

/// Between two rounds of questions.
const PAUSE: Duration = Duration::from_secs(1);

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Every pod serves the zone.
    Served,
    /// No pod does.
    Gone,
}

/// Asks all pods of CoreDNS until they answer as is wanted; says how many there are, or what is not so yet when the time is over.
pub(super) async fn prove(
    client: &Client,
    args: &ConfigureArgs,
    wanted: Wanted,
    within: Duration,
) -> Result<String, String> {
    let until = Instant::now() + within;
    loop {
        let seen = look(client, args, wanted).await;
        if seen.is_ok() || Instant::now() + PAUSE > until {
            return seen;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn look(client: &Client, args: &ConfigureArgs, wanted: Wanted) -> Result<String, String> {
    let say = |error: kube::Error| error.to_string();
    let name = &args.coredns_deployment_name;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &args.coredns_namespace);
    let deployment = deployments.get(name).await.map_err(say)?;
    rolled_out(&deployment)?;
    let selector = deployment.spec.selector;
    let selector = Selector::try_from(selector).map_err(|error| error.to_string())?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &args.coredns_namespace);
    let listed = pods
        .list(&ListParams::default().labels_from(&selector))
        .await;
    let mut running = listed.map_err(say)?.items;
    running.retain(|it| it.metadata.deletion_timestamp.is_none());
    if running.is_empty() {
        return Err(format!(
            "Deployment {}/{name} has no pods",
            args.coredns_namespace
        ));
    }
    let zones = args.zones();
    let asked = running.iter().map(async |pod| {
        let answer = timeout(ANSWER, ask(&pods, pod, &zones)).await;
        let late = || Err(format!("no answer within {} s", ANSWER.as_secs()));
        let fits = answer
            .unwrap_or_else(|_| late())
            .and_then(|it| it.fits(wanted, &zones));
        fits.map_err(|why| format!("pod {}: {why}", pod.name_any()))
    });
    let wrong: Vec<_> = join_all(asked)
        .await
        .into_iter()
        .filter_map(Result::err)
        .collect();
    if wrong.is_empty() {
        let zone = &zones.clusterset;
        let all = running.len();
        return Ok(match wanted {
            Wanted::Served => format!("all pods of CoreDNS ({all}) answer in {zone}"),
            Wanted::Gone => format!("no pod of CoreDNS ({all} asked) serves {zone}"),
        });
    }
    Err(wrong.join("; "))
}

/// Refuses a Deployment whose pods are being replaced: those that are asked now may not be those that stay.
fn rolled_out(deployment: &Deployment) -> Result<(), String> {
    let status = deployment.status.clone().unwrap_or_default();
    let seen = status.observed_generation >= deployment.metadata.generation;
    let total = status.replicas.unwrap_or_default();
    let updated = status.updated_replicas.unwrap_or_default();
    if seen && updated == total {
        Ok(())
    } else {
        Err(format!(
            "{updated} of {total} pods of CoreDNS are of the latest rollout"
        ))
    }
}

/// What one pod said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Answers {
    /// Whether the zone has a schema version.
    served: bool,
    /// What a name says that is not there.
    nothing: Code,
    /// What the cluster's own API server says, in the cluster's zone.
    own: Code,
}

impl Answers {
    fn fits(self, wanted: Wanted, zones: &Zones) -> Result<(), String> {
        if self.own.0 != RCODE::NoError {
            return Err(format!(
                "kubernetes.default.svc.{}: {}",
                zones.cluster, self.own
            ));
        }
        match (wanted, self.served) {
            (Wanted::Gone, true) => Err(format!("still serves {}", zones.clusterset)),
            (Wanted::Served, false) => Err(format!("does not serve {} yet", zones.clusterset)),
            (Wanted::Served, true) if self.nothing.0 == RCODE::ServerFailure => {
                Err("has not read all imports yet".to_owned())
            }
            (Wanted::Served, true) | (Wanted::Gone, false) => Ok(()),
        }
    }
}

async fn ask(pods: &Api<Pod>, pod: &Pod, zones: &Zones) -> Result<Answers, String> {
    let say = |error: std::io::Error| format!("DNS over TCP: {error}");
    let port = port(pod);
    let forwarded = pods.portforward(&pod.name_any(), &[port]).await;
    let mut forwarded =
        forwarded.map_err(|error| format!("cannot forward to its port {port}: {error}"))?;
    let mut stream = forwarded
        .take_stream(port)
        .ok_or("its port is not forwarded")?;
    let zone = &zones.clusterset;
    let version = question(&mut stream, 1, &format!("dns-version.{zone}"), TYPE::TXT).await;
    let version = version.map_err(say)?;
    let nothing = question(
        &mut stream,
        2,
        &format!("tombolo-nothing.default.svc.{zone}"),
        TYPE::A,
    )
    .await;
    let own = question(
        &mut stream,
        3,
        &format!("kubernetes.default.svc.{}", zones.cluster),
        TYPE::A,
    )
    .await;
    let answers = Answers {
        served: version.code.0 == RCODE::NoError && version.answers > 0,
        nothing: nothing.map_err(say)?.code,
        own: own.map_err(say)?.code,
    };
    drop(stream);
    forwarded.abort();
    Ok(answers)
}

/// Where the pod takes DNS over TCP.
fn port(pod: &Pod) -> u16 {
    let containers = pod.spec.iter().flat_map(|it| &it.containers);
    let ports = containers.flat_map(|it| it.ports.iter().flatten());
    let mut ports = ports.filter(|it| it.protocol.as_deref() != Some("UDP"));
    let dns = ports.find(|it| {
        it.name
            .as_deref()
            .is_some_and(|name| name.starts_with("dns"))
    });
    dns.and_then(|it| u16::try_from(it.container_port).ok())
        .unwrap_or(53)
}

async fn question<S>(
    stream: &mut S,
    id: u16,
    name: &str,
    kind: TYPE,
) -> std::io::Result<message::Answer>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let question = message::question(id, name, kind)?;
    let length = u16::try_from(question.len()).map_err(std::io::Error::other)?;
    stream.write_u16(length).await?;
    stream.write_all(&question).await?;
    stream.flush().await?;
    let mut answer = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut answer).await?;
    message::read(&answer, id)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn zones() -> Zones {
        Zones {
            cluster: "cluster.local".parse().unwrap(),
            clusterset: "clusterset.local".parse().unwrap(),
        }
    }

    #[rstest]
    #[case(true, RCODE::NameError, RCODE::NoError, Ok(()), Err("still serves"))]
    #[case(true, RCODE::NoError, RCODE::NoError, Ok(()), Err("still serves"))]
    #[case(
        true,
        RCODE::ServerFailure,
        RCODE::NoError,
        Err("not read all imports"),
        Err("still serves")
    )]
    #[case(false, RCODE::NameError, RCODE::NoError, Err("does not serve"), Ok(()))]
    #[case(
        true,
        RCODE::NameError,
        RCODE::ServerFailure,
        Err("kubernetes.default.svc"),
        Err("SERVFAIL")
    )]
    #[case(
        false,
        RCODE::NameError,
        RCODE::NameError,
        Err("NXDOMAIN"),
        Err("kubernetes.default.svc")
    )]
    fn a_pod_proves_the_zone_and_that_the_own_zone_is_well(
        #[case] served: bool,
        #[case] nothing: RCODE,
        #[case] own: RCODE,
        #[case] on: Result<(), &str>,
        #[case] off: Result<(), &str>,
    ) {
        let answers = Answers {
            served,
            nothing: Code(nothing),
            own: Code(own),
        };

        for (wanted, expected) in [(Wanted::Served, on), (Wanted::Gone, off)] {
            match (answers.fits(wanted, &zones()), expected) {
                (Ok(()), Ok(())) => {}
                (Err(said), Err(part)) => assert!(said.contains(part), "{said}"),
                (said, expected) => panic!("{wanted:?}: {said:?}, expected {expected:?}"),
            }
        }
    }
}
