//! Provider `local`: two complete clusters on this machine, their pods, and what is left when a run is killed.
//!
//! Needs root, and what `make assets-node` and `tools/setup node` get. Where that is missing nothing is run and the reason
//! is told; with `CI` set it is a failure.

mod local {
    pub(crate) mod crash;
    pub(crate) mod isolation;
    pub(crate) mod packets;
    pub(crate) mod pods;
}

use std::{process::ExitCode, sync::Arc};

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};
use local::{crash, isolation, packets};
use tombolo_testbed::{NodeAssets, Provider, Testbed};

fn main() -> ExitCode {
    if let Some(directory) = crash::subject_of() {
        return crash::subject(&directory);
    }
    let mut arguments = Arguments::from_args();
    // Faults of the network are shared by all who use the clusters.
    arguments.test_threads = Some(1);
    if arguments.list {
        return libtest_mimic::run(&arguments, trials(None)).exit_code();
    }
    if let Some(code) = NodeAssets::exit_without() {
        return code;
    }
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let runtime = tokio::runtime::Runtime::new()?;
    let before = isolation::Machine::look()?;
    let bed = runtime.block_on(Testbed::start_with(&Provider::Local, 2))?;
    let bed = Arc::new(bed);
    let shared = Shared { bed, before };
    let conclusion = libtest_mimic::run(arguments, trials(Some(&shared)));
    if conclusion.has_failed() {
        shared.bed.keep_logs("a test failed");
    }
    Ok(conclusion.exit_code())
}

/// What the tests of one run share.
#[derive(Clone)]
struct Shared {
    bed: Arc<Testbed>,
    before: isolation::Machine,
}

fn trials(shared: Option<&Shared>) -> Vec<Trial> {
    macro_rules! with_bed {
        ($name:ident, $test:path) => {{
            let shared = shared.cloned();
            Trial::test(stringify!($name), move || {
                let shared = shared.expect("invariant: only a list is made without clusters");
                block_on($test(&shared.bed))
            })
        }};
    }
    let before = shared.cloned();
    vec![
        with_bed!(two_clusters_are_ready, packets::ready),
        with_bed!(a_command_in_a_pod_tells_all_it_did, packets::exec),
        with_bed!(pods_reach_pods_of_the_other_cluster, packets::pod_to_pod),
        with_bed!(services_answer_by_name_and_address, packets::services),
        with_bed!(pods_are_cut_apart_and_healed, packets::cut_and_heal),
        with_bed!(a_node_is_isolated_and_rejoins, packets::isolate_and_rejoin),
        with_bed!(a_killed_kubelet_comes_back, packets::kubelet_comes_back),
        with_bed!(tombolo_runs_as_a_user_other_than_root, packets::tombolo),
        with_bed!(
            no_process_is_in_the_network_of_the_machine,
            isolation::elsewhere
        ),
        Trial::test("the_machine_is_as_it_was", move || {
            let shared = before.expect("invariant: only a list is made without clusters");
            block_on(async { shared.before.is_unchanged() })
        }),
        Trial::test(
            "a_dropped_testbed_leaves_nothing_and_another_starts",
            || block_on(crash::one_after_the_other()),
        ),
        Trial::test("sigkill_of_the_program_leaves_nothing", || {
            block_on(crash::program_killed())
        }),
        Trial::test(
            "clusters_end_as_soon_as_they_say_that_they_can_be_ended",
            || block_on(crash::up_is_interrupted()),
        ),
        Trial::test("a_start_that_is_interrupted_leaves_nothing", || {
            block_on(crash::up_is_interrupted_while_it_starts())
        }),
        Trial::test("down_removes_what_a_killed_run_left", || {
            block_on(crash::down_removes_all())
        }),
    ]
}

fn block_on(test: impl Future<Output = Result<()>>) -> Result<(), Failed> {
    let runtime = tokio::runtime::Runtime::new()?;
    let ended = runtime.block_on(test);
    ended.map_err(|error| Failed::from(format!("{error:?}")))
}
