//! What a run started, as lines of a file in its directory, so that it can be found after everything of the run that
//! knew of it was killed.
//!
//! A pid alone says nothing about a process of the past: numbers are used again. With the time at which the process
//! started, in clock ticks since boot (field 22 of `/proc/PID/stat`), it is one process.

use std::{fmt, fs, str::FromStr};

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// A process.
    Process {
        /// `supervisor`, `watchdog` or `process`.
        role: String,
        pid: u32,
        /// When it started; 0 when it was gone already, which is no process.
        started: u64,
        /// Name in the run, such as `a/etcd`.
        name: String,
    },
    /// Control groups that are called as the run.
    Cgroups,
    /// A container of the Docker engine, by its name.
    Container(String),
}

impl Record {
    /// The record of a process that runs.
    pub(crate) fn of_process(role: &str, pid: u32, name: &str) -> Self {
        Self::Process {
            role: role.to_owned(),
            pid,
            started: start_time(pid).unwrap_or(0),
            name: name.to_owned(),
        }
    }

    /// Whether this very process still exists.
    pub(crate) fn is_alive(&self) -> bool {
        match self {
            Self::Process { pid, started, .. } => start_time(*pid) == Some(*started),
            Self::Cgroups | Self::Container(_) => false,
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process {
                role,
                pid,
                started,
                name,
            } => write!(f, "{role} {pid} {started} {name}"),
            Self::Cgroups => f.write_str("cgroups"),
            Self::Container(name) => write!(f, "container {name}"),
        }
    }
}

impl FromStr for Record {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let mut words = line.splitn(4, ' ');
        match words.next() {
            Some("cgroups") => Ok(Self::Cgroups),
            Some("container") => match words.next() {
                Some(name) if !name.is_empty() => Ok(Self::Container(name.to_owned())),
                Some(_) | None => Err(()),
            },
            Some(role @ ("supervisor" | "watchdog" | "process")) => {
                let mut number = || words.next().ok_or(());
                let pid = number()?.parse().map_err(drop)?;
                let started = number()?.parse().map_err(drop)?;
                let name = words.next().unwrap_or_default().to_owned();
                let role = role.to_owned();
                Ok(Self::Process {
                    role,
                    pid,
                    started,
                    name,
                })
            }
            Some(_) | None => Err(()),
        }
    }
}

/// When the process with this pid started; `None` when there is none, or only what is left until its parent waits.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program is in parentheses and may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if state == "Z" {
        return None;
    }
    // The state is field 3.
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let records = [
            Record::of_process("supervisor", std::process::id(), ""),
            Record::of_process("process", 1, "a/etcd"),
            Record::Cgroups,
            Record::Container("tombolo-1f-1-a-control-plane".to_owned()),
        ];

        for record in records {
            assert_eq!(record.to_string().parse(), Ok(record));
        }
        for line in ["", "process", "process x 1 a", "other 1 1 a", "container "] {
            assert_eq!(line.parse::<Record>(), Err(()), "{line}");
        }
    }

    #[test]
    fn another_process_with_the_same_pid_is_not_the_recorded_one() {
        let own = Record::of_process("process", std::process::id(), "");
        let Record::Process { started, .. } = own.clone() else {
            panic!("{own:?}");
        };

        assert!(started > 0);
        assert!(own.is_alive());
        let earlier = format!("process {} {} x", std::process::id(), started - 1);
        assert!(!earlier.parse::<Record>().unwrap().is_alive());
    }
}
