//! `chaos`: real nodes under real faults, driven by clients whose histories a judge reads.

mod args;
mod book;
mod cluster;
mod door;
mod fault;
mod http;
mod isolation;
mod net;
mod process;
mod recovery;
mod report;
mod teeth;
mod verdict;
mod worker;
mod zones;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::Parser;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use self::{
    args::ChaosArgs,
    book::Book,
    cluster::{Cluster, Programs},
    door::{Library, Resp},
    fault::{Fault, Kind, Plan, name},
    isolation::Isolation,
    net::Net,
    report::{Round, Story, Summary},
    worker::Worker,
};
use crate::{
    chance,
    exit::{self, Failure},
    log,
    signals::Signals,
};

/// As `.ci/run` has it.
const SKIPPED: u8 = 77;
/// The longest that nodes may take until all is as it should be.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long all is well between two faults.
const CALM: Duration = Duration::from_millis(700);
/// The Redis clients at each node, by how long they wait for an answer: one sooner gives up than the node.
const REDIS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(7)];
/// Handles of the library's client.
const LIBRARY: usize = 3;

/// The program.
pub fn main() -> ExitCode {
    let args = ChaosArgs::parse();
    log::begin(args.log.level);
    let missing = Net::missing().or_else(|| (args.teeth && teeth::missing()).then_some("there is no redis-server"));
    if let Some(why) = missing {
        eprintln!("SKIPPED: {why}");
        return ExitCode::from(SKIPPED);
    }
    // Here, while there is only one thread: those that come after it are where clients are, too.
    let nodes = if args.teeth { teeth::SERVERS } else { args.nodes as usize };
    let net = Net::make(nodes).and_then(|net| net.enter().map(|()| net));
    exit::run(async { run(args, net?).await })
}

async fn run(args: ChaosArgs, net: Net) -> Result<u8, Failure> {
    let mut signals = Signals::listen().map_err(Failure::failed)?;
    let logs = Logs::make(args.logs.as_deref())?;
    let story = Story { aside: args.json };
    let fine = tokio::select! {
        fine = play(&args, net, &logs.path, &story) => fine,
        () = signals.asked_to_stop() => Err(Failure::failed("stopped before the end")),
    };
    let fine = fine.inspect_err(|_| story.say(&format!("logs: {}", logs.path.display())))?;
    if fine {
        logs.remove();
        Ok(exit::DONE)
    } else {
        story.say(&format!("logs: {}", logs.path.display()));
        Ok(exit::FAILED)
    }
}

/// True: every promise was kept.
async fn play(args: &ChaosArgs, mut net: Net, logs: &Path, story: &Story) -> Result<bool, Failure> {
    if args.teeth {
        return teeth::run(&mut net, logs, args.seed, story).await;
    }
    let begin = Instant::now();
    let programs = Programs {
        node: program(args.node_binary.as_deref(), "node")?,
        ctl: program(args.ctl_binary.as_deref(), "ctl")?,
    };
    let mut cluster = Cluster::new(net, args.nodes, args.replicas, programs, logs.to_owned());
    cluster.start_all()?;
    let members = cluster.whole(PATIENCE).await?;
    story.say(&format!("{:7.1} s  the chain is {}", begin.elapsed().as_secs_f64(), members.join(" ")));
    let book = Arc::new(Book::new(chance::token(), true));
    let mut workers = hire(&cluster, &book, args.seed).await?;
    let mut summary = Summary { nodes: args.nodes, replicas: args.replicas, seed: args.seed, ..Summary::default() };
    let done = rounds(args, &mut cluster, &book, members, &mut summary, story, begin).await;
    summary.error = done.err().map(|failure| failure.to_string());
    book.close();
    while let Some(done) = workers.join_next().await {
        done.map_err(Failure::failed)?;
    }
    summary.seconds = (begin.elapsed().as_secs_f64() * 10.0).round() / 10.0;
    judge(&book, &mut summary, cluster.logs())?;
    summary.tell(story);
    if args.json {
        println!("{}", serde_json::to_string(&summary).map_err(Failure::failed)?);
    }
    Ok(summary.is_fine())
}

/// Fault upon fault, until the time is up.
async fn rounds(
    args: &ChaosArgs,
    cluster: &mut Cluster,
    book: &Arc<Book>,
    mut members: Vec<String>,
    summary: &mut Summary,
    story: &Story,
    begin: Instant,
) -> Result<(), Failure> {
    let end = Instant::now() + Duration::from_secs(args.seconds);
    let mut plan = Plan::new(args.seed, cluster.size(), &args.kinds);
    while Instant::now() < end {
        sleep(CALM).await;
        book.next_generation();
        let fault = plan.next();
        let place = members.iter().position(|member| *member == name(fault.victim));
        let at = begin.elapsed().as_secs_f64();
        let isolation = suffer(cluster, book, &fault, place.is_some()).await?;
        let heal = Instant::now();
        cluster.heal(&fault)?;
        let regained = recovery::watch(book, cluster.size(), heal).await;
        let length = members.len();
        members = cluster.whole(PATIENCE).await?;
        let whole_ms = heal.elapsed().as_millis() as u64;
        recovery::read_back(book, cluster.size()).await;
        let moved_out = fault.kind == Kind::Isolate && place.is_some() && isolation.is_none();
        let role = role(place, length).to_owned() + if moved_out { ", moved out just before" } else { "" };
        let (kind, fault) = (fault.kind.to_string(), fault.to_string());
        let round = Round { at, kind, fault, role, regained, whole_ms, isolation };
        story.say(&round.line());
        summary.round(round);
    }
    Ok(())
}

/// What a member is in its place.
fn role(place: Option<usize>, members: usize) -> &'static str {
    match place {
        None => "spare",
        Some(0) => "head",
        Some(place) if place + 1 == members => "tail",
        Some(_) => "middle",
    }
}

/// Strikes, and waits for as long as it is to last.
async fn suffer(
    cluster: &mut Cluster,
    book: &Book,
    fault: &Fault,
    is_member: bool,
) -> Result<Option<Isolation>, Failure> {
    cluster.strike(fault).await?;
    let since = Instant::now();
    let end = since + fault.hold;
    if fault.kind == Kind::Isolate && is_member {
        let seen = isolation::watch(cluster, book, fault.victim, since, end).await;
        // What went before may have cost it its place after all: then it knows, and has no lease to speak of.
        let moved_out = seen.is_of_a_stranger() && cluster.is_spare(fault.victim).await;
        return Ok((!moved_out).then_some(seen));
    }
    sleep_until(end).await;
    Ok(None)
}

/// Clients, who begin to work at once.
async fn hire(cluster: &Cluster, book: &Arc<Book>, seed: u64) -> Result<JoinSet<()>, Failure> {
    let mut workers = JoinSet::new();
    for node in 0..cluster.size() {
        for patience in REDIS {
            let door = Resp::new(Cluster::resp(node)).patience(patience);
            workers.spawn(Worker::new(door, book.clone(), seed).run());
        }
    }
    let client = cluster.client().await?;
    for _ in 0..LIBRARY {
        workers.spawn(Worker::new(Library::new(&client), book.clone(), seed).run());
    }
    Ok(workers)
}

/// Has the book judged; histories that are wrong go to the logs.
fn judge(book: &Book, summary: &mut Summary, logs: &Path) -> Result<(), Failure> {
    let lines = book.copy();
    summary.count(&lines);
    let verdict = verdict::judge(&lines, Default::default());
    (summary.keys, summary.undecided) = (verdict.keys, verdict.undecided);
    summary.odd = verdict::odd(&lines).into_iter().map(str::to_owned).collect();
    for (number, wrong) in (1..).zip(verdict.wrong) {
        let path = logs.join(format!("history-{number}.json"));
        fs::write(&path, &wrong.history).map_err(Failure::failed)?;
        summary.violations.push(format!("{} ({})", wrong.what, path.display()));
    }
    Ok(())
}

/// A program: the given one, or that of this name beside this one.
fn program(given: Option<&Path>, name: &str) -> Result<PathBuf, Failure> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => env::current_exe().map_err(Failure::failed)?.with_file_name(name),
    };
    fs::canonicalize(&path).map_err(|error| Failure::usage(format!("--{name}-binary {}: {error}", path.display())))
}

/// Where logs go.
struct Logs {
    path: PathBuf,
    /// Made for this run.
    own: bool,
}

impl Logs {
    fn make(given: Option<&Path>) -> Result<Self, Failure> {
        let own = given.is_none();
        let path = match given {
            Some(path) => path.to_owned(),
            None => env::temp_dir().join(format!("artillery-chaos-{}", chance::token())),
        };
        fs::create_dir_all(&path).map_err(|error| Failure::usage(format!("--logs {}: {error}", path.display())))?;
        Ok(Self { path, own })
    }

    fn remove(self) {
        if self.own
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            tracing::warn!(%error, "logs stay behind");
        }
    }
}
