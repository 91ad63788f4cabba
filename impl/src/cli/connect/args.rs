//! Flags of `tombolo connect` and `tombolo disconnect`.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, time::Duration};

use clap::Args;
use tombolo_core::names::{ClusterName, Namespace};

use super::{
    exposure::{Exposure, Given, Wish},
    invitation::is_host,
};
use crate::cli::args::{Output, duration, kubeconfig};

/// Where the clusters are, and how the answer looks.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// Contexts of the clusters.
    #[arg(required = true, value_name = "CONTEXT")]
    pub contexts: Vec<String>,
    /// Kubeconfig with the contexts; may be repeated, of a context the first counts that has it. ~/.kube/config when absent.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", value_parser = kubeconfig(), value_delimiter = ':')]
    pub kubeconfig: Vec<PathBuf>,
    /// Namespace of the installations; CONTEXT=NAMESPACE for one cluster.
    #[arg(long, short, value_name = "[CONTEXT=]NAME", default_value = "tombolo-system", value_parser = Of::<Namespace>::parse)]
    pub namespace: Vec<Of<Namespace>>,
    /// Say what would be written, and write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Do not wait until the processes of the clusters have taken it up.
    #[arg(long)]
    pub no_wait: bool,
    /// How long to wait at most.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub wait_duration: Duration,
    /// How to say it.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// Flags of `tombolo connect`.
#[derive(Debug, Clone, Args)]
pub struct ConnectArgs {
    /// Where the clusters are.
    #[command(flatten)]
    pub common: Common,
    /// How the mesh etcd of a cluster is reached; as its Service is, when absent. Where the chart's Service is of another type,
    /// a Service tombolo-connect is made.
    #[arg(long, value_name = "[CONTEXT=]HOW", value_parser = Of::<Exposure>::parse, long_help = EXPOSURE_HELP)]
    pub exposure: Vec<Of<Exposure>>,
    /// Where the mesh etcd of a cluster is reached, whatever its Services say: CONTEXT=HOST:PORT, or CONTEXT=IP:PORT,IP:PORT.
    #[arg(long, value_name = "CONTEXT=HOST:PORT", value_parser = endpoint)]
    pub endpoint: Vec<(String, Given)>,
    /// Go on although versions are far apart or networks overlap.
    #[arg(long)]
    pub force: bool,
    /// With one context: let the cluster NAME in, and write an invitation for it to --file.
    #[arg(long, value_name = "NAME", requires = "file")]
    pub invite: Option<ClusterName>,
    /// Where the invitation goes. It holds a key, and is readable by you only.
    #[arg(long, value_name = "FILE", requires = "invite")]
    pub file: Option<PathBuf>,
    /// Replace the file when it exists.
    #[arg(long, requires = "invite")]
    pub overwrite: bool,
    /// With one context: read the cluster that has written this invitation.
    #[arg(long, value_name = "FILE")]
    pub accept: Option<PathBuf>,
}

const EXPOSURE_HELP: &str = "\
How the mesh etcd of a cluster is reached from the others: node-port, load-balancer, or cluster-ip where there are routes to the \
addresses of Services. CONTEXT=HOW for one cluster. When absent, as its Service is. Where the chart's Service is of another type, \
a Service tombolo-connect is made, and goes with the last peer.";

/// Flags of `tombolo disconnect`.
#[derive(Debug, Clone, Args)]
pub struct DisconnectArgs {
    /// Where the clusters are.
    #[command(flatten)]
    pub common: Common,
    /// With one context: the peer to take out of that cluster, when the other cluster is gone or not yours.
    #[arg(long, value_name = "NAME")]
    pub peer: Option<ClusterName>,
}

/// Something for all clusters, or for that of one context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Of<T> {
    /// The context; none for all.
    pub context: Option<String>,
    /// What.
    pub value: T,
}

impl Of<Namespace> {
    fn parse(text: &str) -> Result<Self, String> {
        let (context, value) = split(text);
        let value = Namespace::try_from(value).map_err(|error| error.to_string())?;
        Ok(Self { context, value })
    }
}

impl Of<Exposure> {
    fn parse(text: &str) -> Result<Self, String> {
        let (context, value) = split(text);
        let value = <Exposure as clap::ValueEnum>::from_str(value, true)
            .map_err(|_| "expected node-port, load-balancer or cluster-ip".to_owned())?;
        Ok(Self { context, value })
    }
}

fn split(text: &str) -> (Option<String>, &str) {
    match text.rsplit_once('=') {
        Some((context, value)) => (Some(context.to_owned()), value),
        None => (None, text),
    }
}

/// What is said of a context, the special before the general.
pub(super) fn of<'a, T>(all: &'a [Of<T>], context: &str) -> Option<&'a T> {
    let special = all
        .iter()
        .rev()
        .find(|it| it.context.as_deref() == Some(context));
    let general = || all.iter().rev().find(|it| it.context.is_none());
    special.or_else(general).map(|it| &it.value)
}

impl ConnectArgs {
    /// What the user says of the cluster of a context.
    pub(super) fn wish(&self, context: &str) -> Wish {
        let endpoints: BTreeMap<_, _> = self.endpoint.iter().cloned().collect();
        Wish {
            exposure: of(&self.exposure, context).copied(),
            endpoint: endpoints.get(context).cloned(),
        }
    }

    /// Contexts that flags name and that are not among those to be connected.
    pub(super) fn strangers(&self) -> Vec<&str> {
        let named = self.exposure.iter().filter_map(|it| it.context.as_deref());
        let named = named.chain(self.endpoint.iter().map(|(context, _)| context.as_str()));
        let named = named.chain(self.common.named());
        let known = |context: &&str| self.common.contexts.iter().any(|it| it == context);
        named.filter(|context| !known(context)).collect()
    }
}

impl Common {
    fn named(&self) -> impl Iterator<Item = &str> {
        self.namespace.iter().filter_map(|it| it.context.as_deref())
    }

    /// Contexts that flags name and that are not among those of the command.
    pub(super) fn strangers(&self) -> Vec<&str> {
        let known = |context: &&str| self.contexts.iter().any(|it| it == context);
        self.named().filter(|context| !known(context)).collect()
    }
}

/// Parses `CONTEXT=HOST:PORT` or `CONTEXT=IP:PORT,IP:PORT`.
fn endpoint(text: &str) -> Result<(String, Given), String> {
    let expected = "expected CONTEXT=HOST:PORT, or CONTEXT=IP:PORT,IP:PORT with one port";
    let (context, rest) = text.rsplit_once('=').ok_or(expected)?;
    let mut ips = Vec::new();
    let mut ports = Vec::new();
    let places: Vec<_> = rest.split(',').collect();
    for place in &places {
        let (host, port) = place.rsplit_once(':').ok_or(expected)?;
        let port: u16 = port.parse().map_err(|_| expected)?;
        ports.push(port);
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<IpAddr>() {
            Ok(ip) if ip.is_unspecified() || ip.is_multicast() => {
                return Err(format!("{ip} is no server's address; {expected}"));
            }
            Ok(ip) => ips.push(ip),
            Err(_) if places.len() == 1 && is_host(host) => {
                return Ok((context.to_owned(), Given::Host(host.to_owned(), port)));
            }
            Err(_) => return Err(expected.to_owned()),
        }
    }
    let port = ports[0];
    if port == 0 || ports.iter().any(|it| *it != port) {
        return Err(expected.to_owned());
    }
    Ok((context.to_owned(), Given::Ips(ips, port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_host_or_ips_with_one_port() {
        let ips = |texts: &[&str]| texts.iter().map(|it| it.parse().unwrap()).collect();
        let cases = [
            (
                "a=rome.example.org:2379",
                Given::Host("rome.example.org".into(), 2379),
            ),
            ("a=192.0.2.1:1", Given::Ips(ips(&["192.0.2.1"]), 1)),
            (
                "a=192.0.2.1:1,[2001:db8::1]:1",
                Given::Ips(ips(&["192.0.2.1", "2001:db8::1"]), 1),
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(endpoint(text), Ok(("a".to_owned(), expected)), "{text}");
        }
        for text in [
            "a:1",
            "a=b",
            "a=b:x",
            "a=B_:1",
            "a=192.0.2.1:1,b:1",
            "a=192.0.2.1:1,192.0.2.2:2",
            "a=192.0.2.1:0",
            "a=0.0.0.0:1",
            "a=[::]:1",
            "a=224.0.0.1:1",
        ] {
            assert!(endpoint(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_said_of_one_context_counts_more_than_what_is_said_of_all() {
        let all: Vec<_> = ["node-port", "arn:aws:eks:1=load-balancer", "cluster-ip"]
            .map(|text| Of::<Exposure>::parse(text).unwrap())
            .into();

        assert_eq!(of(&all, "arn:aws:eks:1"), Some(&Exposure::LoadBalancer));
        assert_eq!(of(&all, "b"), Some(&Exposure::ClusterIp));
        assert_eq!(of::<Exposure>(&[], "b"), None);
    }
}
