//! Starts clusters twice and tells how long that took, and how much memory they hold.
//!
//! `cargo run -p tombolo-testbed --example start [CLUSTERS]`

use std::{process::ExitCode, time::Instant};

use tombolo_testbed::{Error, Testbed};

#[tokio::main]
async fn main() -> ExitCode {
    let count = std::env::args().nth(1).map_or(Ok(2), |count| count.parse());
    let Ok(count) = count else {
        eprintln!("usage: start [CLUSTERS], a number");
        return ExitCode::from(2);
    };
    for name in ["first", "second"] {
        if let Err(error) = start(name, count).await {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

async fn start(name: &str, count: usize) -> Result<(), Error> {
    let begin = Instant::now();
    let bed = Testbed::start(count).await?;
    let started = begin.elapsed();
    let mebibytes = bed.resident_bytes()? / (1024 * 1024);
    let begin = Instant::now();
    drop(bed);
    let ended = begin.elapsed();
    println!(
        "{name} start of {count} clusters: {started:.1?}, {mebibytes} MiB, ended in {ended:.1?}"
    );
    Ok(())
}
