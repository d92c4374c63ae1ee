//! Servers in separate processes. [`end_all`] ends the processes that are still running.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use artillery_core::{Timestamp, internal::clock};
use artillery_processes::token;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use super::{Failed, quota::Share};

/// How long a process may take to report that it is ready.
const PATIENCE: Duration = Duration::from_secs(30);

/// Processes to end and folders to remove when this process exits.
static STARTED: Mutex<Started> =
    Mutex::new(Started { children: BTreeMap::new(), folders: Vec::new(), trees: Vec::new(), is_over: false });

struct Started {
    children: BTreeMap<u32, Child>,
    folders: Vec<PathBuf>,
    /// Folders that are removed with their content.
    trees: Vec<PathBuf>,
    is_over: bool,
}

fn started() -> MutexGuard<'static, Started> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends every started process, and removes the folders of their shares and their data. No process can be started
/// afterwards.
pub fn end_all() {
    let mut started = started();
    started.is_over = true;
    std::mem::take(&mut started.children).into_values().for_each(end);
    started.folders.drain(..).for_each(|folder| remove(&folder));
    started.trees.drain(..).for_each(|tree| {
        if let Err(error) = fs::remove_dir_all(&tree) {
            eprintln!("{} can't be removed: {error}", tree.display());
        }
    });
}

fn end(mut child: Child) {
    // Both only fail for a process that has exited.
    let _ = child.kill();
    let _ = child.wait();
}

/// Creates a folder that is removed, empty, when this process exits.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    let mut started = started();
    if started.is_over {
        return Err(io::Error::other("the run is over"));
    }
    fs::create_dir(folder)?;
    started.folders.push(folder.to_owned());
    Ok(())
}

/// Creates a folder that is removed, with its content, when the run ends.
pub fn make_tree(folder: &Path) -> io::Result<()> {
    let mut started = started();
    if started.is_over {
        return Err(io::Error::other("the run is over"));
    }
    fs::create_dir_all(folder)?;
    started.trees.push(folder.to_owned());
    Ok(())
}

/// Removes a folder created by [`make_folder`].
pub(super) fn remove_folder(folder: &Path) {
    let mut started = started();
    if let Some(at) = started.folders.iter().position(|one| one == folder) {
        started.folders.swap_remove(at);
        remove(folder);
    }
}

fn remove(folder: &Path) {
    if let Err(error) = fs::remove_dir(folder) {
        eprintln!("{} can't be removed: {error}", folder.display());
    }
}

/// The lines that a process wrote to its standard error, each with the time of its arrival.
pub type Log = Arc<Mutex<Vec<(Timestamp, String)>>>;

/// A server process. Dropping it ends the process.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    /// The first line of its standard output; disconnected once that has ended.
    said: Receiver<io::Result<String>>,
    log: Log,
    _stdin: Option<ChildStdin>,
}

impl Process {
    /// Starts a process.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let mut started = started();
        if started.is_over {
            return Err(io::Error::other("the run is over"));
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let program = command.get_program().to_string_lossy();
        let mut child = child.map_err(|error| io::Error::other(format!("{program}: {error}")))?;
        let (pid, stdin, stdout, stderr) = (child.id(), child.stdin.take(), child.stdout.take(), child.stderr.take());
        started.children.insert(pid, child);
        drop(started);
        let (says, said) = sync_channel(1);
        thread::Builder::new().spawn(move || listen(stdout, &says))?;
        let log = Log::default();
        if let Some(stderr) = stderr {
            let log = log.clone();
            thread::Builder::new().spawn(move || keep(stderr, &log))?;
        }
        Ok(Self { pid, said, log, _stdin: stdin })
    }

    /// The id of the process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The lines written to its standard error, if that was piped.
    pub fn log(&self) -> Vec<(Timestamp, String)> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The first line that the process prints.
    pub fn said(&self) -> Result<String, Failed> {
        self.said_within(PATIENCE)
    }

    /// Like [`said`](Self::said), with the given timeout.
    pub fn said_within(&self, patience: Duration) -> Result<String, Failed> {
        let said = self.said.recv_timeout(patience);
        let line = said.map_err(|_| format!("process {} isn't ready after {patience:?}", self.pid))??;
        if line.is_empty() { Err(format!("process {} ended before it was ready", self.pid).into()) } else { Ok(line) }
    }

    /// Whether the process hasn't exited.
    pub fn is_running(&self) -> bool {
        started().children.get_mut(&self.pid).is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        Ok(kill_process(pid.ok_or_else(|| io::Error::other("no such process"))?, signal)?)
    }

    /// Waits until the process has exited after a request to stop.
    ///
    /// # Errors
    /// It doesn't exit in time, or not with code 0.
    pub fn ended(self, patience: Duration) -> Result<(), Failed> {
        loop {
            match self.said.recv_timeout(patience) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("process {} hasn't ended after {patience:?}", self.pid).into());
                }
            }
        }
        let Some(mut child) = started().children.remove(&self.pid) else { return Ok(()) };
        let status = child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("process {}: {status}", self.pid).into()) }
    }
}

/// Sends the first line, and returns when the process has closed its standard output.
fn listen(stdout: Option<ChildStdout>, says: &SyncSender<io::Result<String>>) {
    let Some(stdout) = stdout else { return };
    let (mut stdout, mut line) = (BufReader::new(stdout), String::new());
    let read = stdout.read_line(&mut line).map(|_| line);
    // The receiver may have been dropped with its process.
    let _ = says.send(read);
    let _ = io::copy(&mut stdout, &mut io::sink());
}

fn keep(stderr: ChildStderr, log: &Log) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        log.lock().unwrap_or_else(PoisonError::into_inner).push((clock::now(), line));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let child = started().children.remove(&self.pid);
        if let Some(child) = child {
            end(child);
        }
    }
}

/// The line that a node prints when it can answer strong reads.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub struct ReadyLine {
    ready: bool,
    /// The address of the node.
    pub addr: SocketAddr,
    /// The node's place in the chain.
    pub role: String,
}

impl ReadyLine {
    /// Parses the line.
    pub fn parse(line: &str) -> Result<Self, Failed> {
        let told = |why: &dyn std::fmt::Display| format!("not the line of a ready node: {line:?}: {why}");
        let parsed: Self = serde_json::from_str(line).map_err(|error| told(&error))?;
        if parsed.ready { Ok(parsed) } else { Err(told(&"it isn't ready").into()) }
    }
}

/// What a client needs to reach a cluster.
#[derive(Debug)]
pub struct Contact {
    /// The cluster's name.
    pub name: String,
    /// The cluster's secret.
    pub secret: String,
    /// The addresses of its nodes.
    pub addrs: Vec<SocketAddr>,
}

impl Contact {
    /// The number of nodes.
    pub fn members(&self) -> u32 {
        self.addrs.len() as u32
    }
}

/// A chain of node processes.
#[derive(Debug)]
pub struct Cluster {
    /// What clients need to connect.
    pub contact: Arc<Contact>,
    nodes: Vec<Process>,
    /// Dropped after the nodes: a share can't be removed before its process has exited.
    shares: Vec<Share>,
}

impl Cluster {
    /// Starts `members` nodes, which find each other by mDNS, and waits until each of them is ready. `mode` is `cr` or
    /// `craq`.
    pub fn start(program: &Path, mode: &str, members: u32) -> Result<Self, Failed> {
        let (name, secret) = (format!("bench-{}", token()), token());
        let members = members.to_string();
        let start = |_| {
            let mut command = Command::new(program);
            command.args(["--listen", "127.0.0.1:0"]);
            command.args(["--cluster", &name, "--mode", mode, "--expect", &members, "--replicas", &members]);
            command.args(["--log", "error"]).env("ARTILLERY_SECRET", &secret);
            Process::start(&mut command)
        };
        let nodes = (0..members.parse::<u32>()?).map(start).collect::<io::Result<Vec<_>>>()?;
        let ready = |node: &Process| Ok(ReadyLine::parse(&node.said()?)?.addr);
        let addrs = nodes.iter().map(ready).collect::<Result<_, Failed>>()?;
        Ok(Self { contact: Arc::new(Contact { name, secret, addrs }), nodes, shares: Vec::new() })
    }

    /// Limits each node to a fraction of a core.
    pub fn hold(&mut self, share: impl Fn(u32) -> io::Result<Share>) -> io::Result<()> {
        self.shares = self.nodes.iter().map(|node| share(node.pid())).collect::<io::Result<_>>()?;
        Ok(())
    }

    /// The ids of its processes.
    pub fn pids(&self) -> Vec<u32> {
        self.nodes.iter().map(Process::pid).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line() {
        let line = r#"{"ready":true,"node":"ab","role":"head","addr":"127.0.0.1:4711","resp":null,"http":null}"#;
        let parsed = ReadyLine::parse(line).unwrap();
        assert_eq!((parsed.addr.port(), parsed.role.as_str()), (4711, "head"));
        for bad in ["", "ready", r#"{"ready":false,"addr":"127.0.0.1:1"}"#, r#"{"ready":true,"addr":"nowhere"}"#] {
            assert!(ReadyLine::parse(bad).unwrap_err().to_string().contains("not the line of a ready node"), "{bad}");
        }
    }

    #[test]
    fn a_process_ends_with_its_handle() {
        let process = Process::start(Command::new("sh").args(["-c", "echo here; exec sleep 600"])).unwrap();
        assert_eq!(process.said().unwrap(), "here\n");
        let folder = PathBuf::from(format!("/proc/{}", process.pid()));
        assert!(folder.exists());
        drop(process);
        assert!(!folder.exists());
    }

    #[test]
    fn process_that_ends_early_is_not_ready() {
        let process = Process::start(Command::new("sh").args(["-c", "exit 3"])).unwrap();
        assert!(process.said().unwrap_err().to_string().contains("ended before"));
        assert!(Process::start(&mut Command::new("/nowhere/node")).unwrap_err().to_string().contains("/nowhere/node"));
    }
}
