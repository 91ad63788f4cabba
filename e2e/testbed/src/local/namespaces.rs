//! Namespaces that live as long as one process that waits in them: of the hub, and of each node.
//!
//! They have no names in the file system, so nothing of them is left when their processes are gone: neither network
//! devices nor mounts.

use std::{
    fs::File,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    Error, ProcessError,
    api::in_file,
    assets::NodeAssets,
    component::ComponentError,
    dialer::Dialer,
    process::{Process, Program},
    run::Run,
};

/// Longest wait for namespaces: they take some milliseconds.
const BUDGET: Duration = Duration::from_secs(20);
/// Pause between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// What to do inside new namespaces before they are ready.
#[derive(Debug)]
pub(super) struct Setup {
    /// Name in the run, such as `a/namespaces`.
    pub(super) name: String,
    /// Where the log and the sign of readiness go.
    pub(super) directory: PathBuf,
    /// Whether mounts are separate too.
    pub(super) mounts: bool,
    /// Shell script; its first argument is the file to make when it is done, and it must not end.
    pub(super) script: &'static str,
    /// Arguments after the first.
    pub(super) arguments: Vec<String>,
}

/// Namespaces, until this is dropped and all processes in them have ended.
#[derive(Debug)]
pub(super) struct Namespaces {
    _holder: Process,
    pid: u32,
    network: Arc<File>,
    nsenter: String,
    mounts: bool,
}

impl Namespaces {
    /// Makes them. `enter` is a command that puts their process into a control group.
    pub(super) async fn make(
        run: &Arc<Run>,
        assets: &NodeAssets,
        enter: Vec<String>,
        setup: Setup,
    ) -> Result<Self, Error> {
        let ready = setup.directory.join("namespaces-ready");
        let mut args = vec!["--net".to_owned()];
        if setup.mounts {
            args.extend(["--mount", "--propagation=private"].map(str::to_owned));
        }
        args.extend(["sh", "-c", setup.script, "sh"].map(str::to_owned));
        args.push(ready.display().to_string());
        args.extend(setup.arguments);
        let program = Program {
            name: setup.name,
            enter,
            path: assets.program("unshare"),
            args,
            environment: Vec::new(),
            log: setup.directory.join("namespaces.log"),
        };
        let mut holder = Process::new(program, Arc::clone(run));
        holder.start().map_err(ComponentError::from)?;
        let begin = Instant::now();
        while !ready.exists() {
            let failed = if let Some(status) = holder.ended() {
                Some(holder.ended_early(status))
            } else if begin.elapsed() > BUDGET {
                Some(holder.not_ready(begin.elapsed(), "not set up".to_owned()))
            } else {
                None
            };
            if let Some(error) = failed {
                return Err(ComponentError::from(error).into());
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        let not_running = || ProcessError::NotRunning {
            process: holder.name().to_owned(),
        };
        let pid = holder
            .pid()
            .ok_or_else(not_running)
            .map_err(ComponentError::from)?;
        let path = PathBuf::from(format!("/proc/{pid}/ns/net"));
        let network = Arc::new(File::open(&path).map_err(in_file(&path))?);
        let nsenter = assets.program("nsenter").display().to_string();
        Ok(Self {
            _holder: holder,
            pid,
            network,
            nsenter,
            mounts: setup.mounts,
        })
    }

    /// Pid of the process that holds them.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Connections from inside.
    pub(super) fn dialer(&self) -> Dialer {
        Dialer::Inside(Arc::clone(&self.network))
    }

    /// Command that enters them and becomes what follows.
    pub(super) fn enter(&self) -> Vec<String> {
        let mut words = vec![
            self.nsenter.clone(),
            format!("--net=/proc/{}/ns/net", self.pid),
        ];
        if self.mounts {
            words.push(format!("--mount=/proc/{}/ns/mnt", self.pid));
        }
        words
    }

    /// A path inside, as it is seen from outside.
    pub(super) fn path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{inside}", self.pid))
    }
}
