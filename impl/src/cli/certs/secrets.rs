//! The certificates as Kubernetes Secrets, with the names that Cilium's chart gives them.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::{
    ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{
    MakeArgs,
    args::AuthMode,
    make::{Leaf, Made},
};

/// The Secrets as a YAML stream.
pub(super) fn render(args: &MakeArgs, made: &Made) -> Result<String> {
    let own = &args.cluster_name;
    let remote = match args.auth_mode {
        AuthMode::Legacy | AuthMode::Migration => "remote".to_owned(),
        AuthMode::Cluster => format!("remote-{own}"),
    };
    let secrets = [
        ("clustermesh-apiserver-server-cert", "server".to_owned()),
        ("clustermesh-apiserver-admin-cert", format!("admin-{own}")),
        ("clustermesh-apiserver-remote-cert", remote),
        ("clustermesh-apiserver-local-cert", format!("local-{own}")),
    ];
    let mut yaml = String::new();
    for (secret, name) in secrets {
        let leaf = made.leaves.iter().find(|leaf| leaf.name == name);
        let leaf = leaf.expect("invariant: every cluster has these");
        let secret = build(args, secret, leaf, &made.ca);
        yaml += "---\n";
        yaml += &serde_saphyr::to_string(&secret).context("a Secret cannot be written as YAML")?;
    }
    Ok(yaml)
}

fn build(args: &MakeArgs, name: &str, leaf: &Leaf, ca: &str) -> Secret {
    let data = [
        ("ca.crt", ca),
        ("tls.crt", leaf.signed.certificate.as_str()),
        ("tls.key", leaf.signed.key.as_str()),
    ];
    let data = data.map(|(key, text)| (key.to_owned(), ByteString(text.as_bytes().to_vec())));
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(args.namespace.to_string()),
            ..ObjectMeta::default()
        },
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(BTreeMap::from(data)),
        ..Secret::default()
    }
}
