//! A cluster of three nodes.

use std::sync::LazyLock;

use serde_json::Value;
use tokio::task::JoinSet;

use crate::{CTL, expect, running::Node, token};

/// The processes of a cluster.
pub struct Cluster {
    /// Its unique name.
    pub name: String,
    /// Its secret.
    pub secret: String,
    /// The nodes, head first.
    pub nodes: Vec<Node>,
    /// Their QUIC addresses, in the same order.
    pub addrs: Vec<String>,
    /// Their ready lines, in the same order.
    pub lines: Vec<Value>,
}

impl Cluster {
    /// Starts three nodes with a new cluster name and secret and with these flags, and waits until they are ready.
    pub async fn start(flags: &[&str]) -> Self {
        Self::begin(|name, secret| Node::start(name, secret, flags)).await
    }

    /// Like [`Cluster::start`], with an additional environment variable.
    pub async fn start_with(variable: (&str, &str), flags: &[&str]) -> Self {
        Self::begin(|name, secret| Node::start_with(variable, name, secret, flags)).await
    }

    async fn begin(start: impl Fn(&str, &str) -> Node) -> Self {
        // Built before the nodes start: a build takes minutes, during which they would be running.
        LazyLock::force(&CTL);
        let (name, secret) = (format!("test-{}", token()), token());
        let mut starting = JoinSet::new();
        for _ in 0..3 {
            let mut node = start(&name, &secret);
            starting.spawn(async move { (node.ready().await, node) });
        }
        let mut ready = starting.join_all().await;
        let place = |line: &Value| ["head", "middle", "tail"].iter().position(|role| line["role"] == *role);
        ready.sort_by_key(|(line, _)| place(line));
        let roles: Vec<_> = ready.iter().map(|(line, _)| line["role"].as_str().unwrap().to_owned()).collect();
        assert_eq!(roles, ["head", "middle", "tail"]);
        let (lines, nodes): (Vec<_>, Vec<_>) = ready.into_iter().unzip();
        let addrs = lines.iter().map(|line| line["addr"].as_str().unwrap().to_owned()).collect();
        Self { name, secret, nodes, addrs, lines }
    }

    /// Runs `ctl` at one node, without mDNS. Panics unless it ends with this exit code.
    pub async fn ctl(&self, addr: &str, code: i32, args: &[&str]) -> (String, String) {
        let all = [&["--cluster", &self.name, "--no-mdns", "--seed", addr], args].concat();
        expect(code, &CTL, Some(&self.secret), &all).await
    }

    /// Runs `ctl --json` at the head, and returns the last line.
    pub async fn json(&self, code: i32, args: &[&str]) -> Value {
        let (out, _) = self.ctl(&self.addrs[0], code, &[args, &["--json"]].concat()).await;
        serde_json::from_str(out.lines().last().unwrap_or_default()).unwrap()
    }
}
