//! A release in a cluster, and the accounts that it made.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::{Namespace, ServiceAccount},
};
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tombolo_testbed::Cluster;

use super::{
    Helm, Manifests,
    helm::{NAMESPACE, RELEASE, chart},
};

/// A release, or the place for one.
pub struct Installation<'t> {
    helm: &'t Helm,
    cluster: &'t Cluster,
}

/// An account of the release, as its pod would use it.
pub struct Account {
    /// A kubeconfig with the account's token.
    pub kubeconfig: PathBuf,
    /// A client with it.
    pub client: Client,
}

impl<'t> Installation<'t> {
    /// A namespace that takes only pods which can do no harm, and nothing in it yet.
    pub async fn prepare(helm: &'t Helm, cluster: &'t Cluster) -> Result<Self> {
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {
            "name": NAMESPACE,
            "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        }}))?;
        let api = Api::<Namespace>::all(cluster.client());
        if api.get_opt(NAMESPACE).await?.is_none() {
            api.create(&PostParams::default(), &namespace).await?;
        }
        Ok(Self { helm, cluster })
    }

    /// The cluster.
    pub fn cluster(&self) -> &'t Cluster {
        self.cluster
    }

    /// Namespaced objects of the release.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.cluster.client(), NAMESPACE)
    }

    /// `helm install`; returns the notes.
    pub fn install(&self, values: &str) -> Result<String> {
        self.deploy("install", values)
    }

    /// `helm upgrade`; returns the notes.
    pub fn upgrade(&self, values: &str) -> Result<String> {
        self.deploy("upgrade", values)
    }

    /// `helm upgrade` that keeps what was set and not changed by these values; returns the notes.
    pub fn change(&self, values: &str) -> Result<String> {
        let arguments = ["upgrade", RELEASE, "--reset-then-reuse-values"];
        self.deploy_with(&arguments, values)
    }

    /// `helm rollback` to a revision.
    pub fn rollback(&self, revision: u32) -> Result<()> {
        self.on_release(&["rollback", RELEASE, &revision.to_string()])?;
        Ok(())
    }

    /// `helm uninstall`.
    pub fn uninstall(&self) -> Result<()> {
        self.on_release(&["uninstall", RELEASE])?;
        Ok(())
    }

    /// The revision that is deployed, 1 after the installation.
    pub fn revision(&self) -> Result<u32> {
        let text = self.on_release(&["get", "metadata", RELEASE, "--output", "json"])?;
        let metadata: Value = serde_json::from_str(&text)?;
        let revision = metadata["revision"].as_u64().context("a revision")?;
        Ok(revision.try_into()?)
    }

    /// The values that were set, as JSON, which is YAML.
    pub fn values(&self) -> Result<String> {
        self.on_release(&["get", "values", RELEASE, "--output", "json"])
    }

    /// What is installed.
    pub fn manifests(&self) -> Result<Manifests> {
        Ok(Manifests::parse(
            &self.on_release(&["get", "manifest", RELEASE])?,
        )?)
    }

    /// An account of the release, with a token as a pod gets it.
    pub async fn account(&self, name: &str, directory: &Path) -> Result<Account> {
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: Some(vec!["https://kubernetes.default.svc".to_owned()]),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let answer: TokenRequest = self
            .api::<ServiceAccount>()
            .create_subresource("token", name, &PostParams::default(), &request)
            .await?;
        let token = answer.status.context("a token")?.token;
        let text = fs::read_to_string(self.cluster.kubeconfig()?)?;
        let mut config: Value = serde_json::from_str(&text)?;
        config["users"][0]["user"] = json!({"token": token});
        let text = config.to_string();
        let kubeconfig = directory.join(format!("kubeconfig-{name}"));
        fs::write(&kubeconfig, &text)?;
        let (parsed, options) = (Kubeconfig::from_yaml(&text)?, KubeConfigOptions::default());
        let config = Config::from_custom_kubeconfig(parsed, &options).await?;
        Ok(Account {
            kubeconfig,
            client: Client::try_from(config)?,
        })
    }

    fn deploy(&self, verb: &str, values: &str) -> Result<String> {
        self.deploy_with(&[verb, RELEASE], values)
    }

    fn deploy_with(&self, arguments: &[&str], values: &str) -> Result<String> {
        let values = self.helm.values(self.cluster.name(), values)?;
        let (values, chart) = (values.display().to_string(), chart().display().to_string());
        self.on_release(&[arguments, &[&chart, "--values", &values]].concat())
    }

    fn on_release(&self, arguments: &[&str]) -> Result<String> {
        let kubeconfig = self.cluster.kubeconfig()?.display().to_string();
        let place = ["--namespace", NAMESPACE, "--kubeconfig", &kubeconfig];
        let arguments: Vec<_> = arguments.iter().chain(&place).copied().collect();
        Ok(self.helm.run_from(&self.cluster.reach(), &arguments)?)
    }
}
