//! A program that runs in a node's namespace.

use std::{
    fs::OpenOptions,
    path::Path,
    process::{ExitStatus, Stdio},
};

use artillery_programs::exit::Failure;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

/// A running program; dropping it kills the program.
pub(super) struct Process {
    child: Child,
}

impl Process {
    pub(super) fn start(
        namespace: &str,
        program: &Path,
        args: &[String],
        secret: &str,
        log: &Path,
    ) -> Result<Self, Failure> {
        let failed = |what: &Path, error| Failure::failed(format!("{}: {error}", what.display()));
        let file = OpenOptions::new().create(true).append(true).open(log).map_err(|error| failed(log, error))?;
        let twice = file.try_clone().map_err(|error| failed(log, error))?;
        // `ip` execs the program, which keeps the process id.
        let child = Command::new("ip")
            .args(["netns", "exec", namespace])
            .arg(program)
            .args(args)
            .env("ARTILLERY_SECRET", secret)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(twice)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(program, error))?;
        Ok(Self { child })
    }

    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let pid = self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let pid = pid.ok_or_else(|| Failure::failed("a node has ended by itself"))?;
        kill_process(pid, signal).map_err(Failure::failed)
    }

    pub(super) async fn kill(mut self) -> Result<(), Failure> {
        self.child.kill().await.map_err(Failure::failed)
    }
}
