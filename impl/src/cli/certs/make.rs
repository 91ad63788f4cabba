//! The certificates of one cluster: which they are, and whom they are for.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    path::Path,
};

use jiff::{Timestamp, ToSpan};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyUsagePurpose, SanType};
use time::OffsetDateTime;
use tombolo_core::names::ClusterName;

use super::{
    Error, MakeArgs,
    args::San,
    authority::{Authority, Signed, pem, read_authorities},
    files::File,
};
use crate::cli::render;

/// Domain under which Cilium's clients look for the server of a cluster: `CLUSTER.mesh.cilium.io`.
const DOMAIN: &str = "mesh.cilium.io";
/// Certificates are valid from this many minutes before now, since clocks differ.
const BACKDATED_MINUTES: i64 = 5;

/// What was made.
pub(super) struct Made {
    /// Every file, to be written.
    pub(super) files: Vec<File>,
    /// The authorities, as PEM.
    pub(super) ca: String,
    /// Certificates by their file's name, with whom they are for.
    pub(super) leaves: Vec<Leaf>,
    /// When the last second of the leaves' validity is.
    pub(super) not_after: Timestamp,
}

/// A certificate and its key.
pub(super) struct Leaf {
    /// The name of its files, without `.crt` and `.key`.
    pub(super) name: String,
    /// Common name.
    pub(super) common_name: String,
    /// What it is for.
    pub(super) purpose: String,
    /// The two.
    pub(super) signed: Signed,
}

/// Makes everything; writes nothing.
pub(super) fn make(args: &MakeArgs, now: Timestamp) -> Result<Made, Error> {
    let (from, mut until) = validity(args.validity_days, now);
    let authority = match (&args.ca_cert, &args.ca_key) {
        (Some(cert), Some(key)) => Authority::read(cert, key, now)?,
        _ => Authority::make(
            &format!("Tombolo CA of {}", args.cluster_name),
            valid(from, until),
        )?,
    };
    // What outlives its authority is refused from then on; better to see that date in the certificate.
    until = until.min(authority.certificate.not_after);
    let mut authorities = vec![authority.certificate.clone()];
    for file in &args.trusted {
        for certificate in read_authorities("--trust", file)? {
            if !authorities.contains(&certificate) {
                authorities.push(certificate);
            }
        }
    }
    let ca = pem(&authorities);
    let mut files = vec![File::public("ca.crt", ca.clone())];
    if let Some(key) = &authority.made_key {
        files.push(File::private("ca.key", key.clone()));
    }
    let mut leaves = Vec::new();
    for (name, common_name, purpose, params) in wanted(args, from, until)? {
        let signed = authority.sign(&common_name, params)?;
        files.push(File::public(
            &format!("{name}.crt"),
            signed.certificate.clone(),
        ));
        files.push(File::private(&format!("{name}.key"), signed.key.clone()));
        leaves.push(Leaf {
            name,
            common_name,
            purpose,
            signed,
        });
    }
    Ok(Made {
        files,
        ca,
        leaves,
        not_after: until,
    })
}

/// What was written where, for people.
pub(super) fn summary(dir: &Path, made: &Made) -> String {
    let rows = made.leaves.iter().map(|leaf| {
        let name = format!("{}.crt", leaf.name);
        vec![name, leaf.common_name.clone(), leaf.purpose.clone()]
    });
    let table = render::table(&["FILE", "COMMON NAME", "FOR"], &rows.collect::<Vec<_>>());
    let until = made.not_after.strftime("%Y-%m-%d");
    format!(
        "{}: valid until {until}; the keys are beside them, readable by you only\n{table}\n",
        dir.display()
    )
}

type Wanted = (String, String, String, CertificateParams);

fn wanted(args: &MakeArgs, from: Timestamp, until: Timestamp) -> Result<Vec<Wanted>, Error> {
    let own = &args.cluster_name;
    let client = |user: String, purpose: String| {
        let params = client_params(from, until);
        (user.clone(), user, purpose, params)
    };
    let mut wanted = vec![
        server(args, valid(from, until))?,
        client(
            format!("admin-{own}"),
            format!("the mesh role of {own}: writes its etcd"),
        ),
        client(
            format!("local-{own}"),
            format!("readers inside {own}: the cache of all peers"),
        ),
        client("remote".to_owned(), "any peer: reads this etcd".to_owned()),
    ];
    let mut peers: Vec<&ClusterName> = vec![own];
    for peer in &args.peers {
        if !peers.contains(&peer) {
            peers.push(peer);
        }
    }
    wanted.extend(peers.into_iter().map(|peer| {
        let purpose = if peer == own {
            format!("{own} towards peers with the same authority")
        } else {
            format!("{peer}: reads this etcd")
        };
        client(format!("remote-{peer}"), purpose)
    }));
    Ok(wanted)
}

/// etcd also dials itself with it, as a client.
fn server(args: &MakeArgs, mut params: CertificateParams) -> Result<Wanted, Error> {
    let common_name = format!("clustermesh-apiserver.{}.svc", args.namespace);
    let names = [
        common_name.clone(),
        format!("*.{DOMAIN}"),
        format!("{}.{DOMAIN}", args.cluster_name),
    ];
    let mut sans: Vec<San> = names.into_iter().map(San::Name).collect();
    sans.push(San::Ip(Ipv4Addr::LOCALHOST.into()));
    sans.push(San::Ip(Ipv6Addr::LOCALHOST.into()));
    for san in &args.sans {
        if !sans.contains(san) {
            sans.push(san.clone());
        }
    }
    for san in sans {
        params.subject_alt_names.push(match san {
            San::Ip(ip) => SanType::IpAddress(ip),
            San::Name(name) => {
                SanType::DnsName(name.as_str().try_into().map_err(|source| Error::Sign {
                    name: name.clone(),
                    source,
                })?)
            }
        });
    }
    params.key_usages = usages();
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let purpose = format!("the mesh etcd of {}", args.cluster_name);
    Ok(("server".to_owned(), common_name, purpose, params))
}

/// First and last moment of a certificate that is made now.
pub(super) fn validity(days: u16, now: Timestamp) -> (Timestamp, Timestamp) {
    let from = now.saturating_sub(BACKDATED_MINUTES.minutes());
    let until = now.saturating_add((i64::from(days) * 24).hours());
    (
        from.expect("invariant: minutes are no calendar unit"),
        until.expect("invariant: hours are no calendar unit"),
    )
}

/// What a client's certificate says besides its common name.
pub(super) fn client_params(from: Timestamp, until: Timestamp) -> CertificateParams {
    let mut params = valid(from, until);
    params.key_usages = usages();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn usages() -> Vec<KeyUsagePurpose> {
    vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
    ]
}

fn valid(from: Timestamp, until: Timestamp) -> CertificateParams {
    let time = |at: Timestamp| {
        OffsetDateTime::from_unix_timestamp(at.as_second())
            .expect("invariant: within the years of both libraries")
    };
    let mut params = CertificateParams::default();
    params.not_before = time(from);
    params.not_after = time(until);
    params
}
