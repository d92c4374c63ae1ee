//! How long one step of a chain's task keeps the rest of that chain waiting: the processor time of the step's thread,
//! compared with its bound. Two members with many random keys are driven by hand as their tasks would drive them.

#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::{
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use artillery_benches::{
    Loopback,
    stepped::{A, B, Pair, Steps},
};
use artillery_ddata::Kv;
use artillery_proto::{
    api::{HashedQuery, Query, Reply, ScanQuery, Snapshot},
    store::position,
};
use bytes::Bytes;
use clap::Parser;

/// The bound on one step, and on the sum of all steps of a cut.
const STEP: Duration = Duration::from_millis(5);
/// The bound on a write while hash order is being built.
const WAIT: Duration = Duration::from_millis(100);
const DROPPED: u64 = 10;

/// Prints the longest step of each kind, and fails if one exceeds its bound.
#[derive(Parser)]
struct Options {
    /// Random keys of the chain whose steps are measured.
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Random keys of the node on which a client writes during the first scan in hash order.
    #[arg(long, default_value_t = 600_000)]
    keys_of_node: u64,
}

/// Key number `n`, in scattered order.
fn key(n: u64) -> Bytes {
    Bytes::copy_from_slice(&[position(&n.to_le_bytes()), n].map(u64::to_be_bytes).concat())
}

/// Prints rows, and records whether all figures are within their bounds.
struct Table {
    met: bool,
}

impl Table {
    fn row(&mut self, what: &str, steps: usize, longest: Duration, bound: Duration) {
        let met = longest <= bound;
        self.met &= met;
        let [longest, bound] = [longest, bound].map(|time| time.as_secs_f64() * 1e3);
        println!("| {what} | {steps} | {longest:.3} | {bound:.0} | {} |", if met { "met" } else { "**missed**" });
    }

    fn longest(&mut self, what: &str, steps: &Steps) {
        self.row(what, steps.count, steps.longest, STEP);
    }
}

fn scan(snapshot: Snapshot) -> Query {
    Query::Scan(ScanQuery { prefix: Bytes::new(), after: None, limit: u32::MAX, snapshot })
}

fn assert_page(reply: &Reply) {
    let Reply::Page(page) = reply else { panic!("{reply:?} is no page") };
    assert!(page.records.len() > 100 && page.next.is_some(), "a whole page");
}

/// Pages of a scan, in both orders.
fn pages(table: &mut Table, pair: &mut Pair) {
    for (what, snapshot) in [("scan(\"\"), first page", Snapshot::No), ("the same of a snapshot", Snapshot::Begin)] {
        let (reply, steps) = pair.ask(A, scan(snapshot));
        assert_page(&reply);
        table.longest(what, &steps);
    }
    let mut making = Steps::default();
    let page = loop {
        let (reply, steps) = pair.ask(A, Query::Hashed(HashedQuery { from: 0, limit: u32::MAX }));
        let Reply::Hashed(page) = reply else { panic!("{reply:?} is no page") };
        if !page.keys.is_empty() {
            break page;
        }
        making.add(&steps);
    };
    assert!(page.keys.len() > 100);
    table.longest("hash order, while it is made", &making);
    let (_, steps) = pair.ask(A, Query::Hashed(HashedQuery { from: 0, limit: u32::MAX }));
    table.longest("SCAN 0, first page", &steps);
}

/// A drops updates that B, the new head, never received.
fn cut(table: &mut Table, pair: &mut Pair) {
    (0..DROPPED).for_each(|n| pair.put(A, key(n), "never"));
    pair.lose();
    let before = pair.last(A);
    pair.enter(2, &[B, A], None);
    let steps = pair.run();
    assert_eq!(before - pair.last(A), DROPPED, "updates were dropped");
    table.row("a cut of 10 updates, in all", steps[A].count, steps[A].sum, STEP);
}

/// A rejoins after its position has been dropped from the backlog: it is wiped and filled again.
fn resync(table: &mut Table, pair: &mut Pair, keys: u64) {
    pair.enter(3, &[B], None);
    (0..20_000).for_each(|n| pair.put(B, key(n), "a value that A doesn't know of, and that fills the backlog"));
    pair.run();
    pair.enter(4, &[B], Some(A));
    let mut steps = [Steps::default(), Steps::default()];
    while !pair.is_resyncing(A) {
        pair.turn().iter().zip(&mut steps).for_each(|(turn, sum)| sum.add(turn));
    }
    let mut wipe = Steps { longest: steps[A].longest, ..Steps::default() };
    while pair.keys(A) > 0 {
        wipe.add(&pair.settle(A));
    }
    assert!(wipe.count > 1, "a wipe takes several steps");
    table.longest("a wipe", &wipe);
    let steps = pair.run();
    assert_eq!(pair.keys(A), keys, "A holds all keys again");
    table.longest("parts of a snapshot, at their source", &steps[B]);
    table.longest("the same, at the joiner", &steps[A]);
}

/// Writes of one client while another client begins the first scan in hash order.
fn beside(table: &mut Table, keys: u64) {
    let chain = Loopback::start(1);
    let kv = chain.nodes[0].kv();
    chain.run(fill(kv.clone(), keys));
    let made = Arc::new(AtomicBool::new(false));
    let (writes, longest, took) = chain.run(async move {
        let begun = Instant::now();
        let scanner = tokio::spawn(begin_scan(kv.clone(), made.clone()));
        let (mut writes, mut longest) = (0, Duration::ZERO);
        while !made.load(Relaxed) {
            let before = Instant::now();
            put(&kv, writes as u64 * 7919 % keys).await;
            (writes, longest) = (writes + 1, longest.max(before.elapsed()));
        }
        scanner.await.unwrap_or_else(|error| panic!("{error}"));
        (writes, longest, begun.elapsed())
    });
    let what = format!("a write beside the first SCAN 0, of {keys} keys in {:.1} s (wall clock)", took.as_secs_f64());
    table.row(&what, writes, longest, WAIT);
}

/// Writes `keys` keys, 64 at a time.
async fn fill(kv: Kv, keys: u64) {
    let part = |first: u64| {
        let kv = kv.clone();
        tokio::spawn(async move {
            for n in (first..keys).step_by(64) {
                put(&kv, n).await;
            }
        })
    };
    let parts: Vec<_> = (0..64).map(part).collect();
    for part in parts {
        part.await.unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Scans in hash order until a page has keys, which shows that the order is built.
async fn begin_scan(kv: Kv, made: Arc<AtomicBool>) {
    let mut cursor = 0;
    loop {
        let page = kv.scan_hashed(cursor).await.unwrap_or_else(|error| panic!("a scan failed: {error}"));
        if !page.keys.is_empty() {
            return made.store(true, Relaxed);
        }
        cursor = page.next;
    }
}

async fn put(kv: &Kv, n: u64) {
    kv.put(key(n), "value").await.unwrap_or_else(|error| panic!("a write failed: {error}"));
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut pair = Pair::new();
    for n in 0..options.keys {
        pair.put(A, key(n), "value");
        if n % 1000 == 0 {
            pair.run();
        }
    }
    pair.run();
    println!("{} keys\n\n| | steps | longest, ms | bound | |\n|---|--:|--:|--:|---|", options.keys);
    let mut table = Table { met: true };
    pages(&mut table, &mut pair);
    cut(&mut table, &mut pair);
    resync(&mut table, &mut pair, options.keys);
    drop(pair);
    beside(&mut table, options.keys_of_node);
    if table.met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
