//! The program `helm`, with a home of its own.

use std::{
    env, fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;
use tombolo_testbed::NodeAssets;

use super::Manifests;

/// Name of the release in tests.
pub const RELEASE: &str = "tombolo";

/// Namespace of the release in tests.
pub const NAMESPACE: &str = "tombolo-system";

/// The version of Kubernetes that charts are rendered for without a cluster.
const KUBE_VERSION: &str = "1.36.0";

/// Why there is no answer of helm.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no helm.
    #[error(
        "missing: helm; run `tools/assets node` (builds it once), or name a directory that has it in TOMBOLO_ASSETS. Looked in: {looked}"
    )]
    Missing {
        /// Where was looked.
        looked: String,
    },
    /// It could not be run, or its files not be written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The program or file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It failed.
    #[error("helm {command}: {stderr}")]
    Failed {
        /// Its arguments.
        command: String,
        /// What it said.
        stderr: String,
    },
    /// What it printed is not YAML.
    #[error("helm printed no YAML: {0}")]
    Yaml(#[source] Box<serde_saphyr::Error>),
}

/// The program.
pub struct Helm {
    program: PathBuf,
    home: TempDir,
}

impl Helm {
    /// Looks for it in `TOMBOLO_ASSETS`, on `PATH`, and where `tools/assets` puts what it builds.
    pub fn find() -> Result<Self, Error> {
        Self::find_in(&places())
    }

    /// Looks for it in these directories, in order.
    pub fn find_in(places: &[PathBuf]) -> Result<Self, Error> {
        let program = places.iter().map(|place| place.join("helm"));
        let program = program.into_iter().find(|path| is_executable(path));
        let program = program.ok_or_else(|| Error::Missing {
            looked: list(places),
        })?;
        let home = tempfile::tempdir().map_err(at(&env::temp_dir()))?;
        Ok(Self { program, home })
    }

    /// Runs it; an error when it fails. Returns what it printed.
    pub fn run(&self, arguments: &[&str]) -> Result<String, Error> {
        self.run_from(&[], arguments)
    }

    /// The same; `enter` are words of a command that becomes helm, such as [`tombolo_testbed::Cluster::reach`] has.
    pub fn run_from(&self, enter: &[String], arguments: &[&str]) -> Result<String, Error> {
        let output = self.output(enter, arguments)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(Error::Failed {
            command: arguments.join(" "),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// The chart with these values, rendered without a cluster.
    pub fn template(&self, values: &str) -> Result<Manifests, Error> {
        let values = self.values("template", values)?;
        let text = self.run(&[
            "template",
            RELEASE,
            &chart().display().to_string(),
            "--namespace",
            NAMESPACE,
            "--kube-version",
            KUBE_VERSION,
            "--values",
            &values.display().to_string(),
        ])?;
        Manifests::parse(&text)
    }

    /// Writes a file of values, and returns its path.
    pub fn values(&self, name: &str, values: &str) -> Result<PathBuf, Error> {
        let path = self.home.path().join(format!("{name}.yaml"));
        fs::write(&path, values).map_err(at(&path))?;
        Ok(path)
    }

    fn output(&self, enter: &[String], arguments: &[&str]) -> Result<Output, Error> {
        let home = self.home.path();
        let program = self.program.display().to_string();
        let mut words = enter.iter().chain([&program]);
        let mut command = Command::new(words.next().unwrap_or(&program));
        command
            .args(words)
            .args(arguments)
            .env_remove("KUBECONFIG")
            .env("HELM_CACHE_HOME", home.join("cache"))
            .env("HELM_CONFIG_HOME", home.join("config"))
            .env("HELM_DATA_HOME", home.join("data"));
        command.output().map_err(at(&self.program))
    }
}

/// Where the chart is.
pub fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../chart")
}

fn places() -> Vec<PathBuf> {
    let mut places = Vec::new();
    for variable in ["TOMBOLO_ASSETS", "PATH"] {
        let directories = env::var_os(variable).unwrap_or_default();
        places.extend(env::split_paths(&directories));
    }
    places.extend(NodeAssets::cache_directory());
    places
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn list(places: &[PathBuf]) -> String {
    let places: Vec<_> = places
        .iter()
        .map(|place| place.display().to_string())
        .collect();
    places.join(", ")
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_helm_is_told_with_the_command_that_gets_it() {
        let empty = tempfile::tempdir().unwrap();

        let error = Helm::find_in(&[empty.path().to_owned()]).err().unwrap();

        let text = error.to_string();
        assert!(
            text.contains("tools/assets node")
                && text.contains(&empty.path().display().to_string()),
            "{text}"
        );
    }
}
