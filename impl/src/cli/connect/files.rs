//! What a process is told of a peer: the keys of a Secret that are mounted as files, in the words of the chart. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    net::IpAddr,
    path::Path,
};

use tombolo_core::names::ClusterName;

use super::{
    exposure::Endpoint,
    facts::{Object, Site},
    refusal::Refusal,
};
use crate::kvstore::config::EtcdConfig;

/// Secret with the peers' files for the mesh role. Cilium.
pub(super) const MESH_SECRET: &str = "cilium-kvstoremesh";
/// Secret with the peers' files for the operator. Cilium.
pub(super) const OPERATOR_SECRET: &str = "cilium-clustermesh";

/// Where both are mounted. Cilium.
const DIRECTORY: &str = "/var/lib/cilium/clustermesh";

/// Keys and their content.
pub(super) type Data = BTreeMap<String, Vec<u8>>;

/// How a peer is read.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Credentials {
    /// With the certificate that all peers are shown.
    Common,
    /// With a certificate for this peer alone.
    Own(Tls),
}

/// TLS files for one peer, PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Tls {
    /// Authorities that the peer's etcd is signed by.
    pub(super) authorities: String,
    /// The certificate.
    pub(super) certificate: String,
    /// Its key.
    pub(super) key: String,
}

/// The keys for a process that reads the peer's own etcd.
pub(super) fn of_peer(peer: &ClusterName, endpoint: &Endpoint, credentials: &Credentials) -> Data {
    let host = &endpoint.host;
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.clone()
    };
    let url = format!("https://{host}:{}", endpoint.port);
    let (prefix, separator) = match credentials {
        Credentials::Common => ("common", '-'),
        Credentials::Own(_) => (peer.as_str(), '.'),
    };
    let mut text = file(&url, prefix, separator);
    if !endpoint.ips.is_empty() {
        let _ = write!(text, "cilium-host-aliases:\n- hostname: {host}\n  ips:\n");
        for ip in &endpoint.ips {
            let _ = writeln!(text, "  - \"{ip}\"");
        }
    }
    let mut data = Data::from([(peer.to_string(), text.into_bytes())]);
    if let Credentials::Own(tls) = credentials {
        let [ca, certificate, key] = tls_keys(peer);
        data.insert(ca, tls.authorities.clone().into_bytes());
        data.insert(certificate, tls.certificate.clone().into_bytes());
        data.insert(key, tls.key.clone().into_bytes());
    }
    data
}

/// The keys for an operator that reads the copies in its own etcd.
pub(super) fn of_own_store(peer: &ClusterName, url: &str) -> Data {
    let text = file(url, "local", '-');
    Data::from([(peer.to_string(), text.into_bytes())])
}

fn file(url: &str, prefix: &str, separator: char) -> String {
    let path = |what: &str| format!("{DIRECTORY}/{prefix}{separator}etcd-client{what}");
    format!(
        "endpoints:\n- {url}\ntrusted-ca-file: {}\ncert-file: {}\nkey-file: {}\n",
        path("-ca.crt"),
        path(".crt"),
        path(".key")
    )
}

/// Names of the keys with a peer's own TLS files: authorities, certificate, key. Cilium.
pub(super) fn tls_keys(peer: &ClusterName) -> [String; 3] {
    ["-ca.crt", ".crt", ".key"].map(|what| format!("{peer}.etcd-client{what}"))
}

/// The keys of an object that are about a peer.
pub(super) fn keys_of<'a>(object: &'a Object, peer: &ClusterName) -> BTreeSet<&'a str> {
    let about = |key: &&String| key.as_str() == peer.as_str() || tls_keys(peer).contains(key);
    object
        .data
        .keys()
        .filter(about)
        .map(String::as_str)
        .collect()
}

/// The addresses by which a peer is reached according to the file that is there.
pub(super) fn addresses_before(object: Option<&Object>, peer: &ClusterName) -> Vec<IpAddr> {
    let text = object.and_then(|it| it.data.get(peer.as_str()));
    let text = text.map(|text| String::from_utf8_lossy(text));
    let parsed = text.and_then(|text| EtcdConfig::parse(Path::new(peer.as_str()), &text).ok());
    let targets = parsed.into_iter().flat_map(|config| config.targets);
    let ip = |url: &str| {
        let (host, _) = url.strip_prefix("https://")?.rsplit_once(':')?;
        host.trim_matches(['[', ']']).parse().ok()
    };
    targets.filter_map(|target| ip(&target.url)).collect()
}

/// The field manager of what `connect` writes about a peer: one for each, so that a second peer takes nothing from the first.
pub(super) fn manager(peer: &ClusterName) -> String {
    format!("tombolo-connect-{peer}")
}

/// What speaks against writing these keys, given what is there.
pub(super) fn against(
    site: &Site,
    name: &'static str,
    object: Option<&Object>,
    peer: &ClusterName,
    (data, advice): (&Data, String),
) -> Option<Refusal> {
    let object = object?;
    if let Some(refusal) = of_helm(site, "Secret", name, object, advice) {
        return Some(refusal);
    }
    let own = manager(peer);
    data.iter().find_map(|(key, content)| {
        let managers = object.managers.get(key).cloned().unwrap_or_default();
        let differs = object.data.get(key).is_some_and(|there| there != content);
        let others: Vec<_> = managers.into_iter().filter(|it| *it != own).collect();
        (differs && !others.is_empty()).then(|| Refusal::Foreign {
            cluster: site.name().to_owned(),
            kind: "Secret",
            name: name.to_owned(),
            key: key.clone(),
            managers: others.join(", "),
        })
    })
}

/// Whether an object is a Helm release's.
pub(super) fn of_helm(
    site: &Site,
    kind: &'static str,
    name: &str,
    object: &Object,
    advice: String,
) -> Option<Refusal> {
    let (cluster, name) = (site.name().to_owned(), name.to_owned());
    let release = object.release.clone()?;
    let hollow = match object.data.get("users.yaml") {
        Some(users) => users.trim_ascii() == b"users: []",
        None => object.data.is_empty(),
    };
    Some(if hollow {
        Refusal::OldChart {
            cluster,
            release,
            kind,
            name,
        }
    } else {
        Refusal::Helm {
            cluster,
            release,
            kind,
            name,
            advice,
        }
    })
}

/// What to do with the values of a chart that lists its peers.
pub(super) fn advice(peer: &ClusterName, endpoint: &Endpoint) -> String {
    let address = if endpoint.ips.is_empty() {
        format!("address: {}", endpoint.host)
    } else {
        let ips: Vec<_> = endpoint.ips.iter().map(|ip| format!("\"{ip}\"")).collect();
        format!("ips: [{}]", ips.join(", "))
    };
    let port = endpoint.port;
    format!(
        "add there, and run helm upgrade:\nclustermesh:\n  config:\n    clusters:\n    - {{name: {peer}, {address}, port: {port}}}\n"
    )
}
