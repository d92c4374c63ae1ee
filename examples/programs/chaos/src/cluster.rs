//! The nodes of a run, and the check that the cluster is whole: all nodes ready, all members serving.

mod start;

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Mutex, MutexGuard, PoisonError, atomic::AtomicU32},
    time::Duration,
};

use artillery_ddata::{Client, client::Spread};
use artillery_programs::{chance, exit::Failure};
use rustix::process::Signal;
use serde_json::Value;
use tokio::{
    process::Command,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use super::{
    args::ChaosArgs,
    directories::Directories,
    fault::{Fault, Kind, name},
    http,
    net::{Net, address, second_address, service_address},
    nodes::Nodes,
    set::NodeSet,
    tally::OrderOutcome,
    view::View,
};

/// The ports on which nodes listen. A node changes its port only while it isn't running, and only if it has a
/// directory.
const QUIC: [u16; 3] = [4400, 4401, 4402];
const RESP: u16 = 6379;
const HTTP: u16 = 8080;
const WHOLE_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The `--timeout` of `ctl` for an order, in milliseconds: for finding the cluster, and for each of its calls.
const CTL_MS: u64 = 4000;
/// An order takes `ctl` at most four timeouts: one to find the cluster, and three for its calls. A run that takes
/// longer hangs. `ctl recover` may take longer: it is killed after this time, and `recover` runs it again.
const CTL_HANGS: Duration = Duration::from_millis(4 * CTL_MS + 2000);

/// The flags `--lease-ms` and `--drift-ppm` of the nodes.
pub(super) const LEASE: Duration = Duration::from_millis(1000);
pub(super) const DRIFT_PPM: u32 = 10_000;

pub(super) struct Programs {
    pub(super) node: PathBuf,
    pub(super) ctl: PathBuf,
}

pub(super) struct Cluster {
    // Declared before the network, so that the processes are dropped before it.
    pub(super) nodes: Nodes,
    net: Mutex<Net>,
    programs: Programs,
    logs: PathBuf,
    name: String,
    secret: String,
    replicas: u32,
    ports: Mutex<Vec<u16>>,
    /// Whether addresses may change during the run. If so, nodes listen on all of their addresses.
    roams: bool,
    /// Numbers the additional processes.
    others: AtomicU32,
    directories: Option<Directories>,
}

impl Cluster {
    /// Starts nothing. The directories of the nodes are in `data`, next to the logs.
    pub(super) fn new(net: Net, args: &ChaosArgs, programs: Programs, logs: PathBuf) -> Self {
        let (name, secret) = (format!("chaos-{}", chance::token()), chance::token());
        let (nodes, net) = (Nodes::new(args.nodes), Mutex::new(net));
        let directories = args.data.then(|| Directories::new(logs.join("data"), nodes.len()));
        let ports = Mutex::new(vec![QUIC[0]; nodes.len()]);
        let (roams, others, replicas) = (args.draws(Kind::Address), AtomicU32::new(0), args.replicas);
        Self { nodes, net, programs, logs, name, secret, replicas, ports, roams, others, directories }
    }

    pub(super) fn is_durable(&self) -> bool {
        self.directories.is_some()
    }

    pub(super) fn directories(&self) -> Option<&Directories> {
        self.directories.as_ref()
    }

    fn ports(&self) -> MutexGuard<'_, Vec<u16>> {
        // A port is written as a whole, so a poisoned lock is harmless.
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn quic(&self, node: usize) -> SocketAddr {
        SocketAddr::from((self.net().address(node), self.ports()[node]))
    }

    /// Gives another port to each of these nodes that isn't running. The others were started in the meantime, by a
    /// fault or an order, at their old ports.
    pub(super) fn move_ports(&self, nodes: NodeSet) {
        for node in nodes.iter().filter(|node| !self.nodes.runs(*node)) {
            let port = &mut self.ports()[node];
            let place = QUIC.iter().position(|other| other == port).unwrap_or_default();
            *port = QUIC[(place + 1) % QUIC.len()];
        }
    }

    pub(super) fn size(&self) -> usize {
        self.nodes.len()
    }

    fn net(&self) -> MutexGuard<'_, Net> {
        // A change that fails halfway ends the run, so a poisoned lock is harmless.
        self.net.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn start_all(&self) -> Result<(), Failure> {
        (0..self.nodes.len()).try_for_each(|node| self.start(node))
    }

    /// Copies the directory of each node, which is paused for the copy.
    pub(super) async fn keep_copies(&self) -> Result<(), Failure> {
        let Some(directories) = &self.directories else { return Ok(()) };
        for node in 0..self.nodes.len() {
            self.nodes.signal(node, Signal::STOP)?;
            directories.keep_copy(node)?;
            self.nodes.signal(node, Signal::CONT)?;
        }
        Ok(())
    }

    pub(super) fn resp(node: usize) -> SocketAddr {
        SocketAddr::from((service_address(node), RESP))
    }

    pub(super) fn logs(&self) -> &Path {
        &self.logs
    }

    pub(super) fn log(&self, node: usize) -> PathBuf {
        self.logs.join(format!("{}.log", name(node)))
    }

    /// Connects a client. Its seeds are all addresses that a node may have, and its reads rotate over the nodes.
    pub(super) async fn client(&self) -> Result<Client, Failure> {
        let ports = if self.is_durable() { &QUIC[..] } else { &QUIC[..1] };
        let addresses: &[fn(usize) -> Ipv4Addr] = if self.roams { &[address, second_address] } else { &[address] };
        let addresses = (0..self.nodes.len()).flat_map(|node| addresses.iter().map(move |of| of(node)));
        let of = |&port: &u16| addresses.clone().map(move |addr| SocketAddr::from((addr, port)));
        let seeds: Vec<_> = ports.iter().flat_map(of).collect();
        let builder = Client::builder().cluster(&self.name).secret(&self.secret).seeds(seeds);
        builder.spread(Spread::RoundRobin).connect().await.map_err(Failure::failed)
    }

    fn ctl_at(&self, nodes: impl IntoIterator<Item = usize>) -> Command {
        let mut command = Command::new(&self.programs.ctl);
        command.args(["--cluster", &self.name, "--no-mdns"]).env("ARTILLERY_SECRET", &self.secret);
        for node in nodes {
            command.args(["--seed", &self.quic(node).to_string()]);
        }
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// The JSON that `ctl` prints when seeded with that node; `None` if it prints no valid JSON.
    pub(super) async fn ctl(&self, node: usize, args: &[&str]) -> Option<Value> {
        let output = self.ctl_at([node]).args(args).output().await.ok()?;
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Has `ctl` give an order, seeded with node `first` before the others. Returns the outcome, and the error text if
    /// the order was not done.
    pub(super) async fn order(&self, first: usize, args: &[&str]) -> (OrderOutcome, Option<String>) {
        let mut command = self.ctl_at((0..self.size()).map(|place| (first + place) % self.size()));
        command.args(["--json", "--timeout", &CTL_MS.to_string()]).args(args);
        let output = match timeout(CTL_HANGS, command.output()).await {
            Ok(Ok(output)) => output,
            Ok(Err(error)) => return (OrderOutcome::Failed, Some(error.to_string())),
            Err(_) => return (OrderOutcome::Hung, Some(format!("ctl did not end within {CTL_HANGS:?}"))),
        };
        if output.status.success() {
            return (OrderOutcome::Done, None);
        }
        let said = serde_json::from_slice::<Value>(&output.stdout).ok();
        let said = said.and_then(|said| Some(said["error"].as_str()?.to_owned()));
        let text = said.unwrap_or_else(|| String::from_utf8_lossy(&output.stderr).trim().to_owned());
        (OrderOutcome::of(&text), Some(text))
    }

    /// Runs `ctl recover`, with `node` as the first seed, until it succeeds. Starts no attempt after [`WHOLE_TIMEOUT`].
    /// `ctl` selects the node that continues: the one with the best surviving history, which is complete if `node`
    /// holds every acknowledged write.
    pub(super) async fn recover(&self, node: usize) -> Result<(), Failure> {
        let begin = Instant::now();
        let mut last = "no answer".to_owned();
        while begin.elapsed() < WHOLE_TIMEOUT {
            if let Some(status) = self.status(node).await
                && let Some(cluster) = status["cluster_id"].as_str()
            {
                match self.order(node, &["recover", "--accept-loss", cluster]).await {
                    (OrderOutcome::Done, _) => return Ok(()),
                    (_, text) => last = text.unwrap_or_default(),
                }
            }
            sleep(POLL_INTERVAL).await;
        }
        Err(Failure::failed(format!("{} was not recovered: {last}", name(node))))
    }

    /// Restarts these nodes with empty directories, as docs/operations.md asks of operators after a recovery: these
    /// nodes belong to the old history, and stop once they meet the new one.
    pub(super) async fn begin_anew(&self, nodes: NodeSet) -> Result<(), Failure> {
        let still_run = nodes.iter().filter(|node| self.nodes.ended(*node).is_none()).collect();
        self.nodes.kill(still_run).await?;
        for node in nodes.iter() {
            self.directories.as_ref().map_or(Ok(()), |directories| directories.wipe(node))?;
            self.start(node)?;
        }
        Ok(())
    }

    /// The state of the cluster, merged from the reports of all nodes that answer.
    pub(super) async fn view(&self) -> View {
        let mut asking = JoinSet::new();
        for node in 0..self.size() {
            asking.spawn(http::status(SocketAddr::from((service_address(node), HTTP))));
        }
        let all: Vec<Value> = asking.join_all().await.into_iter().flatten().collect();
        View::of(&all)
    }

    pub(super) async fn strike(&self, fault: &Fault) -> Result<(), Failure> {
        let (victim, other) = (fault.victim, fault.other);
        match fault.kind {
            kind if kind.kills() => self.nodes.kill(fault.killed()).await?,
            Kind::Restart => self.nodes.stop(NodeSet::of(victim)).await?,
            Kind::Pause => self.nodes.signal(victim, Signal::STOP)?,
            Kind::Slow => self.net().slow(victim, fault.kilobits, fault.keeps_ms)?,
            Kind::Cut => {
                self.net().cut(victim, other)?;
                self.net().cut(other, victim)?;
            }
            Kind::OneWay => self.net().cut(other, victim)?,
            Kind::Address => self.net().readdress(victim)?,
            Kind::Outbound => {
                let others: Vec<_> =
                    (0..self.size()).filter(|node| *node != victim).map(|node| self.quic(node)).collect();
                self.net().close_inbound(victim, &others)?;
            }
            // The additional processes are started elsewhere.
            Kind::Young => self.nodes.kill(fault.killed()).await?,
            Kind::Twin => {}
            _ => {
                for other in (0..self.nodes.len()).filter(|other| *other != victim) {
                    if fault.kind != Kind::Mute {
                        self.net().cut(other, victim)?;
                    }
                    if fault.kind != Kind::Deaf {
                        self.net().cut(victim, other)?;
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn heal(&self, fault: &Fault) -> Result<(), Failure> {
        match fault.kind {
            kind if kind.kills() => {
                // The order of starts varies with the fault.
                let first = fault.pick as usize % self.size();
                let nodes = (0..self.size()).map(|place| (first + place) % self.size());
                nodes.filter(|node| fault.killed().contains(*node)).try_for_each(|node| self.start(node))
            }
            Kind::Restart | Kind::Young => self.start(fault.victim),
            Kind::Pause => self.nodes.signal(fault.victim, Signal::CONT),
            Kind::Address if fault.returns => self.net().readdress(fault.victim),
            _ => self.net().heal(),
        }
    }

    /// Waits until every node is ready and the chain has all members that it should have.
    ///
    /// Returns the members' names, head first. `patience`, called at each check, returns the time from which
    /// [`WHOLE_TIMEOUT`] is measured.
    pub(super) async fn whole(&self, patience: impl Fn() -> Instant) -> Result<Vec<String>, Failure> {
        loop {
            self.nodes.all_run()?;
            let why = match self.look().await {
                Ok(members) => return Ok(members),
                Err(why) => why,
            };
            if patience().elapsed() >= WHOLE_TIMEOUT {
                return Err(Failure::failed(format!("not whole again after {} s: {why}", WHOLE_TIMEOUT.as_secs())));
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until those of these nodes that run have answered `/status`, for at most about [`WHOLE_TIMEOUT`]. Returns
    /// the time since `since`; zero if nodes have no directories. A node may answer before its directory is loaded.
    pub(super) async fn loaded(&self, nodes: NodeSet, since: Instant) -> Duration {
        if !self.is_durable() || nodes.is_empty() {
            return Duration::ZERO;
        }
        for node in nodes.iter() {
            while self.nodes.runs(node) && self.status(node).await.is_none() && since.elapsed() < WHOLE_TIMEOUT {
                sleep(POLL_INTERVAL).await;
            }
        }
        since.elapsed()
    }

    pub(super) async fn status(&self, node: usize) -> Option<Value> {
        http::status(SocketAddr::from((service_address(node), HTTP))).await
    }

    /// Whether the node reports that it is in no chain.
    pub(super) async fn is_spare(&self, node: usize) -> bool {
        self.status(node).await.is_some_and(|status| status["role"] == "spare")
    }

    async fn look(&self) -> Result<Vec<String>, String> {
        let mut all = Vec::new();
        for node in 0..self.nodes.len() {
            let status = self.status(node).await;
            all.push(status.ok_or_else(|| format!("{} doesn't answer", name(node)))?);
        }
        for (node, status) in all.iter().enumerate() {
            if status["ready"] != true {
                return Err(format!("{} isn't ready", name(node)));
            }
        }
        let settled = |status: &&Value| status["log"]["leader"] == status["node"] && status["log"]["settled"] == true;
        if !all.iter().any(|status| settled(&status)) {
            return Err("the leader reports pending configuration changes".to_owned());
        }
        self.chain(&all)
    }

    /// The members of the chain's newest configuration, if all of them serve in it.
    fn chain(&self, all: &[Value]) -> Result<Vec<String>, String> {
        let chains = || all.iter().filter_map(|status| Some((status["node"].as_str()?, status["chains"].get(0)?)));
        let newest = chains().filter_map(|(_, chain)| chain["epoch"].as_u64()).max();
        let same = || chains().filter(|(_, chain)| chain["epoch"].as_u64() == newest);
        let members = same().next().and_then(|(_, chain)| chain["members"].as_array()).ok_or("no member serves")?;
        let members: Vec<String> = members.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect();
        if members.len() < self.nodes.len().min(self.replicas as usize) {
            return Err(format!("only these are members: {}", members.join(" ")));
        }
        for member in &members {
            let serves = |(node, chain): (&str, &Value)| node == member && chain["open"] == true;
            if !same().any(serves) {
                return Err(format!("{member} doesn't serve in the newest epoch yet"));
            }
        }
        Ok(members)
    }
}
