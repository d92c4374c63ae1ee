//! Complete nodes on loopback in this process, and their clients.

use std::sync::Arc;

use artillery_ddata::{Client, Kv, Node, NodeBuilder, config::Threads};
use artillery_processes::token;
use tokio::runtime::{Builder, Runtime};

use crate::{load::Load, throughput::Failed};

/// The secret of every cluster of the benches.
pub const SECRET: &str = "a secret for benches alone";
/// Backlog of a node, in bytes. Small enough to be full when measuring begins: until then each update touches new
/// memory, which takes longer on a virtual machine than the write itself.
const BACKLOG: usize = 8 << 20;

/// A chain of complete nodes, which share a runtime of two worker threads.
pub struct Loopback {
    /// The nodes, in the order in which they were started.
    pub nodes: Vec<Node>,
    name: String,
    runtime: Runtime,
}

impl Loopback {
    /// Starts `members` nodes and waits until they form a chain.
    pub fn start(members: u32) -> Self {
        let name = format!("bench-{}", token());
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let nodes = runtime.block_on(start_nodes(&name, members, |builder| {
            builder.threads(Threads::Shared).configure(|config| config.limits.backlog_bytes = BACKLOG)
        }));
        let nodes = nodes.unwrap_or_else(|error| panic!("{error}"));
        Self { nodes, name, runtime }
    }

    /// A chain whose keys all hold a value and are clean at all members.
    pub fn filled(members: u32, keys: usize) -> (Self, Arc<Load>) {
        let (chain, load) = (Self::start(members), Load::new(keys));
        let (kv, filled) = (chain.nodes[0].kv(), load.clone());
        chain.run(async move { filled.fill(&kv, members).await });
        chain.settle();
        (chain, load)
    }

    /// The number of members.
    pub fn members(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Runs a future as a task on the runtime of the nodes.
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

    /// A client on its own runtime, which runs on the calling thread.
    ///
    /// A client sends nothing while no thread drives it. Use it immediately: nodes drop a client that is silent for
    /// seconds.
    pub fn client(&self) -> Remote {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let seeds = self.nodes.iter().map(Node::addr);
        let connect = Client::builder().cluster(&self.name).secret(SECRET).seeds(seeds).connect();
        let client = runtime.block_on(connect).unwrap_or_else(|error| panic!("{error}"));
        Remote { client, runtime }
    }
}

/// Starts `members` nodes and waits until they are ready.
pub async fn start_nodes(
    name: &str,
    members: u32,
    configure: impl Fn(NodeBuilder) -> NodeBuilder,
) -> Result<Vec<Node>, Failed> {
    let mut nodes: Vec<Node> = Vec::new();
    for _ in 0..members {
        let mut builder = configure(
            Node::builder().cluster(name).secret(SECRET).mdns(false).expect(members).listen(([127, 0, 0, 1], 0).into()),
        );
        if let Some(first) = nodes.first() {
            builder = builder.seed(first.addr().to_string());
        }
        nodes.push(builder.start().await?);
    }
    for node in &nodes {
        node.ready().await?;
    }
    Ok(nodes)
}

/// A client and the runtime that drives it.
pub struct Remote {
    /// The client, driven by [`run`](Self::run).
    pub client: Client,
    runtime: Runtime,
}

impl Remote {
    /// The client's handle to the data.
    pub fn kv(&self) -> Kv {
        self.client.kv()
    }

    /// Drives the client until the future is done.
    pub fn run<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.runtime.block_on(self.client.close());
    }
}
