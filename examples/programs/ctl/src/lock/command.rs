//! The command that `ctl lock` and `ctl elect` run. It ends before the lock does.

use std::{
    cell::Cell,
    ffi::OsString,
    io::{self, IsTerminal},
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{self, ExitStatus, Stdio},
    time::Duration,
};

use artillery_ddata::recipes::Guard;
use artillery_programs::{
    exit::{self, Failure},
    signals::{Signals, ignore_suspension},
};
use rustix::{
    io::Errno,
    process::{Pid, Signal, getppid, kill_process_group},
};
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep},
};

/// The longest pause between two looks at the lock. A timer doesn't advance while the machine is suspended.
const MAX_PAUSE: Duration = Duration::from_millis(50);
/// The command must end when this part of the time to live is left. Renewals begin when two thirds are left, so this
/// means that two of them have failed.
const TERM_PART: u32 = 3;
/// The command is killed when this part is left.
const KILL_PART: u32 = 10;
/// The exit codes by which shells and other programs that run a command report that it couldn't be run.
const NOT_EXECUTABLE: u8 = 126;
const NO_SUCH_COMMAND: u8 = 127;

/// The lock that protects the command.
pub(super) struct Held<'a> {
    pub(super) guard: &'a Guard,
    pub(super) name: &'a str,
    pub(super) ttl: Duration,
}

impl Held<'_> {
    /// Runs the command in a process group of its own. Returns its exit code, or a failure if the lock was lost or was
    /// about to end.
    pub(super) async fn run(&self, command: &[OsString], signals: &mut Signals) -> Result<u8, Failure> {
        // The command isn't suspended together with this process, so it would outlast the lock.
        ignore_suspension().map_err(Failure::failed)?;
        let mut child =
            self.start(command).map_err(|error| Failure::failed(format!("can't run a command: {error}")))?;
        let group = child.id().and_then(|id| Pid::from_raw(id as i32));
        let group = group.ok_or_else(|| Failure::failed("the command has no process id"))?;
        let group = Group { id: group, is_denied: Cell::new(false) };
        let mut ending: Option<Ending> = None;
        let status = loop {
            tokio::select! {
                biased;
                status = child.wait() => break status.map_err(Failure::failed)?,
                signal = signals.next() => {
                    if let Some(signal) = Signal::from_named_raw(signal) {
                        group.ask(signal);
                    }
                }
                () = sleep((self.ttl / 100).min(MAX_PAUSE)) => {}
            }
            let left = self.guard.held_for();
            match &ending {
                None if left < self.ttl / TERM_PART => ending = Some(Ending::begin(left, self.ttl, &group)),
                Some(ending) if left < self.ttl / KILL_PART || Instant::now() >= ending.kill_at => {
                    group.send(Signal::KILL);
                }
                _ => {}
            }
        };
        let is_held = self.guard.is_held();
        if ending.is_some() || !is_held {
            // Processes of the group that ignored the first signal.
            group.send(Signal::KILL);
        }
        if ending.is_some() && group.is_denied.get() {
            return Err(Failure::failed("the lock ended, and this process may not stop the command"));
        }
        match ending {
            None if is_held => Ok(code(status)),
            None => Err(Failure::failed("the lock ended before the command did")),
            Some(Ending { was_lost: true, .. }) => Err(Failure::failed("the lock was lost; the command was killed")),
            Some(_) if is_held => Err(Failure::failed(
                "the lock could not be renewed in time; the command was stopped before the lock ended",
            )),
            Some(_) => Err(Failure::failed(
                "the lock could not be renewed in time; the command was stopped, but the lock ended first",
            )),
        }
    }

    /// Starts this program as [`run_held`], which replaces itself with the command.
    fn start(&self, command: &[OsString]) -> io::Result<Child> {
        let (token, key) = (self.guard.token(), String::from_utf8_lossy(self.guard.key()));
        Command::new(this_program()?)
            .args(["run-held", &process::id().to_string(), "--"])
            .args(command)
            .env("ARTILLERY_LOCK", self.name)
            .env("ARTILLERY_TOKEN", token.to_string())
            .env("ARTILLERY_CLUSTER", token.cluster().to_string())
            .env("ARTILLERY_LOCK_KEY", &*key)
            .stdin(if io::stdin().is_terminal() { Stdio::null() } else { Stdio::inherit() })
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
    }
}

/// The end of the command, which began with SIGTERM.
struct Ending {
    kill_at: Instant,
    was_lost: bool,
}

impl Ending {
    fn begin(left: Duration, ttl: Duration, group: &Group) -> Self {
        let was_lost = left.is_zero();
        group.ask(if was_lost { Signal::KILL } else { Signal::TERM });
        // Not extended by later renewals: the command was asked to end.
        Self { kill_at: Instant::now() + left.saturating_sub(ttl / KILL_PART), was_lost }
    }
}

/// The process group of the command. Its id isn't used again until the command's status was read, and as long as other
/// processes are in the group.
struct Group {
    id: Pid,
    /// Whether the system has refused a signal: the command runs as another user.
    is_denied: Cell<bool>,
}

impl Group {
    /// Sends a signal that a stopped process would receive only once it continues: a command stops when it reads the
    /// terminal.
    fn ask(&self, signal: Signal) {
        self.send(signal);
        self.send(Signal::CONT);
    }

    fn send(&self, signal: Signal) {
        match kill_process_group(self.id, signal) {
            // All processes of the group may have ended.
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) if !self.is_denied.replace(true) => {
                eprintln!("warning: the command can't be stopped: {error}");
            }
            Err(_) => {}
        }
    }
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(exit::FAILED)
}

/// This program, even if its file was replaced in the meantime.
fn this_program() -> io::Result<OsString> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe().map(Into::into) }
}

/// The arguments of [`run_held`].
#[derive(Debug, clap::Args)]
pub(in super::super) struct RunHeldArgs {
    /// The process id of the `ctl` that holds the lock
    parent: u32,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Replaces this process with the command. On Linux the command is killed when the `ctl` that holds the lock ends.
pub(in super::super) fn run_held(args: &RunHeldArgs) -> u8 {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        eprintln!("error: the command can't be tied to this process: {error}");
        return exit::FAILED;
    }
    // The parent may have ended before the line above.
    if getppid().is_none_or(|parent| parent.as_raw_nonzero().get() as u32 != args.parent) {
        eprintln!("error: the process that holds the lock has ended");
        return exit::FAILED;
    }
    let Some((program, rest)) = args.command.split_first() else { return exit::FAILED };
    let error = process::Command::new(program).args(rest).exec();
    eprintln!("error: {}: {error}", program.display());
    if error.kind() == io::ErrorKind::NotFound { NO_SUCH_COMMAND } else { NOT_EXECUTABLE }
}
