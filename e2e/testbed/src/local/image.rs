//! Images without a registry: directories that become the archive which `ctr images import` reads.
//!
//! An archive is a tar with `manifest.json`, and for each image one uncompressed layer and a configuration that names the
//! layer by its digest, as `docker save` writes it.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{Error, api::in_file, assets::NodeAssets, command::Invocation};

/// Where images look for programs.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// An image that is being put together in a directory.
#[derive(Debug)]
pub(super) struct Image {
    names: Vec<String>,
    directory: PathBuf,
    config: Value,
    programs: Programs,
}

/// Programs that make images.
#[derive(Clone, Debug)]
struct Programs {
    tar: PathBuf,
    ldd: PathBuf,
}

impl Image {
    /// An image with these names and nothing in it. `config` is what it runs, as in an OCI configuration.
    pub(super) fn new(
        parent: &Path,
        assets: &NodeAssets,
        names: &[&str],
        mut config: Value,
    ) -> Result<Self, Error> {
        let last = names.first().and_then(|it| it.rsplit('/').next());
        let directory = parent.join(last.unwrap_or("image").replace(':', "-"));
        let root = directory.join("root");
        for below in ["bin", "usr/bin", "tmp", "etc"] {
            fs::create_dir_all(root.join(below)).map_err(in_file(&root))?;
        }
        config["Env"] = json!([PATH]);
        Ok(Self {
            names: names.iter().map(|&it| it.to_owned()).collect(),
            directory,
            config,
            programs: Programs {
                tar: assets.program("tar"),
                ldd: assets.program("ldd"),
            },
        })
    }

    /// Adds a file of this machine, with the libraries that it is linked with.
    pub(super) async fn add_program(&self, from: &Path, to: &str) -> Result<(), Error> {
        self.add(from, to)?;
        let from = from.display().to_string();
        let output = Invocation::new(&[], &self.programs.ldd, &[&from])
            .run()
            .await?;
        for library in libraries(&String::from_utf8_lossy(&output.stdout)) {
            self.add(Path::new(library), library)?;
        }
        Ok(())
    }

    fn add(&self, from: &Path, to: &str) -> Result<(), Error> {
        let to = self.path(to);
        if to.exists() {
            return Ok(());
        }
        let parent = to.parent().unwrap_or(&to);
        fs::create_dir_all(parent).map_err(in_file(parent))?;
        fs::copy(from, &to).map_err(in_file(from))?;
        Ok(())
    }

    /// Adds a symbolic link, unless something has its name.
    pub(super) fn add_link(&self, target: &str, name: &str) -> Result<(), Error> {
        let path = self.path(name);
        if path.symlink_metadata().is_ok() {
            return Ok(());
        }
        symlink(target, &path).map_err(in_file(&path))
    }

    /// Adds a text file.
    pub(super) fn add_text(&self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.path(name);
        fs::write(&path, text).map_err(in_file(&path))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory
            .join("root")
            .join(name.trim_start_matches('/'))
    }

    /// Writes layer and configuration; gives the entry of the manifest.
    async fn pack(&self) -> Result<Value, Error> {
        let layer = self.directory.join("layer.tar").display().to_string();
        let root = self.directory.join("root").display().to_string();
        let owner = ["--owner=0", "--group=0", "--numeric-owner"];
        let arguments = [&owner[..], &["-C", &root, "-cf", &layer, "."]].concat();
        Invocation::new(&[], &self.programs.tar, &arguments)
            .succeed()
            .await?;
        let sum = Invocation::new(&[], Path::new("sha256sum"), &[&layer])
            .succeed()
            .await?;
        let sum = String::from_utf8_lossy(&sum.stdout);
        let digest = sum.split_whitespace().next().unwrap_or_default();
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": self.config,
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] },
        });
        let path = self.directory.join("config.json");
        fs::write(&path, config.to_string()).map_err(in_file(&path))?;
        let name = self.directory.file_name().unwrap_or_default();
        let name = name.to_string_lossy();
        Ok(json!({
            "Config": format!("{name}/config.json"),
            "RepoTags": self.names,
            "Layers": [format!("{name}/layer.tar")],
        }))
    }
}

/// Writes images that were put together in `directory` into one archive there.
pub(super) async fn archive(directory: &Path, images: &[Image]) -> Result<PathBuf, Error> {
    let mut manifest = Vec::new();
    for image in images {
        manifest.push(image.pack().await?);
    }
    let path = directory.join("manifest.json");
    fs::write(&path, Value::from(manifest.clone()).to_string()).map_err(in_file(&path))?;
    let archive = directory.join("images.tar");
    let (from, to) = (
        directory.display().to_string(),
        archive.display().to_string(),
    );
    let mut arguments = vec!["-C", &from, "-cf", &to, "manifest.json"];
    for entry in &manifest {
        arguments.extend(entry["Config"].as_str());
        arguments.extend(entry["Layers"][0].as_str());
    }
    let tar = images.first().map(|it| it.programs.tar.clone());
    let tar = tar.unwrap_or_else(|| "tar".into());
    Invocation::new(&[], &tar, &arguments).succeed().await?;
    for image in images {
        fs::remove_dir_all(&image.directory).map_err(in_file(&image.directory))?;
    }
    Ok(archive)
}

/// Paths in the output of `ldd`: `libc.so.6 => /lib/libc.so.6 (0x…)` or `/lib64/ld-linux.so (0x…)`.
fn libraries(ldd: &str) -> impl Iterator<Item = &str> {
    ldd.lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
}

/// The architecture of this machine as images call it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_the_paths_that_ldd_prints() {
        let ldd = "\tlinux-vdso.so.1 (0x00007ffc)\n\
                   \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f00)\n\
                   \t/lib64/ld-linux-x86-64.so.2 (0x00007f01)\n";

        let found: Vec<_> = libraries(ldd).collect();

        assert_eq!(
            found,
            [
                "/lib/x86_64-linux-gnu/libc.so.6",
                "/lib64/ld-linux-x86-64.so.2"
            ]
        );
        assert_eq!(libraries("\tnot a dynamic executable\n").count(), 0);
    }
}
