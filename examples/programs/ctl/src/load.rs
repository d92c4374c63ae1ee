//! `ctl load`: drives a cluster as applications would, and measures it.

mod check;
mod report;
mod tally;
mod worker;

use std::{
    io::{self, IsTerminal},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use artillery_ddata::{Client, Kv, client::Spread};
use artillery_programs::{
    chance,
    exit::{self, Failure},
    signals::Signals,
};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::{task::JoinSet, time::Instant};

use self::{check::Ledger, tally::Tally, worker::Worker};
use super::{
    args::{CtlArgs, LoadArgs},
    output::Output,
};

/// Maximum number of connections, which further clients share.
const MOST_CONNECTIONS: u64 = 8;

/// The timeout of a key's removal; keys that remain do no harm.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(3);

struct LoadShared {
    ledger: Ledger,
    stop: AtomicBool,
    deadline: Instant,
}

pub(super) async fn run(load: &LoadArgs, args: &CtlArgs, output: Output, signals: &mut Signals) -> Result<u8, Failure> {
    let timeout = Duration::from_millis(args.timeout);
    let clients = connect(load, args, timeout).await?;
    let kvs: Vec<Kv> =
        clients.iter().map(|client| client.kv().with_timeout(timeout).with_read_mode(load.read)).collect();
    let ledger = Ledger::new(chance::token(), load);
    worker::first_values(&kvs, &ledger).await?;
    let begin = Instant::now();
    let deadline = begin + Duration::from_secs(load.seconds);
    let shared = Arc::new(LoadShared { ledger, stop: AtomicBool::new(false), deadline });
    let mut workers = start(load, &kvs, &shared);
    let tally = watch(&mut workers, &shared, load.seconds, signals).await;
    report::print(load, &tally, begin.elapsed(), output);
    if load.check {
        // Keys of a checked run have unique names, so no other run will ever reuse them.
        let kvs: Vec<Kv> = kvs.into_iter().map(|kv| kv.with_timeout(timeout.min(REMOVAL_TIMEOUT))).collect();
        tokio::select! {
            () = worker::remove(&kvs, &shared.ledger) => {}
            () = signals.asked_to_stop() => {}
        }
    }
    close(clients).await;
    let fine = tally.errors == 0 && tally.wrong == 0;
    Ok(if fine { exit::DONE } else { exit::FAILED })
}

/// Closes all clients concurrently, since each waits briefly for nodes that don't answer.
async fn close(clients: Vec<Client>) {
    let mut closing = JoinSet::new();
    for client in clients {
        closing.spawn(async move { client.close().await });
    }
    closing.join_all().await;
}

async fn connect(load: &LoadArgs, args: &CtlArgs, timeout: Duration) -> Result<Vec<Client>, Failure> {
    let mut clients = Vec::new();
    for _ in 0..load.clients.min(MOST_CONNECTIONS) {
        clients.push(args.find.connect(Spread::RoundRobin, timeout).await?);
    }
    Ok(clients)
}

fn start(load: &LoadArgs, kvs: &[Kv], shared: &Arc<LoadShared>) -> JoinSet<Tally> {
    let all = load.clients * load.pipeline;
    let mut workers = JoinSet::new();
    for (number, kv) in (0..all).zip(kvs.iter().cycle()) {
        let worker = Worker::new(number, all, kv.clone(), load, shared.clone());
        workers.spawn(worker.run());
    }
    workers
}

/// Waits for all workers and adds up their results, showing their progress.
async fn watch(workers: &mut JoinSet<Tally>, shared: &LoadShared, seconds: u64, signals: &mut Signals) -> Tally {
    let bar = if io::stderr().is_terminal() { ProgressBar::new(seconds) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} s {msg}") {
        bar.set_style(style);
    }
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    ticks.tick().await;
    let (mut sum, mut before) = (Tally::new(), 0);
    let mut asked = false;
    loop {
        tokio::select! {
            done = workers.join_next() => match done {
                Some(Ok(tally)) => sum.add(&tally),
                Some(Err(error)) => sum.failed(&error),
                None => break,
            },
            _ = ticks.tick() => {
                let now = shared.ledger.operations();
                bar.inc(1);
                bar.set_message(format!("{} operations/s", now - before));
                before = now;
            }
            () = signals.asked_to_stop(), if !asked => {
                asked = true;
                shared.stop.store(true, Ordering::Relaxed);
            }
        }
    }
    bar.finish_and_clear();
    sum
}

impl LoadShared {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }
}
