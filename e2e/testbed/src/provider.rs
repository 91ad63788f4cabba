//! Which clusters a test runs on.

use std::{fmt, process::ExitCode, str::FromStr};

use crate::{KindTools, NodeAssets};

/// Environment variable that chooses the provider.
const VARIABLE: &str = "TOMBOLO_CLUSTERS";

/// Where clusters come from; `TOMBOLO_CLUSTERS=api`, `TOMBOLO_CLUSTERS=local`, `TOMBOLO_CLUSTERS=kind` or
/// `TOMBOLO_CLUSTERS=contexts:east,west`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Provider {
    /// Control planes as processes on loopback, with fake nodes and pods. The default.
    #[default]
    Api,
    /// Control planes with a node each, real pods and packets, in namespaces of this machine. Needs root.
    Local,
    /// Clusters that kind makes in a Docker engine, with a node each.
    Kind,
    /// These contexts of the user's kubeconfig: somebody else's clusters, whose processes are not ours to break.
    Contexts(Vec<String>),
}

/// Why a provider cannot be had, or cannot do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// No such provider.
    #[error("{VARIABLE}={value}: no such provider; use api, local, kind or contexts:NAME,NAME")]
    Unknown {
        /// What was asked for.
        value: String,
    },
    /// The provider has no means for it.
    #[error("{cluster}: provider {provider} cannot {operation}; use {VARIABLE}={instead}")]
    Unsupported {
        /// Name of the provider.
        provider: &'static str,
        /// Name of the cluster.
        cluster: String,
        /// What was asked for.
        operation: &'static str,
        /// The provider that can.
        instead: &'static str,
    },
    /// Fewer contexts were named than clusters are needed.
    #[error("{needed} clusters are needed and {VARIABLE} names {named} contexts; name more")]
    TooFewContexts {
        /// How many the test needs.
        needed: usize,
        /// How many were named.
        named: usize,
    },
    /// The kubeconfig does not have a context.
    #[error("no context {context} in the kubeconfig, which has: {}", known.join(", "))]
    NoContext {
        /// The missing one.
        context: String,
        /// Those that exist.
        known: Vec<String>,
    },
}

impl Provider {
    /// The provider that the environment names, `api` when it names none.
    pub fn from_env() -> Result<Self, ProviderError> {
        match std::env::var(VARIABLE) {
            Ok(value) if !value.is_empty() => value.parse(),
            Ok(_) | Err(std::env::VarError::NotPresent) => Ok(Self::default()),
            Err(std::env::VarError::NotUnicode(value)) => Err(ProviderError::Unknown {
                value: value.display().to_string(),
            }),
        }
    }

    /// The provider that the environment names when it has nodes, else `local`: for tests that need pods.
    pub fn with_nodes() -> Result<Self, ProviderError> {
        Ok(match Self::from_env()? {
            Self::Api => Self::Local,
            other @ (Self::Local | Self::Kind | Self::Contexts(_)) => other,
        })
    }

    /// For test programs: the exit code to end with where there can be no clusters of this provider, after saying why. In CI
    /// (`CI` is set) that is a failure; elsewhere `tools/test` lists it as not run.
    pub fn exit_without(&self) -> Option<ExitCode> {
        match self {
            Self::Local => NodeAssets::exit_without(),
            Self::Kind => KindTools::exit_without(),
            Self::Api | Self::Contexts(_) => None,
        }
    }

    /// Name for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Local => "local",
            Self::Kind => "kind",
            Self::Contexts(_) => "contexts",
        }
    }
}

impl FromStr for Provider {
    type Err = ProviderError;

    fn from_str(value: &str) -> Result<Self, Self::Err> {
        let value = value.trim();
        let unknown = || ProviderError::Unknown {
            value: value.to_owned(),
        };
        match value {
            "api" => Ok(Self::Api),
            "local" => Ok(Self::Local),
            "kind" => Ok(Self::Kind),
            _ => {
                let names = value.strip_prefix("contexts:").ok_or_else(unknown)?;
                let names: Vec<_> = names
                    .split(',')
                    .map(|name| name.trim().to_owned())
                    .collect();
                if names.iter().any(String::is_empty) {
                    Err(unknown())
                } else {
                    Ok(Self::Contexts(names))
                }
            }
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Api | Self::Local | Self::Kind => f.write_str(self.name()),
            Self::Contexts(names) => write!(f, "{}:{}", self.name(), names.join(",")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_named_by_a_word_or_by_contexts() {
        assert_eq!("api".parse(), Ok(Provider::Api));
        assert_eq!("local".parse(), Ok(Provider::Local));
        assert_eq!("kind".parse(), Ok(Provider::Kind));
        let contexts = Provider::Contexts(vec!["east".to_owned(), "west".to_owned()]);
        assert_eq!("contexts:east, west".parse(), Ok(contexts));
    }

    #[test]
    fn nonsense_is_no_provider() {
        for value in ["apis", "contexts", "contexts:", "contexts:a,,b", ""] {
            let error = value.parse::<Provider>().unwrap_err();

            assert_eq!(
                error,
                ProviderError::Unknown {
                    value: value.to_owned()
                }
            );
        }
    }
}
