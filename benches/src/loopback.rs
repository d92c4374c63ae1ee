//! Whole nodes on loopback in this process, and clients beside them.

use std::hash::{BuildHasher, RandomState};

use artillery_core::transport::Counters;
use artillery_ddata::{Client, Kv, Node, config::Threads};
use tokio::runtime::{Builder, Runtime};

const SECRET: &str = "a secret for benches alone";
/// Backlog of a node, in bytes. So small that it is full when measuring begins: until then each update would touch memory for
/// the first time, which takes a virtual machine longer than the write itself.
const BACKLOG: usize = 8 << 20;

/// A chain of whole nodes, which share a runtime of two worker threads.
pub struct Loopback {
    /// Its members, in order of start.
    pub nodes: Vec<Node>,
    name: String,
    runtime: Runtime,
}

impl Loopback {
    /// Starts `members` nodes and waits until they are a chain.
    pub fn start(members: u32) -> Self {
        let name = format!("bench-{:016x}", RandomState::new().hash_one(std::process::id()));
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let nodes = runtime.block_on(async {
            let mut nodes: Vec<Node> = Vec::new();
            for _ in 0..members {
                let mut builder = Node::builder().cluster(&name).secret(SECRET).mdns(false).expect(members);
                builder = builder.threads(Threads::Shared).configure(|config| config.limits.backlog_bytes = BACKLOG);
                if let Some(first) = nodes.first() {
                    builder = builder.seed(first.addr().to_string());
                }
                nodes.push(builder.start().await.unwrap_or_else(|error| panic!("{error}")));
            }
            for node in &nodes {
                node.ready().await.unwrap_or_else(|error| panic!("{error}"));
            }
            nodes
        });
        Self { nodes, name, runtime }
    }

    /// The number of members of its chain.
    pub fn members(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Runs a future on the runtime of the nodes, as a task.
    pub fn run<T: Send + 'static>(&self, what: impl Future<Output = T> + Send + 'static) -> T {
        let task = self.runtime.spawn(what);
        self.runtime.block_on(task).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Waits until every member knows of every commit.
    pub fn settle(&self) {
        self.runtime.block_on(async {
            for node in &self.nodes {
                while node.status().await.chains.iter().any(|chain| chain.dirty_updates > 0) {
                    tokio::task::yield_now().await;
                }
            }
        });
    }

    /// A client on a runtime of its own, which runs on the calling thread.
    ///
    /// A client sends nothing while no thread drives it. So use it at once: nodes drop a client that is silent for seconds.
    pub fn client(&self) -> Remote {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let seeds = self.nodes.iter().map(Node::addr);
        let connect = Client::builder().cluster(&self.name).secret(SECRET).seeds(seeds).connect();
        let client = runtime.block_on(connect).unwrap_or_else(|error| panic!("{error}"));
        Remote { client, runtime }
    }
}

/// A client and its runtime.
pub struct Remote {
    /// The client.
    pub client: Client,
    runtime: Runtime,
}

impl Remote {
    /// Its data.
    pub fn kv(&self) -> Kv {
        self.client.kv()
    }

    /// Drives the client until this is done.
    pub fn run<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.runtime.block_on(self.client.close());
    }
}

/// The sum of these counters.
pub fn traffic(all: &[Counters]) -> Counters {
    all.iter().fold(Counters::default(), |sum, one| {
        let mut sum = sum;
        sum.frames_sent += one.frames_sent;
        sum.frame_bytes_sent += one.frame_bytes_sent;
        sum.writes += one.writes;
        sum.udp_sends += one.udp_sends;
        sum.udp_bytes_sent += one.udp_bytes_sent;
        sum.udp_receives += one.udp_receives;
        sum
    })
}
