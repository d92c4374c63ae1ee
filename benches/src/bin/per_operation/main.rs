//! The countable costs of one operation: allocations, system calls, frames, bytes, and processor time. All nodes, the
//! client and its checks run in this process and are counted.

mod budget;

use std::{alloc::System, io, path::PathBuf, sync::Arc, thread, time::Duration};

use artillery_benches::{
    Load, Loopback, Remote, VALUE, holds,
    raw::{Quic, Shape},
    throughput::machine::own_cpu,
};
use artillery_core::transport::Counters;
use clap::Parser;
use serde::Serialize;
use stats_alloc::{INSTRUMENTED_SYSTEM, Stats, StatsAlloc};
use tokio::runtime::Builder;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const KEYS: usize = 10_000;
/// Bytes of a key and its value.
const PAYLOAD: usize = 12 + VALUE;

/// Prints the costs of one operation, counted in one process with all nodes and the client.
#[derive(Parser)]
struct Options {
    /// Print JSON: one array.
    #[arg(long)]
    json: bool,
    /// Compare with the maximum costs in this file, and fail if anything costs more.
    #[arg(long, value_name = "FILE", conflicts_with = "write")]
    check: Option<PathBuf>,
    /// Write the current costs to this file, for later comparisons.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Operations of each kind; a tenth of them where they are made one at a time.
    #[arg(long, default_value_t = 20_000)]
    operations: usize,
}

/// The current values of all counters.
struct Reading {
    heap: Stats,
    /// Seconds.
    cpu: f64,
    /// The traffic of all nodes and the client.
    net: Vec<Counters>,
}

impl Reading {
    fn take(net: Vec<Counters>) -> Self {
        Self { net, heap: ALLOCATOR.stats(), cpu: own_cpu() }
    }
}

/// One line: the costs of one operation, averaged over `operations`.
#[derive(Serialize)]
struct Row {
    operation: String,
    in_flight: usize,
    operations: usize,
    allocations: f64,
    allocated_bytes: f64,
    cpu_micros: f64,
    /// The packets of all nodes and the client. `None` where they aren't counted.
    packets: Option<Packets>,
    /// Bytes of key and value, counted once.
    payload_bytes: usize,
}

#[derive(Serialize)]
struct Packets {
    /// Calls that sent UDP packets.
    udp_sends: f64,
    /// Calls that received UDP packets.
    udp_receives: f64,
    frames: f64,
    frame_bytes: f64,
    udp_bytes: f64,
}

impl Row {
    fn new(operation: impl Into<String>, plan: Plan, before: &Reading, after: &Reading) -> Self {
        let each = |of: f64| of / plan.operations as f64;
        let net = |of: fn(&Counters) -> u64| {
            let sum = |reading: &Reading| reading.net.iter().map(of).sum::<u64>();
            each((sum(after) - sum(before)) as f64)
        };
        let packets = Packets {
            udp_sends: net(|of| of.udp_sends),
            udp_receives: net(|of| of.udp_receives),
            frames: net(|of| of.frames_sent),
            frame_bytes: net(|of| of.frame_bytes_sent),
            udp_bytes: net(|of| of.udp_bytes_sent),
        };
        let heap = after.heap - before.heap;
        Self {
            operation: operation.into(),
            in_flight: plan.in_flight,
            operations: plan.operations,
            allocations: each((heap.allocations + heap.reallocations) as f64),
            allocated_bytes: each(heap.bytes_allocated as f64),
            cpu_micros: each(after.cpu - before.cpu) * 1e6,
            packets: Some(packets),
            payload_bytes: plan.payload,
        }
    }
}

/// A chain with filled keys, and its load.
struct Scene {
    chain: Loopback,
    load: Arc<Load>,
    operations: usize,
    rows: Vec<Row>,
}

impl Scene {
    fn new(members: u32, operations: usize) -> Self {
        let (chain, load) = Loopback::filled(members, KEYS);
        Self { chain, load, operations, rows: Vec::new() }
    }

    /// Counts the costs of one operation of this kind, averaged over the operations of `plan`.
    fn count(&mut self, name: &str, plan: Plan, remote: Option<&Remote>, run: impl Fn(usize)) {
        // The first operations set up streams, buffers and the packet size.
        run(plan.operations / 10);
        let read = || {
            let counters = self.chain.nodes.iter().map(|node| node.traffic());
            Reading::take(counters.chain(remote.map(|remote| remote.client.traffic())).collect())
        };
        let before = read();
        run(plan.operations);
        let after = read();
        let name = format!("{name}, chain of {}", self.chain.members());
        self.rows.push(Row::new(name, plan, &before, &after));
    }

    /// Costs without requests.
    fn idle(&mut self) {
        let plan = Plan { in_flight: 0, operations: 1, payload: 0 };
        self.count("a second of rest", plan, None, sleep);
    }

    fn local(&mut self) {
        let (kv, load) = (self.chain.nodes[0].kv(), self.load.clone());
        let plan = Plan { in_flight: 1, operations: self.operations, payload: PAYLOAD };
        self.count("get_local on a member", plan, None, |operations| {
            for n in 0..operations {
                let (key, number) = load.nth(n);
                let found = kv.get_local(key).expect("a clean key").expect("a value");
                assert!(holds(&found.value, number, VALUE));
            }
        });
    }

    fn remote(&mut self, in_flight: usize) {
        let (load, members) = (self.load.clone(), self.chain.members());
        let remote = self.chain.client();
        let kv = remote.kv();
        let plan = Plan::new(in_flight, self.operations);
        self.count("read by a client", plan, Some(&remote), |operations| {
            remote.run(load.read(&kv, operations, in_flight));
        });
        self.count("write by a client", plan, Some(&remote), |operations| {
            remote.run(load.write(&kv, members, operations, in_flight));
        });
        remote.run(load.verify(&kv));
    }
}

#[derive(Clone, Copy)]
struct Plan {
    in_flight: usize,
    operations: usize,
    /// Bytes of key and value.
    payload: usize,
}

impl Plan {
    fn new(in_flight: usize, operations: usize) -> Self {
        Self { in_flight, operations: if in_flight == 1 { operations / 10 } else { operations }, payload: PAYLOAD }
    }
}

fn sleep(seconds: usize) {
    thread::park_timeout(Duration::from_secs(seconds as u64));
}

/// Processor time and allocations of the transport alone; its packets aren't counted.
fn raw(name: &str, shape: Shape, in_flight: usize, operations: usize) -> io::Result<Row> {
    let plan = Plan { payload: VALUE, ..Plan::new(in_flight, operations) };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut quic = runtime.block_on(Quic::connect(shape))?;
    runtime.block_on(quic.pipe.run(plan.operations as u64 / 10, in_flight as u64))?;
    let before = Reading::take(Vec::new());
    runtime.block_on(quic.pipe.run(plan.operations as u64, in_flight as u64))?;
    let row = Row::new(name, plan, &before, &Reading::take(Vec::new()));
    Ok(Row { packets: None, ..row })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let rows = measured(options.operations)?;
    if options.json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        print(&rows);
    }
    if let Some(file) = &options.write {
        budget::write(file, &rows)?;
    }
    match &options.check {
        Some(file) => budget::check(file, rows, || measured(options.operations)),
        None => Ok(()),
    }
}

fn measured(operations: usize) -> io::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for members in [1, 3] {
        let mut scene = Scene::new(members, operations);
        if members == 3 {
            scene.idle();
            scene.local();
        }
        [1, 64, 1024].into_iter().for_each(|in_flight| scene.remote(in_flight));
        rows.append(&mut scene.rows);
    }
    for in_flight in [1, 64, 1024] {
        rows.push(raw("raw QUIC as a read", Shape::READ, in_flight, operations)?);
        rows.push(raw("raw QUIC as a write", Shape::WRITE, in_flight, operations)?);
    }
    Ok(rows)
}

fn print(rows: &[Row]) {
    let heads = ["operation", "in flight", "allocations", "heap bytes", "CPU µs", "payload bytes"];
    println!("| {} | UDP sends | UDP receives | frames | frame bytes | UDP bytes |", heads.join(" | "));
    println!("|---|{}", "--:|".repeat(heads.len() + 4));
    for row in rows {
        let Row { operation, in_flight, allocations, allocated_bytes, cpu_micros, payload_bytes, .. } = row;
        print!("| {operation} | {in_flight} | {allocations:.2} | {allocated_bytes:.0} | {cpu_micros:.2} ");
        let packets = row.packets.as_ref().map(|packets| {
            let Packets { udp_sends, udp_receives, frames, frame_bytes, udp_bytes } = packets;
            format!("{udp_sends:.3} | {udp_receives:.3} | {frames:.3} | {frame_bytes:.0} | {udp_bytes:.0}")
        });
        println!("| {payload_bytes} | {} |", packets.unwrap_or_else(|| "– | – | – | – | –".to_owned()));
    }
}
