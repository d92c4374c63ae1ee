//! All nodes are killed and restarted: how soon they answer, compared with a bare read and a bare insert; and how many
//! records they find that aren't known to be committed, and how soon these are settled.

use std::{
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use artillery_core::{Timestamp, internal::clock};
use artillery_ddata::Client;
use artillery_processes::resident;
use tokio::{
    runtime::{Builder, Runtime},
    time::sleep,
};

use super::{
    bare::{self, Bare, Order},
    http::{self, Settled},
    records,
    site::{self, Back, Keeps, Site},
    writers::{CLIENTS, IN_FLIGHT, Ledger, WRITERS, Writers, read_all},
};
use crate::throughput::Failed;

/// The number of clients that fill the store.
const FILLING: usize = 4;
/// Records that are read back after the cold start, approximately.
const SAMPLED: u64 = 10_000;

/// The parameters of the run.
#[derive(Debug)]
pub struct Plan {
    /// The path of the program `node`.
    pub node: PathBuf,
    /// This program, which measures the bare parts in separate processes.
    pub own: PathBuf,
    /// Where the directories are created.
    pub folder: PathBuf,
    /// Records of each node.
    pub records: u64,
    /// How long writers write before the nodes are killed.
    pub writing: Duration,
}

/// The result of one start of all nodes. Times are in seconds since the first process was started.
struct Started {
    /// When the first strong read was answered.
    first_read: f64,
    /// When the slowest node had loaded its directory.
    loaded: f64,
    /// Processor time that the busiest node needed for loading, in seconds.
    cpu: f64,
    /// When the last unreplicated record of any node had been settled.
    settled: f64,
    nodes: Vec<Settled>,
}

impl Started {
    fn sum(&self, of: fn(&Settled) -> u64) -> u64 {
        self.nodes.iter().map(of).sum()
    }

    fn most(&self) -> u64 {
        self.nodes.iter().map(Settled::found).max().unwrap_or_default()
    }

    fn longest(&self) -> f64 {
        self.nodes.iter().map(|node| node.seconds).fold(0.0, f64::max)
    }
}

/// The complete run.
pub fn run(plan: &Plan) -> Result<(), Failed> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut site = Site::new(&plan.node, &plan.folder, Keeps::Batch, &[])?;
    fill(plan, &runtime, &mut site)?;
    let (by_key, as_written) = bare_parts(plan, &site)?;
    after_a_kill(plan, &runtime, &mut site, (by_key, as_written))?;
    under_writers(plan, &runtime, &mut site)?;
    after_a_stop(&runtime, &mut site)
}

fn fill(plan: &Plan, runtime: &Runtime, site: &mut Site) -> Result<(), Failed> {
    site.start()?;
    site.ready()?;
    let began = clock::now();
    runtime.block_on(async {
        let clients = site.contact().connect_all(FILLING).await;
        records::fill(&clients, plan.records).await?;
        close(clients).await;
        Ok::<_, Failed>(())
    })?;
    let seconds = (clock::now() - began).as_secs_f64();
    println!("filled: {} records in {seconds:.1} s, {:.0} a second", plan.records, plan.records as f64 / seconds);
    runtime.block_on(whole(site));
    site.kill()
}

/// Waits until all nodes serve. On a busy machine one may have been removed as dead during the fill.
async fn whole(site: &Site) {
    let mut missed = false;
    for page in site.pages() {
        while !http::status(page).await.is_some_and(|status| status.chains.iter().any(|chain| chain.members.len() == 3))
        {
            missed = true;
            sleep(Duration::from_millis(100)).await;
        }
    }
    if missed {
        println!("a member was missing at the end of the fill: all were waited for");
    }
}

async fn close(clients: Vec<Client>) {
    for client in clients {
        client.close().await;
    }
}

/// Measures the bare read and insert in both orders. Returns the times of the slowest of the three nodes.
fn bare_parts(plan: &Plan, site: &Site) -> Result<(Bare, Bare), Failed> {
    let dirs = site.dirs();
    let bytes = dirs.iter().map(|dir| bare::journal_bytes(dir)).sum::<std::io::Result<u64>>()?;
    println!("three journals: {} MiB, each read from the disk, not from the page cache", bytes >> 20);
    let measured = |order| {
        dirs.iter().try_for_each(|dir| bare::forget(dir))?;
        let found = bare::measure_apart(&plan.own, &dirs, plan.records, order)?;
        found.into_iter().max_by(|one, other| one.sum().total_cmp(&other.sum())).ok_or_else(|| Failed::from("no node"))
    };
    let (by_key, as_written) = (measured(Order::Keys)?, measured(Order::Written)?);
    for (name, Bare { read, insert, cpu }) in [("by key", by_key), ("as written", as_written)] {
        println!("bare, three at once: read {read:.2} s, insert {name} {insert:.2} s; of a core {cpu:.2} s");
    }
    Ok((by_key, as_written))
}

/// Starts all nodes, and waits until all of them are back. `reads` runs concurrently, and must complete too.
async fn start(site: &mut Site, reads: impl Future<Output = Result<(), Failed>>) -> Result<Started, Failed> {
    let began = clock::now();
    site.start()?;
    let pages = site.pages();
    let came_back = async {
        let seats: Vec<_> = pages.iter().copied().zip(site.pids()).collect();
        let (one, two, three) = tokio::join!(site::back(seats[0]), site::back(seats[1]), site::back(seats[2]));
        [one, two, three]
    };
    let first = async {
        let client = site.contact().connect().await;
        while client.kv().get(&records::key(0)).await.is_err() {}
        let at = clock::now();
        client.close().await;
        at
    };
    let all = async {
        let (backs, first, read) = tokio::join!(came_back, first, reads);
        read.map(|()| (backs, first))
    };
    let (backs, first) = tokio::select! {
        all = all => all?,
        ended = an_end(site) => return Err(ended),
    };
    let mut nodes = Vec::new();
    for &page in &pages {
        nodes.push(http::settled(page).await?);
    }
    let last = |of: fn(&Back) -> Timestamp| backs.iter().map(of).max().unwrap_or(began);
    let since = |at: Timestamp| (at - began).as_secs_f64();
    let (loaded, settled) = (since(last(|back| back.loaded)), since(last(|back| back.settled)));
    let cpu = backs.iter().map(|back| back.cpu).fold(0.0, f64::max);
    Ok(Started { first_read: since(first), loaded, cpu, settled, nodes })
}

/// Waits until a node has ended.
async fn an_end(site: &Site) -> Failed {
    while site.is_running() {
        sleep(Duration::from_millis(100)).await;
    }
    let logs = site.logs();
    let last = logs.iter().filter_map(|log| log.last()).map(|(_, line)| line.as_str()).collect::<Vec<_>>();
    format!("a node has exited; the last log lines: {last:#?}").into()
}

fn after_a_kill(
    plan: &Plan,
    runtime: &Runtime,
    site: &mut Site,
    (by_key, as_written): (Bare, Bare),
) -> Result<(), Failed> {
    site.dirs().iter().try_for_each(|dir| bare::forget(dir))?;
    let started = runtime.block_on(start(site, async { Ok(()) }))?;
    check(plan.records, runtime, site)?;
    let resident = site.pids().into_iter().map(resident).max().unwrap_or_default();
    let Started { first_read, loaded, cpu, settled, .. } = started;
    println!("\nkilled at the end of the fill, and started again; at most {} MiB resident", resident >> 20);
    println!("| | s | by bare read + insert by key | by bare read + insert as written |\n|---|--:|--:|--:|");
    for (what, seconds) in [
        ("all have loaded", loaded),
        ("the first strong read is answered", first_read),
        ("no record is unreplicated (goal: 1.3)", settled),
    ] {
        let ratios = [by_key, as_written].map(|bare| seconds / bare.sum());
        println!("| {what} | {seconds:.2} | {:.2} | {:.2} |", ratios[0], ratios[1]);
    }
    let ratios = [by_key, as_written].map(|bare| cpu / bare.cpu);
    println!("| processor time of a node that loads | {cpu:.2} | {:.2} | {:.2} |", ratios[0], ratios[1]);
    Ok(())
}

/// Checks that all nodes hold all records, and that a sample of them has the written values.
fn check(expected: u64, runtime: &Runtime, site: &Site) -> Result<(), Failed> {
    runtime.block_on(async {
        for page in site.pages() {
            let status = http::status(page).await.ok_or("a node doesn't answer")?;
            let keys: u64 = status.chains.iter().map(|chain| chain.keys).sum();
            if keys != expected {
                return Err(Failed::from(format!("{} has {keys} of {expected} records", status.node)));
            }
        }
        let client = site.contact().connect().await;
        records::verify(&client, expected, (expected / SAMPLED).max(1)).await?;
        client.close().await;
        Ok(())
    })
}

fn under_writers(plan: &Plan, runtime: &Runtime, site: &mut Site) -> Result<(), Failed> {
    let ledger = Ledger::new();
    let (clients, writers) = runtime.block_on(async {
        let clients = site.contact().connect_all(CLIENTS).await;
        let writers = Writers::start(&clients, &ledger);
        sleep(plan.writing).await;
        (clients, writers)
    });
    site.kill()?;
    runtime.block_on(async {
        writers.end().await?;
        close(clients).await;
        Ok::<_, Failed>(())
    })?;
    let reads = read_all(site.contact(), ledger.clone());
    let started = runtime.block_on(start(site, reads))?;
    println!(
        "\nkilled under {WRITERS} writers with {IN_FLIGHT} writes in flight each, after {} acknowledged writes, all still present",
        ledger.acknowledged()
    );
    println!("| | | goal |\n|---|--:|--:|");
    println!("| unreplicated records found, all nodes | {} | |", started.sum(Settled::found));
    println!("| the same, most of a node | {} | 500 |", started.most());
    println!("| settled by the start of the epoch | {} | |", started.sum(|node| node.by_start));
    println!("| settled, and met by a strong read before | {} | |", started.sum(|node| node.by_read));
    println!("| from the first epoch until none was left, s | {:.3} | 1 |", started.longest());
    println!("| start of the processes to the first strong read, s | {:.2} | |", started.first_read);
    Ok(())
}

fn after_a_stop(runtime: &Runtime, site: &mut Site) -> Result<(), Failed> {
    site.stop()?;
    let started = runtime.block_on(start(site, async { Ok(()) }))?;
    println!("\ntold to stop, all at once, and started again");
    println!("| | | goal |\n|---|--:|--:|");
    println!("| unreplicated records found, all nodes | {} | 0 |", started.sum(Settled::found));
    println!("| start of the processes to the first strong read, s | {:.2} | |", started.first_read);
    site.kill()
}

/// A folder for the directories of this run.
pub fn folder(into: &Path, name: &str) -> PathBuf {
    into.join(format!("{name}-{}", process::id()))
}
