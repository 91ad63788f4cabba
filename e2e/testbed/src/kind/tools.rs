//! What provider `kind` needs: a Docker engine, the program `kind`, a node image, and where that has to come along, the images
//! of Kubernetes.

use std::{env, ffi::OsString, path::PathBuf, process::ExitCode};

use super::KindError;
use crate::{
    Engine, Error, MissingEngine,
    assets::{Place, cache_base, program, version_key},
    engine::exit_code,
};

/// Environment variable with the node image.
const IMAGE: &str = "KIND_NODE_IMAGE";

/// Environment variable with a directory of images that `kind/node-image` made: nodes start with a copy of it.
const SEED: &str = "KIND_NODE_SEED";

/// Environment variable with an image of Tombolo in the engine, which nodes get in place of one made of the binary.
const TOMBOLO_IMAGE: &str = "TOMBOLO_IMAGE";

/// Node image unless another is named: Kubernetes 1.36 is what is verified.
const DEFAULT_IMAGE: &str = "docker.io/kindest/node:v1.36.1";

/// What `tools/assets kind` builds from; the cache is keyed by it.
const PINS: [&str; 4] = [
    include_str!("../../../../tools/kind/kind/go.mod"),
    include_str!("../../../../tools/kind/kind/go.sum"),
    include_str!("../../../../tools/kind/kubeadm/go.mod"),
    include_str!("../../../../tools/kind/kubeadm/go.sum"),
];

/// The image of Tombolo that the environment names.
pub(crate) fn named_image() -> Option<String> {
    let named = env::var_os(TOMBOLO_IMAGE).filter(|it| !it.is_empty());
    named.map(|it| it.to_string_lossy().into_owned())
}

/// What was found.
#[derive(Clone, Debug)]
pub struct KindTools {
    pub(super) engine: Engine,
    pub(super) kind: PathBuf,
    pub(super) image: String,
    pub(super) seed: Option<PathBuf>,
}

/// Why there can be no kind clusters here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MissingKind {
    /// No engine.
    #[error("provider kind: {0}")]
    Engine(#[from] MissingEngine),
    /// No program.
    #[error(
        "provider kind: there is no kind in TOMBOLO_ASSETS, in {} or on PATH; install it (https://kind.sigs.k8s.io), or run \
         `tools/assets kind`", cache.display()
    )]
    Program {
        /// Where the cache has it.
        cache: PathBuf,
    },
}

impl KindTools {
    /// Looks for engine and program.
    pub async fn find() -> Result<Self, MissingKind> {
        let engine = Engine::find().await?;
        let cache = Self::cache_directory().unwrap_or_default();
        let variable = |name| env::var_os(name).filter(|it: &OsString| !it.is_empty());
        let list = |name| env::split_paths(&variable(name).unwrap_or_default()).collect::<Vec<_>>();
        let cached = [cache.clone()];
        let places = list("TOMBOLO_ASSETS")
            .into_iter()
            .chain(cached)
            .chain(list("PATH"));
        let kind = places.into_iter().find_map(|directory| {
            let named_by = "";
            program(
                &Place {
                    named_by,
                    directory,
                },
                "kind",
            )
        });
        let image = variable(IMAGE).map(|it| it.to_string_lossy().into_owned());
        Ok(Self {
            engine,
            kind: kind.ok_or(MissingKind::Program { cache })?,
            image: image.unwrap_or_else(|| DEFAULT_IMAGE.to_owned()),
            seed: variable(SEED).map(PathBuf::from),
        })
    }

    /// For test programs that need kind clusters: the exit code to end with where there can be none, after saying why. In CI
    /// (`CI` is set) that is a failure; elsewhere `tools/test` lists it as not run.
    pub fn exit_without() -> Option<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("the system gives a runtime");
        Some(exit_code(
            &runtime.block_on(Self::find()).err()?.to_string(),
        ))
    }

    /// The directory that `tools/assets kind` fills; `None` when no variable says where the cache is.
    pub fn cache_directory() -> Option<PathBuf> {
        let base = cache_base(|name| env::var_os(name))?;
        Some(base.join(format!("kind-{}", version_key(&PINS))))
    }

    /// Makes sure that there is the node image, once for all clusters.
    pub(super) async fn have_image(&self) -> Result<(), Error> {
        if let Some(seed) = &self.seed
            && let Err(source) = seed.read_dir()
        {
            let path = seed.clone();
            return Err(KindError::Seed { path, source }.into());
        }
        let known = ["image", "inspect", "--format", "{{.Id}}", &self.image];
        if self.engine.ask(&known).await.is_ok() {
            return Ok(());
        }
        let pull = self
            .engine
            .docker(&["pull", "--quiet", &self.image])
            .within(super::CREATE_BUDGET);
        let pulled = pull.succeed().await.map_err(|error| KindError::NodeImage {
            image: self.image.clone(),
            why: error.to_string(),
        });
        pulled.map(drop).map_err(Error::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_the_commands_that_get_it() {
        let missing = MissingKind::Program {
            cache: "/cache/kind-1".into(),
        };

        let message = missing.to_string();
        for part in [
            "/cache/kind-1",
            "https://kind.sigs.k8s.io",
            "`tools/assets kind`",
        ] {
            assert!(message.contains(part), "{part} in {message}");
        }
    }

    #[test]
    fn kubeadm_is_of_the_version_of_the_nodes() {
        let version = |module: &'static str| {
            let line = module
                .lines()
                .find(|it| it.contains("k8s.io/kubernetes v"))
                .unwrap();
            line.trim()
                .trim_start_matches("require ")
                .split(" //")
                .next()
                .unwrap()
        };

        let node = include_str!("../../../../tools/node/kubernetes/go.mod");
        assert_eq!(version(PINS[2]), version(node));
        let minor = version(node)
            .rsplit_once('.')
            .unwrap()
            .0
            .rsplit_once(' ')
            .unwrap()
            .1;
        assert!(
            DEFAULT_IMAGE.contains(&format!(":{minor}.")),
            "{DEFAULT_IMAGE} is not {minor}"
        );
    }
}
