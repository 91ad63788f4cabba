//! The pods of a chart: their containers, and their volumes as directories, as a kubelet would mount them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use serde_json::Value;

use super::manifests::{list, name_of, texts};

/// The pod template of a Deployment.
#[derive(Debug, Clone, Copy)]
pub struct Pod<'a> {
    /// Name of the Deployment.
    pub deployment: &'a str,
    /// `spec.template` of the Deployment.
    pub template: &'a Value,
}

/// Where the mounts of one container are.
#[derive(Debug)]
pub struct Mounts {
    directories: BTreeMap<String, PathBuf>,
}

impl<'a> Pod<'a> {
    /// The pod of a Deployment.
    pub fn of(deployment: &'a Value) -> Self {
        Self {
            deployment: name_of(deployment),
            template: &deployment["spec"]["template"],
        }
    }

    /// Its spec.
    pub fn spec(&self) -> &'a Value {
        &self.template["spec"]
    }

    /// All its containers, those that run from the beginning first.
    pub fn containers(&self) -> impl Iterator<Item = &'a Value> {
        let spec = self.spec();
        list(&spec["initContainers"])
            .iter()
            .chain(list(&spec["containers"]))
    }

    /// One container.
    pub fn container(&self, name: &str) -> Result<&'a Value> {
        let found = self.containers().find(|it| it["name"] == name);
        found.with_context(|| format!("{} has no container {name}", self.deployment))
    }

    /// Writes what a container mounts into directories below `root`, from the objects that are in the cluster. In files, mount
    /// paths and these `words` are replaced.
    pub async fn mount(
        &self,
        container: &str,
        source: &Source<'_>,
        root: &Path,
        words: &[(&str, &str)],
    ) -> Result<Mounts> {
        let mut mounts = Mounts {
            directories: BTreeMap::new(),
        };
        let container = self.container(container)?;
        for mount in list(&container["volumeMounts"]) {
            let path = mount["mountPath"].as_str().context("mountPath")?;
            let directory = root.join(mount["name"].as_str().context("name")?);
            mounts.directories.insert(path.to_owned(), directory);
        }
        for mount in list(&container["volumeMounts"]) {
            let path = mount["mountPath"].as_str().unwrap_or_default();
            let directory = &mounts.directories[path];
            fs::create_dir_all(directory)?;
            let volume = list(&self.spec()["volumes"])
                .iter()
                .find(|it| it["name"] == mount["name"]);
            let volume = volume.with_context(|| format!("no volume for {path}"))?;
            let files = source.files(volume).await?.into_iter();
            let files = files.map(|(file, content)| (file, mounts.translate(&content, words)));
            replace(directory, &files.collect())?;
        }
        Ok(mounts)
    }
}

impl Mounts {
    /// The arguments of a container, mount paths and words replaced.
    pub fn arguments(&self, container: &Value, words: &[(&str, &str)]) -> Vec<String> {
        let arguments = texts(&container["args"]).into_iter();
        arguments
            .map(|argument| self.translate(argument, words))
            .collect()
    }

    fn translate(&self, text: &str, words: &[(&str, &str)]) -> String {
        // The longest first: one path may be the beginning of another.
        let mut text = text.to_owned();
        let mut paths: Vec<_> = self.directories.iter().collect();
        paths.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        for (path, directory) in paths {
            text = text.replace(path.as_str(), &directory.display().to_string());
        }
        for (word, instead) in words {
            text = text.replace(word, instead);
        }
        text
    }
}

/// Makes a directory hold these files and no others. Each changes as a whole.
fn replace(directory: &Path, files: &Files) -> Result<()> {
    for (name, content) in files {
        let path = directory.join(name);
        if fs::read_to_string(&path).ok().as_ref() == Some(content) {
            continue;
        }
        let new = directory.join(format!("..{name}"));
        fs::write(&new, content)?;
        fs::rename(&new, &path)?;
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if !files.contains_key(&*entry.file_name().to_string_lossy()) && entry.path().is_file() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Where Secrets and ConfigMaps are read.
pub struct Source<'a> {
    /// The cluster.
    pub client: Client,
    /// Namespace of the pods.
    pub namespace: &'a str,
}

type Files = BTreeMap<String, String>;

impl Source<'_> {
    async fn files(&self, volume: &Value) -> Result<Files> {
        let mut files = Files::new();
        let projected = list(&volume["projected"]["sources"]);
        for source in std::iter::once(volume).chain(projected) {
            files.extend(self.one(source).await?);
        }
        Ok(files)
    }

    async fn one(&self, source: &Value) -> Result<Files> {
        let (secret, config_map) = (&source["secret"], &source["configMap"]);
        let name = |value: &Value| {
            let name = value["secretName"].as_str().or(value["name"].as_str());
            name.unwrap_or_default().to_owned()
        };
        let (found, wanted) = if secret.is_object() {
            (self.secret(&name(secret)).await?, secret)
        } else if config_map.is_object() {
            (self.config_map(&name(config_map)).await?, config_map)
        } else {
            return Ok(Files::new());
        };
        let Some(found) = found else {
            if wanted["optional"] == true {
                return Ok(Files::new());
            }
            bail!(
                "{} is not there, and the pod would wait for it",
                name(wanted)
            );
        };
        if wanted["items"].is_null() {
            return Ok(found);
        }
        let item = |item: &Value| {
            let (key, path) = (item["key"].as_str()?, item["path"].as_str()?);
            Some((path.to_owned(), found.get(key)?.clone()))
        };
        Ok(list(&wanted["items"]).iter().filter_map(item).collect())
    }

    async fn secret(&self, name: &str) -> Result<Option<Files>> {
        let api = Api::<Secret>::namespaced(self.client.clone(), self.namespace);
        let Some(secret) = api.get_opt(name).await? else {
            return Ok(None);
        };
        let data = secret.data.unwrap_or_default().into_iter();
        let text = |(key, value): (String, k8s_openapi::ByteString)| {
            Ok((key, String::from_utf8(value.0)?))
        };
        data.map(text).collect::<Result<_>>().map(Some)
    }

    async fn config_map(&self, name: &str) -> Result<Option<Files>> {
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), self.namespace);
        let found = api.get_opt(name).await?;
        Ok(found.map(|config_map| config_map.data.unwrap_or_default()))
    }
}
