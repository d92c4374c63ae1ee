//! `chaos`: real nodes under real faults, and a checker of their clients' histories.

mod aim;
mod args;
mod book;
mod cluster;
mod desk;
mod directories;
mod door;
mod fault;
mod http;
mod isolation;
mod net;
mod nodes;
mod operator;
mod orders;
mod others;
mod process;
mod recovery;
mod report;
mod rounds;
mod ruin;
mod set;
mod tally;
mod teeth;
mod verdict;
mod view;
mod worker;
mod zones;

use std::{
    cell::RefCell,
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use artillery_processes::namespaces;
use artillery_programs::{
    chance,
    exit::{self, Failure},
    log,
    signals::Signals,
    story::Story,
};
use clap::Parser;
use tokio::{task::JoinSet, time::Instant};

use self::{
    args::ChaosArgs,
    book::Book,
    cluster::{Cluster, Programs},
    desk::Desk,
    door::{Library, Resp},
    net::Net,
    operator::Operator,
    report::{Skipped, Summary},
    rounds::Rounds,
    tally::Tally,
    worker::Worker,
};

/// The exit code that `.ci/run` treats as a skipped phase.
const SKIPPED: u8 = 77;
/// The timeouts of the Redis clients at each node: one is shorter than the node's own, one longer.
const REDIS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(7)];
const LIBRARY: usize = 3;

fn main() -> ExitCode {
    let args = ChaosArgs::parse();
    log::begin("chaos", args.log.level);
    args.check().unwrap_or_else(|error| error.exit());
    let missing =
        namespaces::missing().or_else(|| (args.teeth && teeth::missing()).then_some("redis-server is missing"));
    if let Some(why) = missing {
        eprintln!("SKIPPED: {why}");
        return ExitCode::from(SKIPPED);
    }
    // Done while there is only one thread, since later threads inherit its namespace.
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
        () = signals.asked_to_stop() => Err(Failure::failed("interrupted by a signal")),
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

/// Runs the faults and the checks. True if every promise was kept.
async fn play(args: &ChaosArgs, mut net: Net, logs: &Path, story: &Story) -> Result<bool, Failure> {
    if args.teeth {
        return teeth::run(&mut net, logs, args.seed, story).await;
    }
    let begin = Instant::now();
    let programs = Programs {
        node: program(args.node_binary.as_deref(), "node")?,
        ctl: program(args.ctl_binary.as_deref(), "ctl")?,
    };
    let cluster = Cluster::new(net, args, programs, logs.to_owned());
    cluster.start_all()?;
    let members = cluster.whole(|| begin).await?;
    story.say(&format!("{:7.1} s  the chain is {}", begin.elapsed().as_secs_f64(), members.join(" ")));
    let book = Arc::new(Book::new(chance::token(), true));
    let mut workers = hire(&cluster, &book, args.seed).await?;
    cluster.keep_copies().await?;
    let mut summary = Summary { nodes: args.nodes, replicas: args.replicas, seed: args.seed, ..Summary::default() };
    let (tally, skipped, ruins) = (RefCell::new(Tally::new(args.seconds)), Skipped::default(), RefCell::default());
    let desk = Desk::new();
    let rounds = Rounds { cluster: &cluster, desk: &desk, book: &book, skipped: &skipped, ruins: &ruins, story, begin };
    let operator = Operator { cluster: &cluster, desk: &desk, tally: &tally, skipped: &skipped, story, begin };
    let done = tokio::select! {
        done = rounds.run(args, &mut summary) => done,
        failure = operator.run(args.seed), if args.orders => Err(failure),
        failure = aim::stall(&cluster, &desk, args.seed), if args.orders => Err(failure),
    };
    recovery::read_all_back(&book, cluster.size()).await;
    summary.error = done.err().map(|failure| failure.to_string());
    summary.orders = args.orders.then(|| tally.into_inner());
    summary.directories = args.data.then(|| ruins.into_inner());
    summary.not_drawn = skipped.into_counts();
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

/// Checks the recorded operations, and writes violating histories to the logs.
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

/// The path of a program: the given one, or `name` next to this program.
fn program(given: Option<&Path>, name: &str) -> Result<PathBuf, Failure> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => env::current_exe().map_err(Failure::failed)?.with_file_name(name),
    };
    fs::canonicalize(&path).map_err(|error| Failure::usage(format!("--{name}-binary {}: {error}", path.display())))
}

struct Logs {
    path: PathBuf,
    /// Whether the directory is a temporary one of this run, removed if all was well.
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
            tracing::warn!(%error, "could not remove the logs");
        }
    }
}
