//! With which certificate a cluster reads another's etcd: the common one where both have one authority; else one that is there
//! and serves; else a new one, signed by the authority of the etcd. Pure but for the signing.

use jiff::Timestamp;
use tombolo_core::names::ClusterName;

use super::{
    facts::{Certified, Object, Publisher, Site},
    files::{Credentials, Tls, tls_keys},
    refusal::Refusal,
    users,
};
use crate::{
    certificate::{self, Certificate, Fault, Usage},
    cli::certs,
};

/// How long a certificate for a peer holds, in days. 1095 as the chart's and Cilium's.
const VALIDITY_DAYS: u16 = 1095;

/// User that all peers have in common. Cilium.
const COMMON_USER: &str = "remote";

/// What was decided.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Decided {
    /// With what.
    pub(super) credentials: Credentials,
    /// The same for people.
    pub(super) told: String,
    /// Last second of the certificate.
    pub(super) not_after: Option<Timestamp>,
}

/// A cluster that is read, and what is known of its publisher.
#[derive(Clone, Copy)]
pub(super) struct Read<'a> {
    /// The cluster.
    pub(super) site: &'a Site,
    /// Its publisher.
    pub(super) publisher: &'a Publisher,
}

/// Decides with which certificate `reader` reads; `before` is the Secret that it has for that by now.
pub(super) fn decide(
    reader: &Site,
    read: Read<'_>,
    before: Option<&Object>,
    now: Timestamp,
) -> Result<Decided, Refusal> {
    let server = server(read, now)?;
    let (own, peer) = (&reader.card.cluster, &read.site.card.cluster);
    if let Some(certificate) = reader
        .shown
        .as_ref()
        .filter(|shown| has_one_authority(shown, server, own, now))
        .and_then(|shown| shown.chain.first())
    {
        return Ok(Decided {
            credentials: Credentials::Common,
            told: format!("the common certificate of {own}: both have one authority"),
            not_after: Some(certificate.not_after),
        });
    }
    let user = user(read.publisher, own);
    if let Some((tls, certificate)) = before.and_then(|it| serving(it, peer, server, &user, now)) {
        return Ok(decided(
            Tls {
                authorities: certs::pem(&server.trusted),
                ..tls
            },
            &certificate,
            peer,
        ));
    }
    signed_anew(read, own, server, now)
}

/// A new certificate for a peer, whatever it has.
pub(super) fn sign(read: Read<'_>, peer: &ClusterName, now: Timestamp) -> Result<Decided, Refusal> {
    let server = server(read, now)?;
    signed_anew(read, peer, server, now)
}

/// As whom a peer is known in an etcd.
pub(super) fn user(publisher: &Publisher, peer: &ClusterName) -> String {
    if publisher.users {
        users::user(peer)
    } else {
        COMMON_USER.to_owned()
    }
}

fn signed_anew(
    Read { site, publisher }: Read<'_>,
    own: &ClusterName,
    server: &Certified,
    now: Timestamp,
) -> Result<Decided, Refusal> {
    let user = user(publisher, own);
    let refused = |problem: String| Refusal::NoAuthority {
        context: site.context.clone(),
        namespace: site.namespace.clone(),
        user: user.clone(),
        problem,
    };
    let authority = publisher.authority.as_ref();
    let authority = authority.ok_or_else(|| {
        refused("Secret tombolo-ca does not exist, or has no ca.crt and ca.key".to_owned())
    })?;
    let pair = (authority.certificate.as_slice(), authority.key.as_slice());
    let client = certs::sign_client(pair, &user, VALIDITY_DAYS, now);
    let client = client.map_err(|error| refused(format!("Secret tombolo-ca: {error}")))?;
    let chain = Certificate::read_all(client.certificate.as_bytes());
    let chain = chain.map_err(|error| refused(error.to_string()))?;
    certificate::check_authority(&chain, &server.trusted, Usage::Client).map_err(|_| {
        refused("the authority of Secret tombolo-ca is not one that its etcd trusts".to_owned())
    })?;
    let tls = Tls {
        authorities: certs::pem(&server.trusted),
        certificate: client.certificate,
        key: client.key,
    };
    Ok(decided(tls, &chain[0], &site.card.cluster))
}

fn decided(tls: Tls, certificate: &Certificate, peer: &ClusterName) -> Decided {
    let user = certificate.subject();
    let until = certificate.not_after.strftime("%Y-%m-%d");
    Decided {
        told: format!("a certificate for {user}, signed by the authority of {peer}, until {until}"),
        credentials: Credentials::Own(tls),
        not_after: Some(certificate.not_after),
    }
}

/// The certificate of an etcd, if it can be used now.
fn server(Read { site, publisher }: Read<'_>, now: Timestamp) -> Result<&Certified, Refusal> {
    let refused = |problem: String| Refusal::Server {
        context: site.context.clone(),
        problem,
    };
    let server = publisher.server.as_ref();
    let server = server.ok_or_else(|| refused("is not in its Secret".to_owned()))?;
    let told = |fault: Fault| refused(fault.to_string());
    let first = server.chain.first();
    first
        .map_or(Ok(()), |it| it.check_time(now))
        .map_err(told)?;
    certificate::check_authority(&server.chain, &server.trusted, Usage::Server).map_err(told)?;
    Ok(server)
}

/// Whether each side trusts the authority of the other, so that the common certificate serves.
fn has_one_authority(
    shown: &Certified,
    server: &Certified,
    reader: &ClusterName,
    now: Timestamp,
) -> bool {
    let Some(certificate) = shown.chain.first() else {
        return false;
    };
    let name = certificate.common_name.as_deref();
    (name == Some(COMMON_USER) || name == Some(users::user(reader).as_str()))
        && certificate.check_time(now).is_ok()
        && certificate::check_authority(&shown.chain, &server.trusted, Usage::Client).is_ok()
        && certificate::check_authority(&server.chain, &shown.trusted, Usage::Server).is_ok()
}

/// A certificate for a peer that is there, if it serves and will do so for a third of its time.
fn serving(
    object: &Object,
    peer: &ClusterName,
    server: &Certified,
    user: &str,
    now: Timestamp,
) -> Option<(Tls, Certificate)> {
    let [_, crt, key] = tls_keys(peer);
    let (crt, key) = (object.data.get(&crt)?, object.data.get(&key)?);
    let chain = Certificate::read_all(crt).ok()?;
    let first = chain.first()?.clone();
    let trusted = certificate::check_authority(&chain, &server.trusted, Usage::Client);
    let fits = certificate::check_key(&chain, key).ok()?;
    let is_usable = first.common_name.as_deref() == Some(user)
        && trusted.is_ok()
        && fits.is_ok()
        && !is_due(&first, now);
    let tls = Tls {
        authorities: String::new(),
        certificate: String::from_utf8(crt.clone()).ok()?,
        key: String::from_utf8(key.clone()).ok()?,
    };
    is_usable.then_some((tls, first))
}

/// Whether two thirds of a certificate's time are over.
pub(super) fn is_due(certificate: &Certificate, now: Timestamp) -> bool {
    let (from, until) = (
        certificate.not_before.as_second(),
        certificate.not_after.as_second(),
    );
    now.as_second() < from || (now.as_second() - from) * 3 > (until - from) * 2
}
