//! `tombolo-testbed up [CLUSTERS]`: clusters with nodes, until it is interrupted. `tombolo-testbed down`: takes away what
//! runs left that were killed together with their watchdog.

use std::{pin::pin, process::ExitCode};

use tombolo_testbed::{
    Cluster, Error, Leftover, Provider, Testbed, down, interruption, unless_interrupted,
};

const USAGE: &str = "usage: tombolo-testbed up [CLUSTERS] | tombolo-testbed down\n\
    up    starts clusters with nodes (2), of the provider that TOMBOLO_CLUSTERS names, else local; says how to reach them, and ends them when it is interrupted\n\
    down  removes what killed runs left, looking in TMPDIR, or /tmp";

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["down"] => take_down(),
        ["up"] => report(up(2).await),
        ["up", count] if count.parse::<usize>().is_ok() => {
            report(up(count.parse().unwrap_or(2)).await)
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn report(outcome: Result<ExitCode, Error>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    })
}

/// Exit code 1 when something is left.
fn take_down() -> ExitCode {
    let parent = std::env::temp_dir();
    let found = match down(&parent) {
        Ok(found) => found,
        Err(error) => {
            eprintln!("{}: {error}", parent.display());
            return ExitCode::FAILURE;
        }
    };
    if found.is_empty() {
        println!("nothing is left of any run in {}", parent.display());
    }
    for leftover in &found {
        println!("{leftover}");
    }
    let failed = found.iter().any(|it| matches!(it, Leftover::Left { .. }));
    ExitCode::from(u8::from(failed))
}

/// Exit code 130 when it was interrupted before the clusters were there.
async fn up(count: usize) -> Result<ExitCode, Error> {
    let mut interrupted = pin!(interruption().map_err(Error::Run)?);
    let provider = Provider::with_nodes()?;
    let start = Testbed::start_with(&provider, count);
    let Some(bed) = unless_interrupted(&mut interrupted, start).await else {
        eprintln!("interrupted");
        return Ok(ExitCode::from(130));
    };
    let bed = bed?;
    for cluster in bed.clusters() {
        println!("{}", how_to_reach(cluster)?);
    }
    println!(
        "logs are in {}; interrupt this to end",
        bed.directory().display()
    );
    interrupted.await;
    Ok(ExitCode::SUCCESS)
}

fn how_to_reach(cluster: &Cluster) -> Result<String, Error> {
    let kubectl = format!(
        "kubectl --kubeconfig {} get pods -A",
        cluster.kubeconfig()?.display()
    );
    let enter = cluster.enter()?.join(" ");
    Ok(format!("{}: {enter} {kubectl}", cluster.name()))
}
