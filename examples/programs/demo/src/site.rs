//! One node of the demo: its ports and directory, which stay, and its process.

use std::{
    env, fs,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use artillery_programs::exit::Failure;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::sleep,
};

use crate::{NAMES, child, place::Place, text::print};

/// A node, running or not.
pub(super) struct Site {
    pub(super) name: &'static str,
    /// Its QUIC address.
    pub(super) listen: SocketAddr,
    pub(super) http: SocketAddr,
    pub(super) resp: SocketAddr,
    /// Its role when it last became ready.
    pub(super) role: String,
    dir: PathBuf,
    cluster: String,
    seeds: Vec<SocketAddr>,
    process: Option<Process>,
}

struct Process {
    id: u32,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// The node ends when this pipe is closed.
    _lives: Option<ChildStdin>,
}

/// Plans a node for each name. `ports` are the first ones for HTTP and for the Redis protocol, if they aren't arbitrary.
pub(super) fn plan(place: &Place, ports: [Option<u16>; 2]) -> Result<[Site; 3], Failure> {
    // All at the same time, so that they differ. Another process may take one before its node does, which then fails.
    let sockets: Vec<_> = NAMES.iter().map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))).collect();
    let listen: Result<Vec<_>, _> = sockets.into_iter().map(|socket| socket?.local_addr()).collect();
    let listen = listen.map_err(Failure::failed)?;
    let addr = |first: Option<u16>, n: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, first.map_or(0, |port| port + n)));
    let site = |n: u16| {
        let (name, [http, resp]) = (NAMES[usize::from(n)], ports.map(|first| addr(first, n)));
        let (dir, cluster) = (place.dir.clone(), place.cluster.clone());
        let (listen, seeds) = (listen[usize::from(n)], listen.clone());
        Site { name, listen, http, resp, role: String::new(), dir, cluster, seeds, process: None }
    };
    Ok([0, 1, 2].map(site))
}

impl Site {
    /// The file with the log of the node.
    pub(super) fn log(&self) -> PathBuf {
        self.dir.join(format!("{}.log", self.name))
    }

    /// The process id; 0 if there is no process.
    pub(super) fn id(&self) -> u32 {
        self.process.as_ref().map_or(0, |process| process.id)
    }

    /// Starts the process.
    pub(super) fn start(&mut self) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::failed(format!("node {}: {error}", self.name));
        let log = fs::File::options().create(true).append(true).open(self.log()).map_err(failed)?;
        let mut command = Command::new(this_program().map_err(failed)?);
        command.arg0(format!("artillery-demo-{}", self.name)).arg(child::COMMAND).arg(&self.dir);
        command.args(["--cluster", &self.cluster, "--name", self.name, "--no-mdns", "--log", "info", "--data"]);
        command.arg(self.dir.join(self.name));
        let addrs = [("--listen", self.listen), ("--http", self.http), ("--resp", self.resp)];
        let seeds = self.seeds.iter().filter(|&&seed| seed != self.listen).map(|&seed| ("--seed", seed));
        for (flag, addr) in addrs.into_iter().chain(seeds) {
            command.arg(flag).arg(addr.to_string());
        }
        // Signals of the terminal are for the demo, and a service manager wants no word of a node.
        command.process_group(0).env_remove("NOTIFY_SOCKET").kill_on_drop(true);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn().map_err(failed)?;
        let (id, out) = (child.id(), child.stdout.take());
        let (Some(id), Some(out)) = (id, out) else { return Err(Failure::failed("a process without output")) };
        let lives = child.stdin.take();
        self.process = Some(Process { id, child, lines: BufReader::new(out).lines(), _lives: lives });
        Ok(())
    }

    /// Waits until the node is ready, and keeps the addresses and the role that it prints.
    ///
    /// # Errors
    /// The node ends first. The error is its own.
    pub(super) async fn ready(&mut self) -> Result<(), Failure> {
        let Some(process) = &mut self.process else { return Err(Failure::failed("no process")) };
        let line = process.lines.next_line().await.ok().flatten();
        let Some(line) = line.and_then(|line| serde_json::from_str::<Value>(&line).ok()) else {
            // Its log is complete only once it has ended.
            let _ = process.child.wait().await;
            return Err(Failure::failed(format!("node {}: {}", self.name, self.last_words())));
        };
        let addr = |field: &str| line[field].as_str().and_then(|addr| addr.parse().ok());
        (self.http, self.resp) = (addr("http").unwrap_or(self.http), addr("resp").unwrap_or(self.resp));
        self.role = line["role"].as_str().unwrap_or_default().to_owned();
        Ok(())
    }

    /// Restarts the node each time it has ended. Returns only if that isn't possible.
    pub(super) async fn keep(&mut self, restart_after: Duration) -> Failure {
        loop {
            let Some(process) = &mut self.process else { return Failure::failed("no process") };
            let (name, id) = (self.name, process.id);
            let ended = match process.child.wait().await {
                Ok(status) => how(status),
                Err(error) => return Failure::failed(error),
            };
            let seconds = restart_after.as_secs();
            print(&format!("Node {name} (process {id}) {ended}. It is restarted after {seconds} s."));
            // The pause that `--restart-after` asks for, so that its effect can be seen.
            sleep(restart_after).await;
            if let Err(failure) = self.start() {
                return failure;
            }
            print(&format!("Node {name} is restarted as process {}.", self.id()));
            match self.ready().await {
                Ok(()) => print(&format!("Node {name} is ready again: its place is {}.", self.role)),
                Err(failure) => print(&format!("It failed: {failure}")),
            }
        }
    }

    /// Kills the process if there is one, and waits until it has ended.
    pub(super) async fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.child.kill().await;
        }
    }

    /// The last line of the log.
    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        log.lines().last().unwrap_or("it ended without a message").trim_start_matches("error: ").to_owned()
    }
}

fn how(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("was ended by signal {signal}"),
        None => format!("ended with exit code {}", status.code().unwrap_or_default()),
    }
}

/// This program. On Linux even if its file was replaced or deleted since, but then `ps` shows the process as `exe`.
fn this_program() -> std::io::Result<PathBuf> {
    let program = env::current_exe()?;
    let is_replaced = cfg!(target_os = "linux") && !program.exists();
    Ok(if is_replaced { "/proc/self/exe".into() } else { program })
}
