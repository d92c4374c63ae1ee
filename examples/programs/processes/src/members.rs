//! A cluster whose nodes join and leave.

use std::collections::BTreeMap;

use artillery_ddata::{Client, Kv, NodeId, client::Spread};
use serde_json::Value;
use tokio::time::Instant;

use crate::{CTL, Cluster, Node, TEST_TIMEOUT, eventually, run, text};

/// The running nodes of a cluster, by name, and the arguments to start another one.
pub struct Members {
    /// The name of the cluster.
    pub cluster: String,
    secret: String,
    flags: Vec<String>,
    /// The nodes with their ready lines.
    nodes: BTreeMap<String, (Value, Node)>,
}

impl Members {
    /// Starts three nodes, and waits until they have formed a chain.
    pub async fn start(flags: &[&str]) -> Self {
        let Cluster { name, secret, nodes, lines, .. } = Cluster::start(flags).await;
        let nodes = lines.into_iter().zip(nodes).map(|(line, node)| (text_of(&line, "node"), (line, node)));
        let nodes = nodes.collect();
        Self { cluster: name, secret, flags: flags.iter().map(|&flag| flag.to_owned()).collect(), nodes }
    }

    /// The QUIC addresses of the running nodes.
    pub fn addrs(&self) -> Vec<String> {
        self.nodes.values().map(|(line, _)| text_of(line, "addr")).collect()
    }

    /// The secret that nodes need to join the cluster, and clients to use it.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// A field of a node's ready line.
    pub fn line(&self, name: &str, field: &str) -> String {
        text_of(&self.nodes[name].0, field)
    }

    /// The running node of this name. Panics if there is none.
    pub fn node(&self, name: &str) -> &Node {
        &self.nodes[name].1
    }

    /// A new client that is given the addresses of all running nodes.
    pub async fn kv(&self) -> Kv {
        let builder = Client::builder().cluster(&self.cluster).secret(&self.secret).spread(Spread::Sticky);
        let builder = self.addrs().iter().fold(builder, |builder, seed| builder.seed(seed));
        builder.connect().await.unwrap().kv().with_timeout(TEST_TIMEOUT)
    }

    /// `count` clients for each member, by the member's name: each client reads at its member. Waits until all members
    /// serve.
    pub async fn kvs_of_each(&self, count: usize) -> BTreeMap<String, Vec<Kv>> {
        let mut of: BTreeMap<String, Vec<Kv>> =
            self.serving(self.nodes.len()).await.into_iter().map(|name| (name, Vec::new())).collect();
        let deadline = Instant::now() + TEST_TIMEOUT;
        while of.values().any(|kvs| kvs.len() < count) {
            assert!(
                Instant::now() < deadline,
                "no client finds each of the members first: {:?}",
                of.values().map(Vec::len).collect::<Vec<_>>()
            );
            let kv = self.kv().await;
            // A client may ask another member until it is connected to its preferred one.
            let mut served = Vec::new();
            while served.len() < 3 || !served.ends_with(&[served[served.len() - 1]; 3]) {
                served.push(kv.get("still").await.unwrap().served.node);
            }
            let served = served[served.len() - 1];
            let (_, kvs) = of.iter_mut().find(|(name, _)| NodeId::from_name(name) == served).unwrap();
            if kvs.len() < count {
                kvs.push(kv);
            }
        }
        of
    }

    /// Kills a node and removes it.
    pub async fn kill(&mut self, name: &str) {
        self.take(name).kill().await;
    }

    /// Removes a node without ending it, and returns it.
    pub fn take(&mut self, name: &str) -> Node {
        self.nodes.remove(name).unwrap().1
    }

    /// Starts a new node without waiting for it.
    pub fn begin(&self, more: &[&str]) -> Node {
        let flags: Vec<_> = self.flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
        Node::start(&self.cluster, &self.secret, &flags)
    }

    /// Waits until a node is ready, and adds it. Returns its name.
    pub async fn add(&mut self, mut node: Node) -> String {
        let Some(line) = node.ready_line().await else {
            let mut others = Vec::new();
            for addr in self.addrs() {
                others.push(self.status(&addr).await);
            }
            panic!("no ready line; its log is {:#?}, the others report {others:#?}", node.err.all());
        };
        let name = text_of(&line, "node");
        self.nodes.insert(name.clone(), (line, node));
        name
    }

    /// Runs `ctl --json status` at a node, and returns the last line of the output, which is a status or an error.
    /// `None` if that line is missing or isn't JSON.
    pub async fn status(&self, addr: &str) -> Option<Value> {
        let args = ["--cluster", &self.cluster, "--no-mdns", "--seed", addr, "--timeout", "2000", "--json", "status"];
        let done = run(&CTL, Some(&self.secret), &args).await;
        serde_json::from_str(text(&done.stdout).lines().last()?).ok()
    }

    /// A node's own view of its first chain; `None` if it doesn't answer.
    pub async fn chain(&self, name: &str) -> Option<Value> {
        let status = self.status(&self.line(name, "addr")).await?;
        let node = status["nodes"].as_array()?.iter().find(|node| node["node"] == name)?;
        Some(node["chains"][0].clone())
    }

    /// Waits until this many members serve. Returns their names, head first.
    pub async fn serving(&self, wanted: usize) -> Vec<String> {
        eventually(async || {
            let mut seen = Value::Null;
            for addr in self.addrs() {
                let Some(status) = self.status(&addr).await else { continue };
                let members = status["chains"][0]["members"].as_array().cloned().unwrap_or_default();
                let serves = |member: &&Value| member["open"] == true && member["role"] != "syncing";
                let names = members.iter().filter(serves).map(|member| member["node"].as_str().unwrap().to_owned());
                let names: Vec<_> = names.collect();
                if names.len() == wanted {
                    return Ok(names);
                }
                seen = status;
            }
            Err(format!("the chain didn't get {wanted} members: {seen:#}"))
        })
        .await
    }
}

fn text_of(line: &Value, field: &str) -> String {
    line[field].as_str().unwrap_or_else(|| panic!("no {field} in {line}")).to_owned()
}

/// A number from the environment, with a default for ordinary runs.
pub fn setting(variable: &str, ordinary: u64) -> u64 {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(ordinary)
}
