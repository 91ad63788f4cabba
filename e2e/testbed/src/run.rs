//! One run of a testbed: its directory, and the watchdog that ends what the run started.
//!
//! The watchdog is a shell that holds one end of a pipe. When the other end closes, for whatever reason (the testbed was
//! dropped, the test binary exited without running destructors, panicked, or was killed by any signal), it kills every
//! process that is still registered, whatever is in the control groups of the run, and removes those, the containers of the
//! run and the directory. It must never learn a pid that this run did not start.
//!
//! Should the watchdog itself be killed, the file `records` in the directory says what there was; [`crate::down`] reads it.

use std::{
    fmt, fs, io,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Mutex, MutexGuard, Once, PoisonError},
};

use crate::records::Record;

/// What the watchdog does: keep the lists of pids, containers and control groups while the pipe is open, then kill what is in
/// them (of a process that leads a process group, all of that), wait until it is gone, and remove containers, groups and the directory. A file `keep` in the directory keeps all of it but the
/// data of servers; `keep-all` keeps those too.
const WATCHDOG: &str = r#"
trap '' HUP INT TERM
echo watching
exec >/dev/null
pids=' ' groups='' containers=''
while read -r verb name; do
  case $verb in
    add) pids="$pids$name " ;;
    del) pids="${pids%% $name *} ${pids#* $name }" ;;
    cgroup) groups="$groups $name" ;;
    container) containers="$containers $name" ;;
  esac
done
for pid in $pids; do kill -KILL "$pid"; kill -KILL -- "-$pid"; done
# Until none was seen twice: one that was being made when its maker was killed comes late, and a busy engine can fail to remove it.
unseen=0 tries=0
while [ -n "$containers" ] && [ "$unseen" -lt 2 ] && [ "$tries" -lt 60 ]; do
  if [ "$tries" -gt 0 ]; then sleep 0.3; fi
  docker rm --force --volumes $containers
  if docker container inspect --format seen $containers | grep -q seen; then unseen=0; else unseen=$((unseen + 1)); fi
  tries=$((tries + 1))
done
for group in $groups; do
  for kill in /sys/fs/cgroup/"$group"/cgroup.kill /sys/fs/cgroup/unified/"$group"/cgroup.kill; do
    if [ -e "$kill" ]; then echo 1 >"$kill"; fi
  done
done
for pid in $pids; do
  tries=0
  while kill -0 "$pid" && [ "$tries" -lt 100 ]; do tries=$((tries + 1)); sleep 0.02; done
done
for group in $groups; do
  tries=0
  while left=$(find /sys/fs/cgroup -mindepth 1 -maxdepth 2 -type d -name "$group"); [ -n "$left" ] && [ "$tries" -lt 500 ]; do
    find $left -depth -type d -exec rmdir {} \;
    tries=$((tries + 1))
    sleep 0.02
  done
done
if [ -e "$1/keep" ] || [ -e "$1/keep-all" ]; then : >"$1/ended"; fi
if [ -e "$1/keep-all" ]; then :
elif [ -e "$1/keep" ]; then rm -rf "$1"/*/*-data "$1"/*/*.tar
else rm -rf "$1"
fi
"#;

/// How the directory of a run is called; random letters follow.
pub(crate) const PREFIX: &str = "tombolo-testbed-";

/// File that the watchdog makes when it keeps a directory whose processes have ended.
pub(crate) const ENDED: &str = "ended";

/// What a run started, a line each, see [`Record`].
pub(crate) const RECORDS: &str = "records";

/// Environment variable that keeps the directory of every run, data included.
const KEEP: &str = "KEEP";

/// How often a watchdog is started that ends before it watches.
const MAX_STARTS: usize = 3;

/// Directories of the runs of this process that are alive; a panic marks all of them as worth keeping.
static ALIVE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A directory and a watchdog.
#[derive(Debug)]
pub(crate) struct Run {
    directory: PathBuf,
    watchdog: Mutex<Watchdog>,
}

#[derive(Debug)]
struct Watchdog {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Watchdog {
    fn start(directory: &Path) -> io::Result<Self> {
        let mut child = Command::new("sh")
            .args(["-c", WATCHDOG, "tombolo-testbed-watchdog"])
            .arg(directory)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let pipe = child.stdin.take();
        Ok(Self { child, pipe })
    }

    /// Waits until it is one that signals do not end: before, Ctrl-C may have reached it too.
    fn watches(&mut self) -> bool {
        let mut said = String::new();
        let stdout = self.child.stdout.take();
        // What cannot be read was not said.
        let _ = stdout.map(|it| BufReader::new(it).read_line(&mut said));
        said == "watching\n"
    }
}

impl Run {
    /// Makes the directory, readable by this user only, and starts the watchdog.
    pub(crate) fn start() -> io::Result<Self> {
        // With keys, and kubeconfigs of administrators, in it.
        let private = fs::Permissions::from_mode(0o700);
        let directory = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(private)
            .tempdir()?
            .keep();
        keep_on_panic();
        alive().push(directory.clone());
        let run = Self::watch(directory)?;
        run.record(&Record::of_process("supervisor", std::process::id(), ""))?;
        run.record(&Record::of_process(
            "watchdog",
            run.watchdog().child.id(),
            "",
        ))?;
        if std::env::var_os(KEEP).is_some_and(|value| !value.is_empty() && value != "0") {
            fs::write(run.directory.join("keep-all"), "")?;
            eprintln!(
                "testbed: KEEP is set, files stay in {}",
                run.directory.display()
            );
        }
        Ok(run)
    }

    /// Starts a watchdog for a directory that exists. What it is told of is ended when the value is dropped.
    pub(crate) fn watch(directory: PathBuf) -> io::Result<Self> {
        let mut tries = 0;
        loop {
            let mut watchdog = Watchdog::start(&directory)?;
            tries += 1;
            if watchdog.watches() {
                return Ok(Self {
                    directory,
                    watchdog: Mutex::new(watchdog),
                });
            }
            let _ = watchdog.child.kill();
            let status = watchdog.child.wait()?;
            if tries == MAX_STARTS {
                let message = format!("the watchdog ended with {status}");
                return Err(io::Error::other(message));
            }
        }
    }

    /// Name of this run, that of its directory.
    pub(crate) fn name(&self) -> String {
        let name = self.directory.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Where this run keeps its files.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Has the watchdog kill `pid` at the end.
    pub(crate) fn add(&self, pid: u32, name: &str) -> io::Result<()> {
        self.record(&Record::of_process("process", pid, name))?;
        self.tell("add", pid)
    }

    /// Takes `pid` from the watchdog's list: it has ended and was waited for, so its number may belong to another.
    pub(crate) fn forget(&self, pid: u32) -> io::Result<()> {
        self.tell("del", pid)
    }

    /// Has the watchdog end what is in the control groups called as this run, and remove them. To be called before they
    /// are made.
    pub(crate) fn add_cgroups(&self) -> io::Result<()> {
        self.record(&Record::Cgroups)?;
        self.tell("cgroup", self.name())
    }

    /// Has the watchdog remove a container of the Docker engine, by name. To be called before it is made.
    pub(crate) fn add_container(&self, name: &str) -> io::Result<()> {
        self.record(&Record::Container(name.to_owned()))?;
        self.tell("container", name)
    }

    /// Tells the watchdog.
    pub(crate) fn tell(&self, verb: &str, name: impl fmt::Display) -> io::Result<()> {
        let mut watchdog = self.watchdog();
        let pipe = watchdog.pipe.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(pipe, "{verb} {name}")
    }

    fn record(&self, record: &Record) -> io::Result<()> {
        let path = self.directory.join(RECORDS);
        let mut file = fs::File::options().create(true).append(true).open(path)?;
        file.write_all(format!("{record}\n").as_bytes())
    }

    fn watchdog(&self) -> MutexGuard<'_, Watchdog> {
        self.watchdog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps nothing of this run after all.
    pub(crate) fn discard(&self) {
        for marker in ["keep", "keep-all"] {
            // A marker that is not there keeps nothing either.
            let _ = fs::remove_file(self.directory.join(marker));
        }
    }

    /// Keeps the logs of this run, and says where.
    pub(crate) fn keep(&self, why: &str) {
        keep(&self.directory, why);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        alive().retain(|directory| directory != &self.directory);
        let watchdog = self
            .watchdog
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        drop(watchdog.pipe.take());
        let _ = watchdog.child.wait();
    }
}

fn alive() -> MutexGuard<'static, Vec<PathBuf>> {
    ALIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the logs of all runs of this process.
pub(crate) fn keep_all(why: &str) {
    for directory in alive().iter() {
        keep(directory, why);
    }
}

fn keep(directory: &Path, why: &str) {
    if fs::File::create_new(directory.join("keep")).is_ok() {
        eprintln!("testbed: {why}; logs are kept in {}", directory.display());
    }
}

/// A panic in a test is a failure of the test, so what the clusters logged is worth reading.
fn keep_on_panic() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            previous(panic);
            keep_all("a test panicked");
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_run_kills_what_is_registered_and_nothing_else() {
        let run = Run::start().unwrap();
        let directory = run.directory().to_owned();
        let [mut first, mut forgotten, mut last] = [(); 3].map(|()| sleeper());
        for child in [&first, &forgotten, &last] {
            run.add(child.id(), "a/sleep").unwrap();
        }
        run.forget(forgotten.id()).unwrap();

        // The watchdog waits until the pids are gone, which here is when this process has waited for them.
        let ended = std::thread::spawn(move || [first.wait().unwrap(), last.wait().unwrap()]);
        drop(run);

        assert!(ended.join().unwrap().iter().all(|status| !status.success()));
        assert!(forgotten.try_wait().unwrap().is_none(), "it still runs");
        assert!(!directory.exists());
        forgotten.kill().unwrap();
        forgotten.wait().unwrap();
    }

    #[test]
    fn kept_logs_stay_without_the_data_of_servers() {
        let run = Run::start().unwrap();
        let directory = run.directory().to_owned();
        let mode = directory.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "there are keys in it");
        fs::create_dir_all(directory.join("a/etcd-data")).unwrap();
        fs::write(directory.join("a/etcd.log"), "log").unwrap();

        run.keep("for a test");
        drop(run);

        assert!(directory.join("a/etcd.log").exists());
        assert_eq!(
            directory.join("a/etcd-data").exists(),
            std::env::var_os(KEEP).is_some()
        );
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn keep_all_keeps_everything() {
        let run = Run::start().unwrap();
        let directory = run.directory().to_owned();
        fs::create_dir_all(directory.join("a/etcd-data")).unwrap();

        fs::write(directory.join("keep-all"), "").unwrap();
        drop(run);

        assert!(directory.join("a/etcd-data").exists());
        assert!(directory.join(ENDED).exists());
        fs::remove_dir_all(directory).unwrap();
    }

    fn sleeper() -> Child {
        Command::new("sleep").arg("1000").spawn().unwrap()
    }
}
