//! Provider `contexts`: clients for clusters that exist. It must never start, stop or break anything of theirs.

use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::{Error, ProviderError};

/// The first `count` of the named contexts of the user's kubeconfig, each with a client's configuration.
pub(crate) async fn open(
    names: &[String],
    count: usize,
) -> Result<Vec<(String, kube::Config)>, Error> {
    if names.len() < count {
        return Err(ProviderError::TooFewContexts {
            needed: count,
            named: names.len(),
        }
        .into());
    }
    let kubeconfig = Kubeconfig::read()?;
    let known: Vec<String> = kubeconfig
        .contexts
        .iter()
        .map(|it| it.name.clone())
        .collect();
    let mut opened = Vec::new();
    for name in &names[..count] {
        if !known.contains(name) {
            let context = name.clone();
            return Err(ProviderError::NoContext { context, known }.into());
        }
        let options = KubeConfigOptions {
            context: Some(name.clone()),
            ..Default::default()
        };
        let config = kube::Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await?;
        opened.push((name.clone(), config));
    }
    Ok(opened)
}
