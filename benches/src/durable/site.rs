//! A chain of node processes that can be killed or stopped, and restarted with the same addresses and directories.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use artillery_core::{Timestamp, internal::clock};
use artillery_ddata::Client;
use artillery_processes::token;
use rustix::process::Signal;
use tokio::time::sleep;

use super::http;
use crate::throughput::{
    Failed,
    machine::cpu_of,
    processes::{Process, ReadyLine},
};

/// How long a node may take to load its directory.
const PATIENCE: Duration = Duration::from_secs(1800);
/// How long a node may take to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(120);
/// The pause between two attempts to reach a node.
const PAUSE: Duration = Duration::from_millis(10);

/// What nodes store on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keeps {
    /// Nothing.
    Memory,
    /// All updates, synced.
    Batch,
    /// All updates, without syncs.
    Never,
}

impl Keeps {
    /// The name in tables and, for nodes with directories, the value of `--sync`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Batch => "batch",
            Self::Never => "never",
        }
    }
}

/// The name, addresses and directory of a node.
#[derive(Debug)]
struct Seat {
    name: String,
    addr: SocketAddr,
    http: SocketAddr,
    dir: Option<PathBuf>,
}

/// Three nodes, which keep their addresses and directories across restarts.
#[derive(Debug)]
pub struct Site {
    program: PathBuf,
    name: String,
    secret: String,
    sync: &'static str,
    more: Vec<String>,
    seats: Vec<Seat>,
    nodes: Vec<Process>,
}

fn free_ports() -> io::Result<(SocketAddr, SocketAddr)> {
    let (quic, http) = (UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?, TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?);
    Ok((quic.local_addr()?, http.local_addr()?))
}

impl Site {
    /// Three nodes that aren't started. Their directories will be in `folder`; `more` are additional flags of `node`.
    pub fn new(program: &Path, folder: &Path, keeps: Keeps, more: &[&str]) -> Result<Self, Failed> {
        let seat = |n| {
            let (addr, http) = free_ports()?;
            let dir = (keeps != Keeps::Memory).then(|| folder.join(format!("{}-{n}", keeps.name())));
            Ok(Seat { name: format!("node-{n}"), addr, http, dir })
        };
        Ok(Self {
            program: program.to_owned(),
            name: format!("bench-{}", token()),
            secret: token(),
            sync: keeps.name(),
            more: more.iter().map(|&flag| flag.to_owned()).collect(),
            seats: (0..3).map(seat).collect::<io::Result<_>>()?,
            nodes: Vec::new(),
        })
    }

    /// Starts all nodes without waiting for them.
    pub fn start(&mut self) -> Result<(), Failed> {
        self.nodes =
            self.seats.iter().map(|seat| Process::start(&mut self.command(seat))).collect::<io::Result<_>>()?;
        Ok(())
    }

    fn command(&self, seat: &Seat) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["--cluster", &self.name, "--no-mdns", "--log", "info", "--name", &seat.name]);
        command.args(["--listen", &seat.addr.to_string(), "--http", &seat.http.to_string()]);
        for other in self.seats.iter().filter(|other| other.addr != seat.addr) {
            command.args(["--seed", &other.addr.to_string()]);
        }
        if let Some(dir) = &seat.dir {
            command.arg("--data").arg(dir).args(["--sync", self.sync]);
        }
        command.args(&self.more).env("ARTILLERY_SECRET", &self.secret).stderr(Stdio::piped());
        command
    }

    /// Waits until all nodes are ready.
    pub fn ready(&self) -> Result<(), Failed> {
        self.nodes.iter().try_for_each(|node| ReadyLine::parse(&node.said_within(PATIENCE)?).map(drop))
    }

    /// Kills all nodes.
    pub fn kill(&mut self) -> Result<(), Failed> {
        self.nodes.iter().try_for_each(|node| node.signal(Signal::KILL))?;
        self.nodes.clear();
        Ok(())
    }

    /// Sends SIGTERM to all nodes, and waits until they have exited.
    ///
    /// # Errors
    /// A node doesn't exit in time, or fails.
    pub fn stop(&mut self) -> Result<(), Failed> {
        self.nodes.iter().try_for_each(|node| node.signal(Signal::TERM))?;
        self.nodes.drain(..).try_for_each(|node| node.ended(STOP_PATIENCE))
    }

    /// The directories of the nodes.
    pub fn dirs(&self) -> Vec<PathBuf> {
        self.seats.iter().filter_map(|seat| seat.dir.clone()).collect()
    }

    /// The ids of the processes.
    pub fn pids(&self) -> Vec<u32> {
        self.nodes.iter().map(Process::pid).collect()
    }

    /// The addresses at which the nodes answer HTTP.
    pub fn pages(&self) -> Vec<SocketAddr> {
        self.seats.iter().map(|seat| seat.http).collect()
    }

    /// Whether no node has exited.
    pub fn is_running(&self) -> bool {
        self.nodes.iter().all(Process::is_running)
    }

    /// The log lines of each node so far.
    pub fn logs(&self) -> Vec<Vec<(Timestamp, String)>> {
        self.nodes.iter().map(Process::log).collect()
    }

    /// The addresses and the secret with which a client reaches the nodes.
    pub fn contact(&self) -> Contact {
        let addrs = self.seats.iter().map(|seat| seat.addr).collect();
        Contact { name: self.name.clone(), secret: self.secret.clone(), addrs }
    }
}

/// The addresses and the secret with which a client reaches the nodes.
#[derive(Debug, Clone)]
pub struct Contact {
    name: String,
    secret: String,
    addrs: Vec<SocketAddr>,
}

impl Contact {
    /// Connects, as soon as a node answers.
    pub async fn connect(&self) -> Client {
        loop {
            let builder = Client::builder().cluster(&self.name).secret(&self.secret).seeds(self.addrs.clone());
            if let Ok(client) = builder.connect().await {
                return client;
            }
            sleep(PAUSE).await;
        }
    }

    /// Connects several clients.
    pub async fn connect_all(&self, clients: usize) -> Vec<Client> {
        let mut connected = Vec::new();
        for _ in 0..clients {
            connected.push(self.connect().await);
        }
        connected
    }
}

/// When a node was back after a start.
#[derive(Debug, Clone, Copy)]
pub struct Back {
    /// When it had loaded its directory.
    pub loaded: Timestamp,
    /// Its processor time until then, in seconds.
    pub cpu: f64,
    /// When its chain was open there, and no record was unreplicated.
    pub settled: Timestamp,
}

/// Watches a node until no record is unreplicated there.
pub async fn back((page, pid): (SocketAddr, u32)) -> Back {
    let mut loaded = None;
    loop {
        if let Some(status) = http::status(page).await {
            let now = clock::now();
            let (loaded, cpu) = *loaded.get_or_insert_with(|| (now, cpu_of(pid).unwrap_or_default()));
            let open = !status.chains.is_empty() && status.chains.iter().all(|chain| chain.open);
            if open && status.chains.iter().all(|chain| chain.unreplicated_records == 0) {
                return Back { loaded, cpu, settled: now };
            }
        }
        sleep(PAUSE).await;
    }
}
