//! Takes away what runs left that ended without their watchdog: after both were killed, or a machine went down.
//!
//! Only what the run itself recorded is ended or removed: processes by pid and start time, control groups by the name of
//! the run. Namespaces and mounts are gone with the processes in them. A run whose program still lives is left alone, and so
//! are logs that the watchdog of an ended run kept, and directories without records: who made those, and whether they are in
//! use, cannot be known.

use std::{
    fmt, fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use crate::{
    records::Record,
    run::{ENDED, PREFIX, RECORDS, Run},
};

/// How long a watchdog that is already at work may take.
const WATCHDOG_BUDGET: Duration = Duration::from_secs(30);
/// Pause between two looks at it.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// A run that was found, and what became of it.
#[derive(Debug)]
pub enum Leftover {
    /// The program that started it still lives.
    InUse {
        /// Directory of the run.
        directory: PathBuf,
        /// Pid of the program.
        supervisor: u32,
    },
    /// Nothing of it is left.
    Removed {
        /// Directory of the run.
        directory: PathBuf,
        /// Processes that still lived.
        processes: usize,
    },
    /// Something is left.
    Left {
        /// Directory of the run.
        directory: PathBuf,
        /// What.
        what: String,
    },
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse {
                directory,
                supervisor,
            } => write!(
                f,
                "{}: in use by process {supervisor}, left alone; end that first",
                directory.display()
            ),
            Self::Removed {
                directory,
                processes,
            } => write!(
                f,
                "{}: removed, with {processes} processes",
                directory.display()
            ),
            Self::Left { directory, what } => write!(f, "{}: {what}", directory.display()),
        }
    }
}

/// Looks for runs in `parent`, the temporary directory, and removes those that nobody uses.
pub fn down(parent: &Path) -> io::Result<Vec<Leftover>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        let of_run = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if of_run && is_own(&entry.path())? {
            found.extend(remove(&entry.path())?);
        }
    }
    Ok(found)
}

/// Whether a directory was made by this user: anybody can make one with such a name where everybody may write, and say in
/// it what is to be killed.
fn is_own(path: &Path) -> io::Result<bool> {
    let metadata = path.symlink_metadata()?;
    let own = metadata.uid() == rustix::process::geteuid().as_raw();
    Ok(metadata.is_dir() && own && metadata.mode() & 0o022 == 0)
}

/// Removes a run; `None` when there is nothing to remove, or no record of it.
fn remove(directory: &Path) -> io::Result<Option<Leftover>> {
    if directory.join(ENDED).exists() {
        return Ok(None);
    }
    let records = match fs::read_to_string(directory.join(RECORDS)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let records: Vec<Record> = records.lines().filter_map(|it| it.parse().ok()).collect();
    if let Some(supervisor) = living(&records, "supervisor") {
        return Ok(Some(Leftover::InUse {
            directory: directory.to_owned(),
            supervisor,
        }));
    }
    let begin = Instant::now();
    while let Some(watchdog) = living(&records, "watchdog") {
        if begin.elapsed() > WATCHDOG_BUDGET {
            return Ok(Some(Leftover::Left {
                directory: directory.to_owned(),
                what: format!("its watchdog, process {watchdog}, does not end"),
            }));
        }
        sleep(LOOK_INTERVAL);
    }
    if !directory.exists() || directory.join(ENDED).exists() {
        return Ok(None);
    }
    let alive: Vec<_> = records.iter().filter(|it| it.is_alive()).collect();
    let processes = alive.len();
    let run = Run::watch(directory.to_owned())?;
    for record in &alive {
        if let Record::Process { pid, .. } = record {
            run.tell("add", pid)?;
        }
    }
    for record in &records {
        if let Record::Container(name) = record {
            run.tell("container", name)?;
        }
    }
    if records.contains(&Record::Cgroups) {
        run.tell("cgroup", run.name())?;
    }
    run.discard();
    drop(run);
    Ok(Some(judge(directory, &alive, processes)))
}

fn judge(directory: &Path, processes: &[&Record], ended: usize) -> Leftover {
    let mut left: Vec<String> = processes
        .iter()
        .filter(|it| it.is_alive())
        .map(ToString::to_string)
        .collect();
    if directory.exists() {
        left.push("its directory".to_owned());
    }
    left.extend(groups(directory).map(|it| it.display().to_string()));
    let directory = directory.to_owned();
    if left.is_empty() {
        Leftover::Removed {
            directory,
            processes: ended,
        }
    } else {
        let what = format!("still there: {}", left.join(", "));
        Leftover::Left { directory, what }
    }
}

/// Control groups that are called as a run.
fn groups(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let name = directory.file_name().unwrap_or_default().to_owned();
    let root = PathBuf::from("/sys/fs/cgroup");
    let hierarchies = fs::read_dir(&root).into_iter().flatten().flatten();
    let hierarchies = hierarchies.map(|it| it.path()).chain([root]);
    hierarchies
        .map(move |it| it.join(&name))
        .filter(|it| it.is_dir())
}

/// Pid of the process of this role, when it lives.
fn living(records: &[Record], wanted: &str) -> Option<u32> {
    records.iter().find_map(|record| match record {
        Record::Process { role, pid, .. } if role == wanted && record.is_alive() => Some(*pid),
        Record::Process { .. } | Record::Cgroups | Record::Container(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_run_whose_program_lives_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let directory = make(
            parent.path(),
            &Record::of_process("supervisor", std::process::id(), ""),
        );

        let found = down(parent.path()).unwrap();

        assert!(
            matches!(&found[..], [Leftover::InUse { supervisor, .. }] if *supervisor == std::process::id()),
            "{found:?}"
        );
        assert!(directory.exists());
    }

    #[test]
    fn recorded_processes_are_ended_and_those_with_their_pids_are_not() {
        let parent = tempfile::tempdir().unwrap();
        let [mut recorded, mut other] =
            [(); 2].map(|()| Command::new("sleep").arg("1000").spawn().unwrap());
        let directory = make(
            parent.path(),
            &Record::of_process("process", recorded.id(), "a/sleep"),
        );
        let records = directory.join(RECORDS);
        let text = fs::read_to_string(&records).unwrap();
        let reused = format!("{text}process {} 1 a/other\n", other.id());
        fs::write(&records, reused).unwrap();

        let ended = std::thread::spawn(move || recorded.wait().unwrap());
        let found = down(parent.path()).unwrap();

        assert!(
            matches!(&found[..], [Leftover::Removed { processes: 1, .. }]),
            "{found:?}"
        );
        assert!(!ended.join().unwrap().success());
        assert!(other.try_wait().unwrap().is_none(), "it still runs");
        assert!(!directory.exists());
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn what_is_no_crashed_run_of_this_user_is_left_alone() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let parent = tempfile::tempdir().unwrap();
        let open = make(parent.path(), &Record::Cgroups);
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let without_records = make(parent.path(), &Record::Cgroups);
        fs::remove_file(without_records.join(RECORDS)).unwrap();
        let kept = make(parent.path(), &Record::Cgroups);
        fs::write(kept.join(ENDED), "").unwrap();
        symlink(parent.path(), parent.path().join(format!("{PREFIX}link"))).unwrap();
        fs::create_dir(parent.path().join("other")).unwrap();

        let found = down(parent.path()).unwrap();

        assert!(found.is_empty(), "{found:?}");
        assert!(open.exists() && without_records.exists() && kept.exists());
        assert!(parent.path().join("other").exists());
    }

    fn make(parent: &Path, record: &Record) -> PathBuf {
        let directory = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(parent)
            .unwrap()
            .keep();
        fs::write(directory.join(RECORDS), format!("{record}\n")).unwrap();
        directory
    }
}
