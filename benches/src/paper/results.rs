//! The stored results of a run, from which its graphs are drawn.

use std::{fs, io, path::Path};

use serde::{Deserialize, Serialize};

use super::tally::{Bucket, Latency};
use crate::throughput::results::{Machine, System, lines, load};

/// The results of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The machine, and when the run was made.
    pub machine: Machine,
    /// The parameters of the run.
    pub settings: Settings,
    /// Reads by chain length.
    pub reads: Vec<ReadPoint>,
    /// Reads during writes to the same keys.
    pub mixed: Vec<MixedPoint>,
    /// Writes by chain length.
    pub writes: Vec<WritePoint>,
    /// Latencies by chain length.
    pub latency: Vec<LatencyPoint>,
    /// Reads and writes while a member is killed and restarted.
    pub failover: Vec<Failover>,
}

/// The parameters of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Whether samples were short.
    pub quick: bool,
    /// Samples of each point.
    pub rounds: u32,
    /// Milliseconds before each sample.
    pub warm_up_ms: u64,
    /// Milliseconds of a sample.
    pub sample_ms: u64,
    /// Keys of a book.
    pub keys: usize,
    /// Keys that are written and read concurrently.
    pub hot_keys: usize,
    /// Clients for each member, each with a separate link.
    pub clients_per_member: usize,
    /// Bytes that may wait at each end of a link.
    pub queue_bytes: u32,
    /// The network between nodes and clients.
    pub network: String,
}

/// How busy the cores were during a sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cores {
    /// Cores busy with the clients.
    pub clients: f64,
    /// Cores busy with the nodes.
    pub nodes: f64,
    /// Cores busy with other programs, and with kernel work outside processes.
    pub others: f64,
    /// Idle cores.
    pub idle: f64,
}

/// Reads of one chain. Each list has one entry per sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReadPoint {
    /// The rate of each link, in megabits per second.
    pub mbit: u32,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// CR or CRAQ.
    pub system: System,
    /// Members of the chain.
    pub members: usize,
    /// The number of concurrent callers.
    pub callers: usize,
    /// Reads per second.
    pub per_second: Vec<f64>,
    /// Median latency, in microseconds.
    pub p50_us: Vec<f64>,
    /// Busy cores.
    pub cores: Vec<Cores>,
}

/// Reads during writes to the same few keys. Each list has one entry per sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MixedPoint {
    /// The rate of each link, in megabits per second.
    pub mbit: u32,
    /// CR or CRAQ.
    pub system: System,
    /// Members of the chain.
    pub members: usize,
    /// Requested writes per second. `None`: as many as possible.
    pub wanted: Option<f64>,
    /// Writes per second that were actually made.
    pub writes: Vec<f64>,
    /// Clean reads per second.
    pub clean: Vec<f64>,
    /// Dirty reads per second.
    pub dirty: Vec<f64>,
    /// Busy cores.
    pub cores: Vec<Cores>,
}

/// A kind of write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Many callers write to many keys.
    Put,
    /// One caller compares and swaps one key.
    Swap,
}

/// Writes to one chain. Each list has one entry per sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WritePoint {
    /// The rate of each link, in megabits per second.
    pub mbit: u32,
    /// The kind of write.
    pub change: Change,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Members of the chain.
    pub members: usize,
    /// The number of concurrent callers.
    pub callers: usize,
    /// Writes per second.
    pub per_second: Vec<f64>,
    /// Median latency, in microseconds.
    pub p50_us: Vec<f64>,
    /// Busy cores.
    pub cores: Vec<Cores>,
}

/// Latencies of one caller at one chain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LatencyPoint {
    /// The rate of each link, in megabits per second.
    pub mbit: u32,
    /// Members of the chain.
    pub members: usize,
    /// Whether other callers kept the links busy.
    pub loaded: bool,
    /// Reads, at the head, of keys without a writer.
    pub clean: Latency,
    /// Reads, at the head, of a key that is being written.
    pub dirty: Latency,
    /// Latency of writes.
    pub write: Latency,
}

/// Reads and writes while a member is killed and restarted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failover {
    /// The rate of each link, in megabits per second.
    pub mbit: u32,
    /// Members of the chain.
    pub members: usize,
    /// The place of the killed member.
    pub killed: String,
    /// The lease duration, in milliseconds.
    pub lease_ms: u32,
    /// Requested writes per second.
    pub writes_wanted: f64,
    /// When the member is killed, in milliseconds since the start of the window.
    pub killed_ms: u64,
    /// When its process is restarted, in milliseconds since the start of the window.
    pub started_ms: u64,
    /// When it serves strong reads again, in milliseconds since the start of the window.
    pub ready_ms: u64,
    /// The length of a bucket, in milliseconds.
    pub bucket_ms: u64,
    /// Operations over time, one bucket after the other.
    pub timeline: Vec<Bucket>,
}

impl Results {
    /// Results without points.
    pub fn new(machine: Machine, settings: Settings) -> Self {
        let (reads, mixed, writes, latency, failover) = Default::default();
        Self { machine, settings, reads, mixed, writes, latency, failover }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The file can't be read, or doesn't have the format of [`store`](Self::store).
    pub fn load(path: &Path) -> io::Result<Self> {
        load(path)
    }

    /// Writes a file, with one line per point.
    pub fn store(&self, path: &Path) -> io::Result<()> {
        fs::write(path, self.text()?)
    }

    fn text(&self) -> serde_json::Result<String> {
        let one = |name: &str, text: String| format!("\"{name}\": {text}");
        let parts = [
            one("machine", serde_json::to_string(&self.machine)?),
            one("settings", serde_json::to_string(&self.settings)?),
            one("reads", lines(&self.reads)?),
            one("mixed", lines(&self.mixed)?),
            one("writes", lines(&self.writes)?),
            one("latency", lines(&self.latency)?),
            one("failover", lines(&self.failover)?),
        ];
        Ok(format!("{{\n{}\n}}\n", parts.join(",\n")))
    }

    /// The rates of links, greatest first.
    pub fn rates(&self) -> Vec<u32> {
        let reads = self.reads.iter().map(|point| point.mbit);
        let mixed = self.mixed.iter().map(|point| point.mbit);
        let writes = self.writes.iter().map(|point| point.mbit);
        let latency = self.latency.iter().map(|point| point.mbit);
        let mut rates: Vec<_> = reads.chain(mixed).chain(writes).chain(latency).collect();
        rates.extend(self.failover.iter().map(|point| point.mbit));
        rates.sort_unstable_by(|a, b| b.cmp(a));
        rates.dedup();
        rates
    }
}
