//! Tests the checker itself, with servers that look like one store but aren't.

use std::{path::Path, sync::Arc, time::Duration};

use artillery_processes::namespaces;
use artillery_programs::{chance, exit::Failure, story::Story};
use redis::Client;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{
    book::Book,
    cluster::Cluster,
    door::{Ask, Door, Reply, Resp},
    fault::name,
    net::{Net, address},
    process::Process,
    verdict::{self, Verdict},
    worker::Worker,
};

pub(super) const SERVERS: usize = 3;
const CLIENTS_EACH: usize = 2;
const START_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Long enough for any two clients to use the same key.
const RUN: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Setup {
    /// All operations at one server, which is linearizable: the checker must not raise a false alarm.
    One,
    /// Each client at one server; the servers are unrelated.
    Independent,
    /// Writes at the first server, which replicates asynchronously; reads at any server; the links are cut temporarily.
    Asynchronous,
}

impl Setup {
    fn text(self) -> &'static str {
        match self {
            Self::One => "one redis-server",
            Self::Independent => "three independent redis-servers",
            Self::Asynchronous => "a redis-server and its two replicas, cut off temporarily",
        }
    }

    fn door(self, server: usize) -> Split {
        let (write, read) = match self {
            Self::One => (0, 0),
            Self::Independent => (server, server),
            Self::Asynchronous => (0, server),
        };
        Split { write: Resp::new(Cluster::resp(write)), read: Resp::new(Cluster::resp(read)) }
    }
}

struct Split {
    write: Resp,
    read: Resp,
}

impl Door for Split {
    const PUTS: bool = false;

    async fn ask(&mut self, key: &str, ask: Ask) -> Reply {
        let door = if ask.is_read() { &mut self.read } else { &mut self.write };
        door.ask(key, ask).await
    }
}

pub(super) fn missing() -> bool {
    namespaces::run("redis-server", &["--version"]).is_err()
}

/// Runs all setups; true if the checker was right about each.
pub(super) async fn run(net: &mut Net, logs: &Path, seed: u64, story: &Story) -> Result<bool, Failure> {
    let mut right = true;
    for setup in [Setup::One, Setup::Independent, Setup::Asynchronous] {
        let verdict = judge(setup, net, logs, seed).await?;
        let linearizable = verdict.wrong.is_empty();
        right &= linearizable == (setup == Setup::One) && verdict.undecided == 0;
        let word = if linearizable { "linearizable" } else { "not linearizable" };
        story.say(&format!("{}: {word} ({} operations)", setup.text(), verdict.operations));
        if let Some(wrong) = verdict.wrong.first() {
            story.say(&format!("  for example {}", wrong.what));
        }
    }
    Ok(right)
}

async fn judge(setup: Setup, net: &mut Net, logs: &Path, seed: u64) -> Result<Verdict, Failure> {
    let _servers: Vec<Process> =
        (0..SERVERS).map(|server| start(setup, server, net, logs)).collect::<Result<_, _>>()?;
    let book = Arc::new(Book::new(chance::token(), false));
    for server in 0..SERVERS {
        until_up(server, setup == Setup::Asynchronous && server > 0).await?;
    }
    let mut workers = JoinSet::new();
    for server in (0..SERVERS).cycle().take(SERVERS * CLIENTS_EACH) {
        workers.spawn(Worker::new(setup.door(server), book.clone(), seed).run());
    }
    sleep(RUN).await;
    if setup == Setup::Asynchronous {
        for server in 1..SERVERS {
            net.cut(0, server)?;
        }
        sleep(RUN).await;
        net.heal()?;
    }
    book.close();
    while let Some(done) = workers.join_next().await {
        done.map_err(Failure::failed)?;
    }
    Ok(verdict::judge(&book.copy(), Default::default()))
}

fn start(setup: Setup, server: usize, net: &Net, logs: &Path) -> Result<Process, Failure> {
    let at = Cluster::resp(server);
    let (ip, own) = (at.ip().to_string(), address(server).to_string());
    let (port, first) = (at.port().to_string(), address(0).to_string());
    let directory = logs.display().to_string();
    let mut args =
        vec!["--bind", &ip, &own, "--port", &port, "--save", "", "--protected-mode", "no", "--dir", &directory];
    // Sends a new replica everything at once instead of waiting for further replicas.
    args.extend(["--repl-diskless-sync-delay", "0"]);
    if setup == Setup::Asynchronous && server > 0 {
        args.extend(["--replicaof", &first, &port]);
    }
    let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
    let log = logs.join(format!("redis-{}.log", name(server)));
    Process::start(&net.namespace(server), Path::new("redis-server"), &args, "", &log)
}

/// Waits until a server answers; for a replica, until it is linked to its primary.
async fn until_up(server: usize, replica: bool) -> Result<(), Failure> {
    let begin = Instant::now();
    let at = Cluster::resp(server);
    loop {
        let info = async {
            let client = Client::open((at.ip().to_string(), at.port()))?;
            let mut connection = client.get_multiplexed_async_connection().await?;
            redis::cmd("INFO").arg("replication").query_async::<String>(&mut connection).await
        };
        match info.await {
            Ok(info) if !replica || info.contains("master_link_status:up") => return Ok(()),
            _ if begin.elapsed() > START_TIMEOUT => {
                return Err(Failure::failed(format!("redis-server at {at} isn't up in time")));
            }
            _ => sleep(POLL_INTERVAL).await,
        }
    }
}
