//! What is in a directory of certificates, and what is wrong with it.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use thiserror::Error as ThisError;

use super::Error;
use crate::{
    certificate::{self, Certificate, Fault, Unreadable, Usage},
    cli::render,
};

/// A certificate that ends within this many hours is pointed out.
const SOON_HOURS: i64 = 30 * 24;

/// Certificates that cannot be used.
#[derive(Debug, Default, ThisError)]
#[error("{} of {total} files cannot be used as they are; see above", bad.len())]
pub(super) struct Bad {
    bad: Vec<String>,
    total: usize,
}

impl Bad {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.bad.is_empty()
    }
}

struct Found {
    name: String,
    chain: Result<Vec<Certificate>, Unreadable>,
}

/// The answer for people, and the files that cannot be used.
pub(super) fn report(dir: &Path, now: Timestamp) -> Result<(String, Bad), Error> {
    let found = find(dir)?;
    let authorities: Vec<_> = found
        .iter()
        .filter_map(|found| found.chain.as_ref().ok())
        .flatten()
        .filter(|certificate| certificate.is_authority)
        .cloned()
        .collect();
    let (mut rows, mut notes, mut bad) = (Vec::new(), Vec::new(), Bad::default());
    bad.total = found.len();
    for Found { name, chain } in &found {
        let problems = match chain {
            Err(unreadable) => vec![format!("{unreadable}; make it anew: tombolo certs make")],
            Ok(chain) => {
                let several = chain.iter().any(|certificate| certificate.is_authority);
                let shown = if several {
                    chain.as_slice()
                } else {
                    &chain[..1]
                };
                rows.extend(shown.iter().map(|certificate| row(name, certificate)));
                notes.extend(shown.iter().filter_map(|it| ends_soon(name, it, now)));
                judge(dir, name, chain, &authorities, now)
            }
        };
        if !problems.is_empty() {
            bad.bad.push(name.clone());
        }
        notes.extend(problems.iter().map(|problem| format!("{name}: {problem}")));
    }
    let header = ["FILE", "SUBJECT", "ISSUER", "FOR", "FROM", "UNTIL"];
    let mut text = render::table(&header, &rows) + "\n";
    for note in notes {
        text += &render::printable(&note);
        text += "\n";
    }
    Ok((text, bad))
}

fn find(dir: &Path) -> Result<Vec<Found>, Error> {
    let unreadable = |source| Error::Directory {
        dir: dir.to_owned(),
        source,
    };
    let mut paths: Vec<PathBuf> = fs::read_dir(dir)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .map_err(unreadable)?;
    paths.retain(|path| path.extension().is_some_and(|end| end == "crt") && path.is_file());
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let pem = fs::read(&path).map_err(|source| Error::File {
            flag: "show",
            file: path.clone(),
            source,
        })?;
        found.push(Found {
            name: name.into_owned(),
            chain: Certificate::read_all(&pem),
        });
    }
    if found.is_empty() {
        return Err(Error::NothingToShow {
            dir: dir.to_owned(),
        });
    }
    Ok(found)
}

fn row(name: &str, certificate: &Certificate) -> Vec<String> {
    let day = |at: Timestamp| at.strftime("%Y-%m-%d %H:%M").to_string();
    let names = if certificate.is_authority {
        "(authority)".to_owned()
    } else if certificate.names.is_empty() {
        "(client)".to_owned()
    } else {
        certificate.names.join(" ")
    };
    vec![
        format!("{name}.crt"),
        certificate.subject().to_owned(),
        certificate.issuer.clone(),
        names,
        day(certificate.not_before),
        day(certificate.not_after),
    ]
}

fn ends_soon(name: &str, certificate: &Certificate, now: Timestamp) -> Option<String> {
    let hours = certificate.not_after.duration_since(now).as_hours();
    (0..SOON_HOURS).contains(&hours).then(|| {
        let days = hours / 24;
        format!(
            "{name}: note: {} ends in {days} days; renew it",
            certificate.subject()
        )
    })
}

fn judge(
    dir: &Path,
    name: &str,
    chain: &[Certificate],
    authorities: &[Certificate],
    now: Timestamp,
) -> Vec<String> {
    let mut problems = Vec::new();
    for certificate in chain {
        if let Err(fault) = certificate.check_time(now) {
            problems.push(format!(
                "{} {fault}; {}",
                certificate.subject(),
                cure(&fault)
            ));
        }
    }
    let leaf = chain.first().is_some_and(|first| !first.is_authority);
    if leaf {
        let usage = if chain[0].names.is_empty() {
            Usage::Client
        } else {
            Usage::Server
        };
        let outcome = if authorities.is_empty() {
            Err(Fault::Unusable("no authority lies beside it".to_owned()))
        } else {
            certificate::check_authority(chain, authorities, usage)
        };
        if let Err(fault) = outcome {
            problems.push(format!("{fault}; {}", cure(&fault)));
        }
    }
    problems.extend(judge_key(&dir.join(format!("{name}.key")), chain, leaf));
    problems
}

fn judge_key(file: &Path, chain: &[Certificate], needed: bool) -> Vec<String> {
    let shown = file.display();
    let key = match fs::read(file) {
        Ok(key) => key,
        // The key of an authority is better kept elsewhere.
        Err(_) if !needed => return Vec::new(),
        Err(error) => {
            return vec![format!(
                "{shown}: cannot be read: {error}; put the key there"
            )];
        }
    };
    let mut problems = Vec::new();
    let fits = chain
        .iter()
        .map(|certificate| certificate::check_key(std::slice::from_ref(certificate), &key));
    let mut worst = None;
    for outcome in fits.take(if needed { 1 } else { chain.len() }) {
        match outcome {
            Ok(Ok(())) => {
                worst = None;
                break;
            }
            Ok(Err(fault)) => worst = Some(format!("{fault} in {shown}; {}", cure(&fault))),
            Err(unreadable) => worst = Some(format!("{shown}: {unreadable}; make both anew")),
        }
    }
    problems.extend(worst);
    let mode = fs::metadata(file).map(|metadata| metadata.permissions().mode());
    if let Ok(mode) = mode
        && mode & 0o007 != 0
    {
        let mode = mode & 0o777;
        problems.push(format!(
            "{shown}: mode {mode:o} lets everybody read the key; chmod 600"
        ));
    }
    problems
}

fn cure(fault: &Fault) -> &'static str {
    match fault {
        Fault::NotYetValid { .. } => "check the clock of this machine and of the one that made it",
        Fault::Expired { .. } => "renew it: tombolo certs make --force with --ca-cert and --ca-key",
        Fault::UnknownAuthority => {
            "add its authority to ca.crt (tombolo certs bundle), or make it anew with that authority"
        }
        Fault::WrongName { .. } => "make it anew with --san",
        Fault::KeyMismatch => "put the key that was made with it there, or make both anew",
        Fault::Unusable(_) => "make it anew: tombolo certs make",
    }
}
