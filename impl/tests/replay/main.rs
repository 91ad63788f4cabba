//! Replay: what Cilium was given goes in, what Cilium made of it must come out.
//!
//! Every scenario below the fixture folders is run, for each cluster and each kind of output: the records that the cluster
//! publishes (exact bytes), the conditions of its ServiceExports, its ServiceImports, derived Services and EndpointSlices.
//! Every key of every recorded store is read, too, and written again; see [`stored`].
//! Each difference has to follow a row of `docs/decisions.md`; see [`differences`]. What is not replayed is reported as
//! ignored, with the reason in its kind, never as passed. `TOMBOLO_FIXTURES=DIR` names another tree, or a folder of trees.

mod differences;
mod facts;
mod files;
mod made;
mod recording;
mod self_checks;
mod stored;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use libtest_mimic::{Arguments, Failed, Trial};

use crate::{
    differences::{Expected, Place, between, judge},
    facts::{Facts, Kind, of_objects},
    recording::{Scenario, Tree, Version},
};

const TABLE: &str = include_str!("differences.yaml");
const DECISIONS: &str = include_str!("../../../docs/decisions.md");

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let ours = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/core/fixtures"));
    let folder = env::var_os("TOMBOLO_FIXTURES").map_or_else(|| ours.clone(), PathBuf::from);
    let table = match differences::table(TABLE) {
        Ok(table) => Arc::new(table),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let tally = Arc::new(Mutex::new(Tally::default()));

    let mut trials = self_checks::trials(&table, &ours);
    trials.extend(replays(&folder, &table, &tally));
    let list_only = arguments.list;
    let conclusion = libtest_mimic::run(&arguments, trials);

    if !list_only {
        let tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        println!("{}", tally.report());
    }
    conclusion.exit_code()
}

/// The trials of all trees.
fn replays(folder: &Path, table: &Arc<Vec<Expected>>, tally: &Arc<Mutex<Tally>>) -> Vec<Trial> {
    let trees = Tree::all(folder);
    if trees.is_empty() {
        let why = format!(
            "no recordings in {}; check TOMBOLO_FIXTURES",
            folder.display()
        );
        return vec![Trial::test("fixtures", move || Err(Failed::from(why)))];
    }
    let mut trials = Vec::new();
    for tree in trees {
        for scenario in tree.scenarios() {
            for cluster in scenario.clusters() {
                let version = tree.version(&cluster);
                let case = Arc::new(Case::new(version, scenario.clone(), cluster));
                for kind in case.kinds(&tree) {
                    trials.push(trial(&tree.name, &case, kind, table, tally));
                }
            }
        }
        if let Some(why) = why_records_only(&tree) {
            trials.push(not_covered(&tree.name, why, tally));
        }
    }
    trials
}

/// Why the objects of a tree are not replayed.
fn why_records_only(tree: &Tree) -> Option<&'static str> {
    if tree.is_mixed() {
        return Some("objects: two versions of Cilium in one mesh, neither made all of them");
    }
    match tree.version("c1") {
        Version::V1_18 => Some("objects: Cilium 1.18 has other conditions, and none of imports"),
        Version::V1_19 | Version::V1_20 => None,
    }
}

fn not_covered(name: &str, why: &str, tally: &Arc<Mutex<Tally>>) -> Trial {
    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    tally.not_covered.push(format!("{name}: {why}"));
    Trial::test(name, || Ok(()))
        .with_kind(format!("not covered: {why}"))
        .with_ignored_flag(true)
}

fn trial(
    tree: &str,
    case: &Arc<Case>,
    kind: Kind,
    table: &Arc<Vec<Expected>>,
    tally: &Arc<Mutex<Tally>>,
) -> Trial {
    let (case, table, tally) = (Arc::clone(case), Arc::clone(table), Arc::clone(tally));
    let name = format!(
        "{tree}/{}/{}/{}",
        case.scenario.name,
        case.cluster,
        kind.as_str()
    );
    let tree = tree.to_owned();
    Trial::test(name, move || {
        let outcome = case.replay(kind, &table);
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.count(&tree, kind, &outcome);
        outcome.map(|_| ()).map_err(Failed::from)
    })
}

/// Outputs of one kind after each recorded step: what Cilium made, what Tombolo makes.
struct Compared {
    kind: Kind,
    step: u32,
    cilium: Facts,
    ours: Facts,
}

/// One cluster of one scenario.
struct Case {
    version: Version,
    scenario: Scenario,
    cluster: String,
    compared: OnceLock<Result<Vec<Compared>, String>>,
}

/// What a replay found: objects that were compared, and differences by the row that they follow.
struct Outcome {
    objects: usize,
    rows: BTreeMap<u32, usize>,
}

impl Case {
    fn new(version: Version, scenario: Scenario, cluster: String) -> Self {
        Self {
            version,
            scenario,
            cluster,
            compared: OnceLock::new(),
        }
    }

    /// What there is to compare: everything, or the records only.
    fn kinds(&self, tree: &Tree) -> Vec<Kind> {
        let has_objects = !self.scenario.steps(&self.cluster).is_empty();
        if has_objects && why_records_only(tree).is_none() {
            Kind::ALL.to_vec()
        } else {
            vec![Kind::Record]
        }
    }

    fn replay(&self, kind: Kind, table: &[Expected]) -> Result<Outcome, String> {
        let compared = self.compared.get_or_init(|| self.compare()).as_ref()?;
        let mut objects = 0;
        let mut differences = Vec::new();
        for after in compared.iter().filter(|after| after.kind == kind) {
            let names = after.cilium.keys().chain(after.ours.keys());
            objects += names.collect::<BTreeSet<_>>().len();
            differences.extend(between(after.step, &after.cilium, &after.ours));
        }
        let place = Place {
            version: self.version,
            scenario: self.scenario.name.clone(),
            cluster: self.cluster.clone(),
            kind,
        };
        let rows = judge(&place, &differences, table)?;
        Ok(Outcome { objects, rows })
    }

    fn compare(&self) -> Result<Vec<Compared>, String> {
        let mut compared = Vec::new();
        let mut found = |kind, step, (cilium, ours)| {
            compared.push(Compared {
                kind,
                step,
                cilium,
                ours,
            });
        };
        let stores = self.scenario.stores().into_iter();
        for store in stores.filter(|store| store.cluster == self.cluster) {
            let facts = stored::compare(&self.scenario, self.version, &store)?;
            found(Kind::Record, store.step, facts);
        }
        for step in self.scenario.steps(&self.cluster) {
            let snapshot = self.scenario.snapshot(step, &self.cluster)?;
            let recorded = made::recorded_records(self.version, &snapshot);
            let ours = made::records(self.version, &snapshot)?;
            found(Kind::Record, step, (recorded, ours));
            let objects = made::objects(&snapshot)?;
            for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Record) {
                let recorded = of_objects(kind, &snapshot.objects);
                found(kind, step, (recorded, of_objects(kind, &objects)));
            }
        }
        Ok(compared)
    }
}

/// What all replays amount to.
#[derive(Default)]
struct Tally {
    /// By tree and kind: replays that are equal with objects on a side, without any, that differ by rows, that failed; objects.
    counts: BTreeMap<(String, Kind), [usize; 5]>,
    rows: BTreeMap<u32, usize>,
    not_covered: Vec<String>,
}

impl Tally {
    fn count(&mut self, tree: &str, kind: Kind, outcome: &Result<Outcome, String>) {
        let counts = self.counts.entry((tree.to_owned(), kind)).or_default();
        let column = match outcome {
            Ok(outcome) if !outcome.rows.is_empty() => 2,
            Ok(outcome) if outcome.objects == 0 => 1,
            Ok(_) => 0,
            Err(_) => 3,
        };
        counts[column] += 1;
        if let Ok(outcome) = outcome {
            counts[4] += outcome.objects;
            for (row, times) in &outcome.rows {
                *self.rows.entry(*row).or_default() += times;
            }
        }
    }

    fn report(&self) -> String {
        let mut lines = vec![format!(
            "{:<32} {:<15} {:>6} {:>8} {:>8} {:>6} {:>8}",
            "replayed", "kind", "equal", "nothing", "by row", "wrong", "objects"
        )];
        for ((tree, kind), [equal, nothing, by_row, wrong, objects]) in &self.counts {
            lines.push(format!(
                "{tree:<32} {:<15} {equal:>6} {nothing:>8} {by_row:>8} {wrong:>6} {objects:>8}",
                kind.as_str()
            ));
        }
        let rows = self
            .rows
            .iter()
            .map(|(row, times)| format!("{row} ({times})"));
        let rows: Vec<_> = rows.collect();
        lines.push(format!(
            "differences by row of docs/decisions.md: {}",
            rows.join(", ")
        ));
        let not_covered = self.not_covered.iter();
        lines.extend(not_covered.map(|what| format!("not run: replay of {what}")));
        lines.join("\n")
    }
}
