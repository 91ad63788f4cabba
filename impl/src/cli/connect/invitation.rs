//! The file that one cluster hands to another, when nobody has both kubeconfigs: who it is, where its etcd is, and a certificate
//! for the other. Whoever has it can read what the cluster publishes. What is read is not trusted.

use std::{
    fs::File,
    io::Read as _,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
};

use ipnet::IpNet;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tombolo_core::names::ClusterName;

use super::{
    credentials::Decided,
    exposure::Endpoint,
    facts::{Card, Networks},
    files::{Credentials, Tls},
};
use crate::{
    certificate::{self, Certificate, Usage},
    cli::certs,
};

/// What the file is, in its first line.
const KIND: &str = "tombolo-invitation/v1";

/// Largest file that is read, in bytes. One with a bundle of ten authorities has 16 kB.
const SIZE_MAX: u64 = 256 * 1024;
/// Most addresses and networks, each.
const LIST_MAX: usize = 64;
/// Longest text that is no certificate, in bytes.
const TEXT_MAX: usize = 253;

/// What is wrong with an invitation.
#[derive(Debug, Error)]
pub(in crate::cli) enum InvitationError {
    /// It cannot be read.
    #[error("{}: cannot be read: {source}; check the path and its permissions", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is something else.
    #[error(
        "{}: {field}: {problem}; expected a file that `tombolo connect CONTEXT --invite NAME` of the same version has written; have it written anew",
        file.display()
    )]
    Content {
        /// The file.
        file: PathBuf,
        /// The field.
        field: &'static str,
        /// What is wrong.
        problem: String,
    },
}

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    invitation: String,
    /// Whom it is for.
    r#for: ClusterName,
    cluster: ClusterName,
    id: u32,
    max_connected_clusters: u32,
    version: String,
    pod_networks: Vec<IpNetText>,
    service_networks: Vec<IpNetText>,
    host: String,
    ips: Vec<IpAddr>,
    port: u16,
    ca: String,
    certificate: String,
    key: String,
}

/// A network as text.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct IpNetText(IpNet);

impl TryFrom<String> for IpNetText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let net = text.parse().map_err(|_| format!("{text:?} is no network"));
        net.map(Self)
    }
}

impl From<IpNetText> for String {
    fn from(net: IpNetText) -> Self {
        net.0.to_string()
    }
}

/// An invitation, read and checked.
pub(super) struct Invitation {
    /// Whom it is for.
    pub(super) guest: ClusterName,
    /// Who invites.
    pub(super) card: Card,
    /// Where its etcd is.
    pub(super) endpoint: Endpoint,
    /// With what to read it.
    pub(super) decided: Decided,
}

/// The text of an invitation.
pub(super) fn render(
    card: &Card,
    guest: &ClusterName,
    endpoint: &Endpoint,
    tls: &Tls,
) -> Result<String, String> {
    let nets = |nets: &[IpNet]| nets.iter().map(|net| IpNetText(*net)).collect();
    let written = Written {
        invitation: KIND.to_owned(),
        r#for: guest.clone(),
        cluster: card.cluster.clone(),
        id: card.id,
        max_connected_clusters: card.max_clusters,
        version: card.version.clone(),
        pod_networks: nets(&card.networks.pods),
        service_networks: nets(&card.networks.services),
        host: endpoint.host.clone(),
        ips: endpoint.ips.clone(),
        port: endpoint.port,
        ca: tls.authorities.clone(),
        certificate: tls.certificate.clone(),
        key: tls.key.clone(),
    };
    serde_saphyr::to_string(&written).map_err(|error| error.to_string())
}

/// Reads an invitation.
pub(super) fn read(file: &Path, now: Timestamp) -> Result<Invitation, InvitationError> {
    let failed = |source| InvitationError::Read {
        file: file.to_owned(),
        source,
    };
    let mut text = Vec::new();
    let open = File::open(file).map_err(failed)?;
    // A file that never ends is not read to its end.
    open.take(SIZE_MAX + 1)
        .read_to_end(&mut text)
        .map_err(failed)?;
    parse(&text, now).map_err(|(field, problem)| InvitationError::Content {
        file: file.to_owned(),
        field,
        problem,
    })
}

type Problem = (&'static str, String);

fn parse(text: &[u8], now: Timestamp) -> Result<Invitation, Problem> {
    let whole = |problem: &str| ("(the whole file)", problem.to_owned());
    if text.len() as u64 > SIZE_MAX {
        return Err(whole("is larger than 256 kB"));
    }
    let text = std::str::from_utf8(text).map_err(|_| whole("is no text"))?;
    let written: Written = serde_saphyr::from_str(text)
        .map_err(|error| whole(&error.without_snippet().to_string()))?;
    check_fields(&written)?;
    let tls = Tls {
        authorities: written.ca,
        certificate: written.certificate,
        key: written.key,
    };
    let (tls, certificate) = check_tls(tls, &written.r#for, now)?;
    let until = certificate.not_after.strftime("%Y-%m-%d");
    let user = certificate.subject();
    Ok(Invitation {
        decided: Decided {
            told: format!("the invitation's certificate for {user}, until {until}"),
            credentials: Credentials::Own(tls),
            not_after: Some(certificate.not_after),
        },
        guest: written.r#for,
        endpoint: Endpoint {
            host: written.host,
            ips: written.ips,
            port: written.port,
            by: "invitation".to_owned(),
        },
        card: Card {
            cluster: written.cluster,
            id: written.id,
            max_clusters: written.max_connected_clusters,
            version: written.version,
            networks: Networks {
                pods: written.pod_networks.into_iter().map(|it| it.0).collect(),
                services: written
                    .service_networks
                    .into_iter()
                    .map(|it| it.0)
                    .collect(),
            },
        },
    })
}

fn check_fields(written: &Written) -> Result<(), Problem> {
    let wrong = |field, problem: &str| Err((field, problem.to_owned()));
    if written.invitation != KIND {
        return wrong("invitation", "is another kind or version of file");
    }
    if written.r#for == written.cluster {
        return wrong("for", "is the cluster itself");
    }
    if !is_host(&written.host) {
        return wrong("host", "is no host name or IP address");
    }
    if written.port == 0 {
        return wrong("port", "is 0");
    }
    if written.version.len() > TEXT_MAX || written.version.chars().any(char::is_control) {
        return wrong("version", "is no version");
    }
    let lists = [
        ("ips", written.ips.len()),
        ("podNetworks", written.pod_networks.len()),
        ("serviceNetworks", written.service_networks.len()),
    ];
    if let Some((field, _)) = lists.into_iter().find(|(_, length)| *length > LIST_MAX) {
        return wrong(field, "has more than 64 entries");
    }
    let broadcast = IpAddr::V4(Ipv4Addr::BROADCAST);
    let forbidden = |ip: &&IpAddr| ip.is_unspecified() || ip.is_multicast() || **ip == broadcast;
    if written.ips.iter().any(|ip| forbidden(&ip)) {
        return wrong("ips", "has an address that is no server's");
    }
    Ok(())
}

/// Whether a text is a host name in lower case or an IP address: it becomes part of a URL.
pub(super) fn is_host(text: &str) -> bool {
    if text.parse::<IpAddr>().is_ok() {
        return true;
    }
    let label = |label: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        (1..=63).contains(&label.len()) && label.chars().all(inner) && !label.starts_with('-')
    };
    text.len() <= TEXT_MAX && text.split('.').all(label)
}

/// The TLS files, written anew from what could be read, and the certificate.
fn check_tls(tls: Tls, guest: &ClusterName, now: Timestamp) -> Result<(Tls, Certificate), Problem> {
    let authorities = Certificate::read_all(tls.authorities.as_bytes())
        .map_err(|error| ("ca", error.to_string()))?;
    if authorities.iter().any(|it| !it.is_authority) {
        return Err(("ca", "has a certificate that is no authority's".to_owned()));
    }
    let at_certificate = |problem: String| ("certificate", problem);
    let chain = Certificate::read_all(tls.certificate.as_bytes())
        .map_err(|error| at_certificate(error.to_string()))?;
    let first = chain[0].clone();
    first
        .check_time(now)
        .map_err(|fault| at_certificate(fault.to_string()))?;
    let users = ["remote".to_owned(), super::users::user(guest)];
    if !first
        .common_name
        .as_ref()
        .is_some_and(|name| users.contains(name))
    {
        let subject = first.subject();
        return Err(at_certificate(format!(
            "is for {subject}, not for remote-{guest}"
        )));
    }
    certificate::check_authority(&chain, &authorities, Usage::Client)
        .map_err(|fault| at_certificate(fault.to_string()))?;
    let fits = certificate::check_key(&chain, tls.key.as_bytes());
    fits.map_err(|error| ("key", error.to_string()))?
        .map_err(|_| ("key", "is not the key of the certificate".to_owned()))?;
    let checked = Tls {
        // Nothing but certificates gets into the Secret.
        authorities: certs::pem(&authorities),
        certificate: certs::pem(&chain),
        key: tls.key,
    };
    Ok((checked, first))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            credentials::{Read, sign},
            facts::Site,
            testkit::{cluster, now, root, site},
        },
        *,
    };

    fn written(site: &Site) -> String {
        let publisher = site.publisher.as_ref().unwrap();
        let decided = sign(Read { site, publisher }, &cluster("rome"), now()).unwrap();
        let Credentials::Own(tls) = decided.credentials else {
            panic!("a certificate of its own");
        };
        let endpoint = Endpoint {
            host: "paris.mesh.cilium.io".to_owned(),
            ips: vec![[192, 0, 2, 1].into()],
            port: 32379,
            by: String::new(),
        };
        render(&site.card, &cluster("rome"), &endpoint, &tls).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let paris = site("paris", 1, &root());

        let read = parse(written(&paris).as_bytes(), now()).unwrap();

        assert_eq!(read.card, paris.card);
        assert_eq!(read.guest, cluster("rome"));
        assert_eq!((read.endpoint.port, read.endpoint.ips.len()), (32379, 1));
        assert!(
            read.decided
                .told
                .contains("for remote-rome, until 2029-11-29"),
            "{}",
            read.decided.told
        );
    }

    #[test]
    fn whatever_is_wrong_with_a_file_is_told_by_its_field_and_no_key_is_shown() {
        let text = written(&site("paris", 1, &root()));
        let other = written(&site("paris", 1, &root()));
        let block = |text: &str, key: &str| {
            let (_, rest) = text.split_once(&format!("\n{key}: ")).unwrap();
            let end = rest.find("-----END").unwrap();
            rest[..end].to_owned()
        };
        let cases = [
            ("invitation", text.replace("invitation/v1", "invitation/v2")),
            ("for", text.replace("for: rome", "for: paris")),
            ("host", text.replace("paris.mesh.cilium.io", "'paris/../x'")),
            (
                "host",
                text.replace("paris.mesh.cilium.io", "\"a\\nkey-file: b\""),
            ),
            ("port", text.replace("32379", "0")),
            ("ips", text.replace("192.0.2.1", "224.0.0.1")),
            ("ips", text.replace("192.0.2.1", "255.255.255.255")),
            ("certificate", text.replace("for: rome", "for: oslo")),
            (
                "certificate",
                text.replace(&block(&text, "certificate"), &block(&other, "certificate")),
            ),
            (
                "key",
                text.replace(&block(&text, "key"), &block(&other, "key")),
            ),
            (
                "ca",
                text.replace(&block(&text, "ca"), &block(&text, "certificate")),
            ),
            ("(the whole file)", format!("{text}more: 1\n")),
            (
                "(the whole file)",
                text.replace("cluster: paris", "cluster: ''"),
            ),
            (
                "(the whole file)",
                text.replace("10.1.0.0/16", "10.1.0.0/99"),
            ),
            ("(the whole file)", "a".repeat(300_000)),
            ("(the whole file)", String::new()),
        ];

        for (number, (field, text)) in cases.into_iter().enumerate() {
            let (told, problem) = parse(text.as_bytes(), now()).err().unwrap_or_else(|| {
                panic!("case {number} is taken");
            });
            assert_eq!(told, field, "case {number}: {problem}");
            assert!(!problem.contains("PRIVATE"), "case {number}: {problem}");
        }
        let late = now()
            .checked_add(jiff::Span::new().hours(24 * 1100))
            .unwrap();
        let (field, problem) = parse(text.as_bytes(), late).err().unwrap();
        assert_eq!(field, "certificate");
        assert!(problem.contains("expired at 2029-11-29"), "{problem}");
    }
}
