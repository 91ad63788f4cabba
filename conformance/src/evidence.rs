//! What a namespace held when a case failed. Reads only; what cannot be read is said in its place.

use std::{fmt::Write as _, fs, io, iter, path::Path};

use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{Event, Pod, Service},
        discovery::v1::EndpointSlice,
    },
};
use kube::{Resource, api::ListParams};
use serde::{Serialize, de::DeserializeOwned};
use tombolo_api::v1beta1::{ServiceExport, ServiceImport};

use crate::{case::Case, context::Context};

/// Files, not yet written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Name, with the cluster as directory, and content.
    pub files: Vec<(String, String)>,
}

impl Evidence {
    /// The exports, imports, Services, EndpointSlices, pods and Events of the case's namespace in every cluster, as YAML
    /// documents; a file for each kind.
    pub async fn collect(ctx: &Context) -> Self {
        let mut files = Vec::new();
        for (ctx, place) in iter::once((ctx, "")).chain(ctx.has_beside().map(|it| (it, "beside/")))
        {
            for cluster in ctx.everywhere() {
                let place = format!("{}/{place}", file_name(&ctx.clusters[cluster].name));
                files.push(objects::<ServiceExport>(ctx, cluster, &place).await);
                files.push(objects::<ServiceImport>(ctx, cluster, &place).await);
                files.push(objects::<Service>(ctx, cluster, &place).await);
                files.push(objects::<EndpointSlice>(ctx, cluster, &place).await);
                files.push(objects::<Pod>(ctx, cluster, &place).await);
                files.push(objects::<Event>(ctx, cluster, &place).await);
            }
        }
        Self { files }
    }

    /// Adds a log of a process of that cluster.
    pub fn add_log(&mut self, cluster: &str, process: &str, text: String) {
        let name = format!("{}/{}.log", file_name(cluster), file_name(process));
        self.files.push((name, text));
    }

    /// Writes the files below a directory, which is made.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        for (name, content) in &self.files {
            let path = directory.join(name);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(path, content)?;
        }
        Ok(())
    }
}

/// The name of a case's directory.
pub fn directory_name(case: &Case) -> String {
    case.id.replace('/', "-")
}

async fn objects<K>(ctx: &Context, cluster: usize, place: &str) -> (String, String)
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let name = &ctx.clusters[cluster].name;
    let mut text = format!("# cluster {name}, namespace {}\n", ctx.namespace());
    match ctx.api::<K>(cluster).list(&ListParams::default()).await {
        // Writing into a String cannot fail.
        Err(error) => _ = writeln!(text, "# {}: {error}", K::plural(&())),
        Ok(list) => {
            for mut object in list.items {
                object.meta_mut().managed_fields = None;
                let yaml = serde_saphyr::to_string(&object);
                text += "---\n";
                text += &yaml.unwrap_or_else(|error| format!("# {error}\n"));
            }
        }
    }
    (format!("{place}{}.yaml", K::kind(&())), text)
}

/// A cluster's name as the name of a directory: contexts may be called anything.
fn file_name(cluster: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let name: String = cluster
        .chars()
        .map(|letter| if plain(letter) { letter } else { '_' })
        .collect();
    if name.chars().all(|letter| letter == '.') {
        return format!("_{name}");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_cluster_never_leads_out_of_the_directory() {
        assert_eq!(file_name("kind-east"), "kind-east");
        assert_eq!(file_name("../admin@east"), ".._admin_east");
        assert_eq!(file_name(".."), "_..");
    }
}
