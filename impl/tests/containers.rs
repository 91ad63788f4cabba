//! The battery of the stores, on an etcd in a container that testcontainers starts.
//!
//! Needs a Docker engine, see `tools/engine`; where there is none, nothing is run and the reason is told.

use std::process::ExitCode;

use kvstore::battery;
use libtest_mimic::Arguments;
use tombolo_testbed::Engine;

/// Containers at once: each takes two ports and a second of a core to start.
const AT_ONCE: usize = 4;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(AT_ONCE));
    if let (false, Some(code)) = (arguments.list, Engine::exit_without("stores in containers")) {
        return code;
    }
    let mut trials = battery::trials();
    trials.extend(battery::conditional::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}

#[cfg(test)]
mod kvstore {
    pub(crate) use tombolo::kvstore::*;

    #[path = "../../src/kvstore/battery/mod.rs"]
    pub(crate) mod battery;
    pub(crate) mod testing;
    #[path = "../../src/kvstore/testing_subject.rs"]
    mod testing_subject;
}
