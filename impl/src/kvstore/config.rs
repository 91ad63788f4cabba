//! How to reach a store: the etcd client file of Cilium's clustermesh, or a list of URLs.
//!
//! Every complaint names file and field, what was expected and what to do. The TLS files are only named here; they are read at
//! each connect, so a renewed certificate needs no restart.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use thiserror::Error;

/// What is wrong with a client file or with a file that it names.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}: {field}: {problem}; expected {expected}; {remedy}", file.display())]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// The field, as written in the client file, or `(the whole file)`.
    pub field: &'static str,
    /// What is wrong.
    pub problem: String,
    /// What was expected.
    pub expected: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

/// How to reach a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EtcdConfig {
    /// The file that this was read from; empty for URLs of the command line.
    pub file: PathBuf,
    /// Where to try to connect, in the file's order; never empty.
    pub targets: Vec<Target>,
    /// TLS files; needed for `https` URLs.
    pub tls: Option<TlsFiles>,
}

/// One address of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// URL to connect to, with scheme.
    pub url: String,
    /// Host name that the server's certificate must carry, when it is not the URL's host.
    pub server_name: Option<String>,
}

/// Files for TLS, PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates of the authorities that sign servers: `trusted-ca-file`.
    pub ca: PathBuf,
    /// Client certificate and key: `cert-file` and `key-file`.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// Cilium's file as written. Members that only tune etcd's Go client are ignored.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Written {
    #[serde(default)]
    endpoints: Option<Vec<String>>,
    trusted_ca_file: Option<PathBuf>,
    cert_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    #[serde(default)]
    insecure_skip_tls_verify: bool,
    cilium_host_aliases: Option<Vec<HostAlias>>,
}

#[derive(Debug, Deserialize)]
struct HostAlias {
    #[serde(default)]
    hostname: String,
    #[serde(default)]
    ips: Vec<IpAddr>,
}

const ENDPOINTS: &str = "endpoints";
const HOST_ALIASES: &str = "cilium-host-aliases";

impl EtcdConfig {
    /// Endpoints without TLS files, as given on the command line.
    pub fn from_urls<S: AsRef<str>>(urls: &[S]) -> Result<Self, ConfigError> {
        let urls: Vec<String> = urls.iter().map(|url| url.as_ref().to_owned()).collect();
        targets(
            Path::new("--etcd-endpoints"),
            &urls,
            false,
            &BTreeMap::new(),
        )
        .map(|targets| Self {
            targets,
            ..Self::default()
        })
    }

    /// Reads a client file.
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(file).map_err(|error| ConfigError {
            file: file.to_owned(),
            field: "(the whole file)",
            problem: format!("cannot be read: {error}"),
            expected: "a readable etcd client file",
            remedy: "check the path and its permissions",
        })?;
        Self::parse(file, &text)
    }

    /// Parses the text of a client file.
    pub fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        let parsed: Written = serde_saphyr::from_str(text).map_err(|error| ConfigError {
            file: file.to_owned(),
            field: "(the whole file)",
            problem: format!("is not valid: {error}"),
            expected: "YAML with endpoints, trusted-ca-file, cert-file and key-file",
            remedy: "correct the file",
        })?;
        let complain = |field, problem: &str, expected, remedy| ConfigError {
            file: file.to_owned(),
            field,
            problem: problem.to_owned(),
            expected,
            remedy,
        };
        if parsed.insecure_skip_tls_verify {
            return Err(complain(
                "insecure-skip-tls-verify",
                "is not supported",
                "false or nothing",
                "remove it and name the authority in trusted-ca-file",
            ));
        }
        let client = match (parsed.cert_file, parsed.key_file) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            (Some(_), None) => {
                return Err(complain(
                    "key-file",
                    "is missing",
                    "the key of cert-file",
                    "name it",
                ));
            }
            (None, Some(_)) => {
                return Err(complain(
                    "cert-file",
                    "is missing",
                    "the certificate of key-file",
                    "name it",
                ));
            }
        };
        let tls = parsed.trusted_ca_file.map(|ca| TlsFiles {
            ca,
            client: client.clone(),
        });
        if tls.is_none() && client.is_some() {
            return Err(complain(
                "trusted-ca-file",
                "is missing",
                "the authority that signed the server's certificate",
                "name it",
            ));
        }
        let aliases = aliases(file, parsed.cilium_host_aliases.unwrap_or_default())?;
        let endpoints = parsed.endpoints.unwrap_or_default();
        Ok(Self {
            file: file.to_owned(),
            targets: targets(file, &endpoints, tls.is_some(), &aliases)?,
            tls,
        })
    }

    /// The endpoints as one text, for messages.
    pub fn endpoints(&self) -> String {
        let urls: Vec<_> = self
            .targets
            .iter()
            .map(|target| target.url.as_str())
            .collect();
        urls.join(",")
    }
}

fn aliases(
    file: &Path,
    list: Vec<HostAlias>,
) -> Result<BTreeMap<String, Vec<IpAddr>>, ConfigError> {
    let mut aliases = BTreeMap::new();
    for alias in list {
        let problem = if alias.hostname.is_empty() {
            Some("a host name is empty".to_owned())
        } else if alias.ips.is_empty() {
            Some(format!("{:?} has no IPs", alias.hostname))
        } else if aliases.contains_key(&alias.hostname) {
            Some(format!("{:?} is there twice", alias.hostname))
        } else {
            None
        };
        if let Some(problem) = problem {
            return Err(ConfigError {
                file: file.to_owned(),
                field: HOST_ALIASES,
                problem,
                expected: "a list of {hostname, ips}, each host name once",
                remedy: "correct the entry",
            });
        }
        aliases.insert(alias.hostname, alias.ips);
    }
    Ok(aliases)
}

/// The URLs to try, host aliases put in; an endpoint without a scheme is `https` when there are TLS files.
fn targets(
    file: &Path,
    endpoints: &[String],
    tls: bool,
    aliases: &BTreeMap<String, Vec<IpAddr>>,
) -> Result<Vec<Target>, ConfigError> {
    let complain = |problem: String| ConfigError {
        file: file.to_owned(),
        field: ENDPOINTS,
        problem,
        expected: "at least one URL such as https://rome.mesh.cilium.io:2379",
        remedy: "correct the endpoints",
    };
    let mut targets = Vec::new();
    for endpoint in endpoints {
        let (scheme, rest) = match endpoint.split_once("://") {
            Some((scheme @ ("http" | "https"), rest)) => (scheme, rest),
            Some((scheme, _)) => {
                return Err(complain(format!("{endpoint:?} has the scheme {scheme:?}")));
            }
            None if tls => ("https", endpoint.as_str()),
            None => ("http", endpoint.as_str()),
        };
        let authority = rest.trim_end_matches('/');
        let Some((host, port)) = authority.rsplit_once(':').filter(|(host, port)| {
            !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok()
        }) else {
            return Err(complain(format!("{endpoint:?} is not host:port")));
        };
        if scheme == "https" && !tls {
            return Err(ConfigError {
                field: "trusted-ca-file",
                ..complain(format!("is missing, but {endpoint:?} is https"))
            });
        }
        match aliases.get(host) {
            None => targets.push(Target {
                url: format!("{scheme}://{authority}"),
                server_name: None,
            }),
            Some(ips) => targets.extend(ips.iter().map(|ip| Target {
                url: match ip {
                    IpAddr::V4(ip) => format!("{scheme}://{ip}:{port}"),
                    IpAddr::V6(ip) => format!("{scheme}://[{ip}]:{port}"),
                },
                server_name: Some(host.to_owned()),
            })),
        }
    }
    if targets.is_empty() {
        return Err(complain("there are none".to_owned()));
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<EtcdConfig, ConfigError> {
        EtcdConfig::parse(Path::new("/mesh/rome"), text)
    }

    #[test]
    fn a_file_as_cilium_writes_it_is_read() {
        let config = parse(
            "endpoints:\n- https://rome.mesh.cilium.io:2379\ntrusted-ca-file: /mesh/ca.crt\nkey-file: /mesh/c.key\ncert-file: /mesh/c.crt\n",
        )
        .unwrap();

        assert_eq!(config.endpoints(), "https://rome.mesh.cilium.io:2379");
        let tls = config.tls.unwrap();
        assert_eq!(tls.ca, Path::new("/mesh/ca.crt"));
        assert_eq!(
            tls.client,
            Some(("/mesh/c.crt".into(), "/mesh/c.key".into()))
        );
    }

    #[test]
    fn a_host_alias_becomes_one_target_for_each_ip_with_the_host_as_server_name() {
        let config = parse(
            "endpoints: [\"https://rome:2379\"]\ntrusted-ca-file: /ca\ncilium-host-aliases:\n- hostname: rome\n  ips: [203.0.113.10, \"2001:db8::1\"]\n",
        )
        .unwrap();

        assert_eq!(
            config.endpoints(),
            "https://203.0.113.10:2379,https://[2001:db8::1]:2379"
        );
        assert!(
            config
                .targets
                .iter()
                .all(|target| target.server_name.as_deref() == Some("rome"))
        );
    }

    #[test]
    fn an_endpoint_without_scheme_is_https_when_there_is_an_authority() {
        assert_eq!(
            parse("endpoints: ['a:1']").unwrap().endpoints(),
            "http://a:1"
        );
        assert_eq!(
            parse("endpoints: ['a:1']\ntrusted-ca-file: /ca")
                .unwrap()
                .endpoints(),
            "https://a:1"
        );
    }

    #[test]
    fn every_mistake_is_told_with_file_and_field() {
        let cases = [
            ("endpoints: [", "(the whole file)"),
            ("endpoints: 5", "(the whole file)"),
            ("endpoints: []", "endpoints"),
            ("endpoints:", "endpoints"),
            ("endpoints: ['ftp://a:1']", "endpoints"),
            ("endpoints: ['http://a']", "endpoints"),
            ("endpoints: ['http://a:99999']", "endpoints"),
            ("endpoints: ['https://a:1']", "trusted-ca-file"),
            ("endpoints: ['http://a:1']\ncert-file: /c", "key-file"),
            ("endpoints: ['http://a:1']\nkey-file: /k", "cert-file"),
            (
                "endpoints: ['http://a:1']\nkey-file: /k\ncert-file: /c",
                "trusted-ca-file",
            ),
            (
                "endpoints: ['http://a:1']\ninsecure-skip-tls-verify: true",
                "insecure-skip-tls-verify",
            ),
            (
                "endpoints: ['http://a:1']\ncilium-host-aliases: [{ips: [1.2.3.4]}]",
                HOST_ALIASES,
            ),
            (
                "endpoints: ['http://a:1']\ncilium-host-aliases: [{hostname: a}]",
                HOST_ALIASES,
            ),
        ];

        for (text, field) in cases {
            let error = parse(text).expect_err(text);
            assert_eq!(error.field, field, "{text}: {error}");
            assert!(error.to_string().starts_with("/mesh/rome: "), "{error}");
        }
    }
}
