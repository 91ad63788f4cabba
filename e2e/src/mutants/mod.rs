//! Mutation testing of the conformance suite: each mutant of the product must fail a case on two real clusters.
//!
//! The product is a black box here too: a binary, of which an environment variable makes a mutant. What kills a mutant is a
//! case that passes without it under the same time budgets; a mutant that does not start is an error, not a kill.

pub mod list;
pub mod table;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use tombolo_conformance::{
    case::{Case, Feature},
    cases,
    clusters::{self, Cluster},
    suite::{Suite, Verdict},
};
use tombolo_testbed::{FAKE_NODE, Provider, Role, Testbed, eventually};

use list::{MUTANTS, Mutant};

/// Environment variable that makes a mutant of a test build.
const VARIABLE: &str = "TOMBOLO_MUTANT";
/// What a test build says before the names that it knows.
const NAMES_FOLLOW: &str = "expected one of ";
/// Time for the operators to install the CRDs, on a busy machine.
const API_BUDGET: Duration = Duration::from_mins(1);
/// Cases at the same time: they mostly wait.
const JOBS: usize = 8;
/// Lines of a role's log in which it must have named its mutant. It does so first.
const LOG_LINES: usize = 100_000;

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The test build.
    pub binary: PathBuf,
    /// Only these mutants; all when empty.
    pub only: Vec<String>,
    /// Every case against every mutant, instead of the killers first and the others when these find nothing.
    pub every_case: bool,
    /// Time for something to appear or to go.
    pub appear: Duration,
    /// Time for which something has to stay.
    pub stay: Duration,
}

/// The user can mend it: a wrong flag or binary.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// No such mutant.
    #[error("--only {name}: no such mutant; expected some of {known}")]
    NoMutant {
        /// The name.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// The binary cannot be run.
    #[error("TOMBOLO_BIN={}: cannot be run: {source}; run `make mutants`, which builds it", binary.display())]
    Binary {
        /// What it names.
        binary: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The binary knows other mutants, or none.
    #[error("TOMBOLO_BIN={}: expected a test build that knows exactly the mutants of e2e/src/mutants/list.rs; only there: [{missing}], only in the build: [{unlisted}]. Run `make mutants`, which builds it", binary.display())]
    Names {
        /// What it names.
        binary: PathBuf,
        /// Listed, not known.
        missing: String,
        /// Known, not listed.
        unlisted: String,
    },
}

/// A case that a mutant fails.
#[derive(Debug, Clone)]
pub struct Kill {
    /// Its id.
    pub case: &'static str,
    /// The step at which it fails.
    pub step: &'static str,
}

/// What became of a mutant.
#[derive(Debug, Clone)]
pub struct Fate {
    /// The mutant.
    pub mutant: &'static Mutant,
    /// The cases that it fails; none: it survived.
    pub kills: Vec<Kill>,
    /// How long that took, restarts included.
    pub took: Duration,
}

/// What came of all.
#[derive(Debug)]
pub struct Outcome {
    /// Cases that pass without a mutant.
    pub control: usize,
    /// How long these took.
    pub control_took: Duration,
    /// One for each mutant.
    pub fates: Vec<Fate>,
}

/// Runs the suite without a mutant, then against each. `tell` hears of each mutant when it is done.
pub async fn run(options: &Options, mut tell: impl FnMut(&Fate)) -> Result<Outcome> {
    let mutants = select(&options.only)?;
    compare_names(&options.binary)?;
    let testbed = Testbed::start_with(&Provider::Api, 2).await?;
    let start = Instant::now();
    testbed.start_mesh().await?;
    let suite = suite(&testbed, options).await?;
    let control = control(&suite, &mutants, options).await?;
    let control_took = start.elapsed();
    let mut fates = Vec::new();
    for mutant in mutants {
        let fate = face(mutant, &testbed, &suite, options.every_case).await?;
        tell(&fate);
        fates.push(fate);
    }
    Ok(Outcome {
        control,
        control_took,
        fates,
    })
}

fn select(only: &[String]) -> Result<Vec<&'static Mutant>, InputError> {
    if let Some(name) = only
        .iter()
        .find(|name| MUTANTS.iter().all(|mutant| mutant.name != **name))
    {
        let known: Vec<_> = MUTANTS.iter().map(|mutant| mutant.name).collect();
        return Err(InputError::NoMutant {
            name: name.clone(),
            known: known.join(", "),
        });
    }
    let wanted = |mutant: &&Mutant| only.is_empty() || only.iter().any(|it| it == mutant.name);
    Ok(MUTANTS.iter().filter(wanted).collect())
}

/// Asks the binary which mutants it knows; a test build says so when it gets a name that it does not know.
fn compare_names(binary: &Path) -> Result<(), InputError> {
    let answer = Command::new(binary)
        .arg("crds")
        .env(VARIABLE, "?")
        .output()
        .map_err(|source| InputError::Binary {
            binary: binary.to_owned(),
            source,
        })?;
    let answer = String::from_utf8_lossy(&answer.stderr);
    let names = answer
        .split_once(NAMES_FOLLOW)
        .map_or("", |(_, names)| names);
    let known: BTreeSet<_> = names
        .trim()
        .split(", ")
        .filter(|it| !it.is_empty())
        .collect();
    let listed: BTreeSet<_> = MUTANTS.iter().map(|mutant| mutant.name).collect();
    if known == listed {
        return Ok(());
    }
    let list = |names: Vec<&&str>| {
        let names: Vec<_> = names.into_iter().copied().collect();
        names.join(", ")
    };
    Err(InputError::Names {
        binary: binary.to_owned(),
        missing: list(listed.difference(&known).collect()),
        unlisted: list(known.difference(&listed).collect()),
    })
}

async fn suite(testbed: &Testbed, options: &Options) -> Result<Suite> {
    let mut suite = Suite::new(Vec::new());
    suite.budgets.appear = options.appear;
    suite.budgets.stay = options.stay;
    for cluster in testbed.clusters() {
        cluster.fake_node().await?;
        suite.clusters.push(Cluster {
            name: cluster.name().to_owned(),
            client: cluster.client(),
            fake_node: Some(FAKE_NODE.to_owned()),
            runs_pods: false,
        });
    }
    eventually(API_BUDGET, "the API to be served", async || {
        clusters::check(&suite.clusters)
            .await
            .map_err(|error| error.to_string())
    })
    .await?;
    Ok(suite)
}

/// Runs the cases without a mutant; all must pass. Returns how many there are.
async fn control(suite: &Suite, mutants: &[&Mutant], options: &Options) -> Result<usize> {
    let whole = options.only.is_empty() || options.every_case;
    // These clusters have no nodes.
    let here = |case: &&Case| !case.features.contains(&Feature::Workloads);
    let asked = |case: &&Case| whole || mutants.iter().any(|it| it.killers.contains(&case.id));
    let cases: Vec<_> = cases::all().filter(here).filter(asked).collect();
    let count = cases.len();
    for (case, verdict) in suite.run_all(cases, JOBS, |_, _| {}).await {
        let why = match verdict {
            Verdict::Passed { .. } => continue,
            Verdict::NotRun(reason) => format!("was not run: {reason}"),
            Verdict::Failed { failure, .. } => format!("fails: {failure}"),
        };
        bail!(
            "without a mutant {} {why}; what fails anyhow kills nobody",
            case.id
        );
    }
    Ok(count)
}

/// Lets the cases loose on a mutant: the killers, and then, where these find nothing, the others.
async fn face(
    mutant: &'static Mutant,
    testbed: &Testbed,
    suite: &Suite,
    every_case: bool,
) -> Result<Fate> {
    let start = Instant::now();
    testbed
        .start_mesh_with(&[(VARIABLE, mutant.name)])
        .await
        .with_context(|| format!("mutant {} does not start", mutant.name))?;
    check_logs(mutant, testbed)?;
    let is_killer = |case: &&Case| mutant.killers.contains(&case.id);
    let (first, others): (Vec<_>, Vec<_>) = cases::all().partition(is_killer);
    let mut kills = kills(suite, first).await;
    if kills.is_empty() || every_case {
        kills.extend(self::kills(suite, others).await);
    }
    Ok(Fate {
        mutant,
        kills,
        took: start.elapsed(),
    })
}

async fn kills(suite: &Suite, cases: Vec<&'static Case>) -> Vec<Kill> {
    let verdicts = suite.run_all(cases, JOBS, |_, _| {}).await;
    let failed = verdicts
        .into_iter()
        .filter_map(|(case, verdict)| match verdict {
            Verdict::Failed { failure, .. } => Some(Kill {
                case: case.id,
                step: failure.step,
            }),
            Verdict::Passed { .. } | Verdict::NotRun(_) => None,
        });
    failed.collect()
}

/// Fails unless both roles of every cluster have said that they are this mutant.
fn check_logs(mutant: &Mutant, testbed: &Testbed) -> Result<()> {
    for cluster in testbed.clusters() {
        for role in [Role::Mesh, Role::Operator] {
            let log = cluster.log_tail(role, LOG_LINES)?;
            let said = log.lines().any(|line| {
                line.contains("wrong on purpose") && line.contains(&format!("\"{}\"", mutant.name))
            });
            ensure!(
                said,
                "{}/{role:?} does not say that it is mutant {}",
                cluster.name(),
                mutant.name
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_that_is_not_listed_is_refused_with_the_names_of_those_that_are() {
        let error = select(&["nobody".to_owned()]).unwrap_err().to_string();

        assert!(error.contains("--only nobody"), "{error}");
        assert!(error.contains("newest-wins, "), "{error}");
    }

    #[test]
    fn a_binary_that_knows_no_mutant_is_refused() {
        let error = compare_names(Path::new("/bin/true"))
            .unwrap_err()
            .to_string();

        assert!(error.contains("only there: [affinity-lost, "), "{error}");
        assert!(error.contains("only in the build: []"), "{error}");
        assert!(error.contains("make mutants"), "{error}");
    }
}
