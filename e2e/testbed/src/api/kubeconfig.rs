//! Kubeconfig files.

use std::net::SocketAddr;

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::Pair;

/// A kubeconfig with one context, called as the cluster.
pub(crate) fn kubeconfig(name: &str, server: SocketAddr, ca: &str, client: &Pair) -> String {
    let encode = |pem: &str| data_encoding::BASE64.encode(pem.as_bytes());
    let json = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{ "name": name, "cluster": {
            "server": format!("https://{server}"),
            "certificate-authority-data": encode(ca),
        }}],
        "users": [{ "name": name, "user": {
            "client-certificate-data": encode(&client.certificate),
            "client-key-data": encode(&client.key),
        }}],
        "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
    });
    format!("{json:#}\n")
}

/// The same as a client's configuration.
pub(super) async fn config(text: &str) -> Result<kube::Config, KubeconfigError> {
    let kubeconfig = Kubeconfig::from_yaml(text)?;
    kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await
}
