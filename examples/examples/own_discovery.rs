//! A custom source of addresses, such as Kubernetes, Consul or a database: here a file with one `name=address` per
//! line. Three nodes and a client find each other through it, without multicast DNS and without seeds. (For a file with
//! one address per line use `FileDiscovery`.)

use std::{error::Error, fs, io, path::PathBuf, time::Duration};

use artillery_core::discovery::{Announcement, Candidates, Discovery, PolledDiscovery, Seed};
use artillery_ddata::{Client, Node};

const SECRET: &str = "not a secret, an example";

/// The registry file: each node writes one line, and all nodes read it.
#[derive(Clone)]
struct Registry(PathBuf);

impl Registry {
    /// Reads the current content of the file. It may block: it is called on a thread for this source alone.
    fn read(&self) -> io::Result<Vec<Seed>> {
        let text = fs::read_to_string(self.0.join("nodes"))?;
        Ok(text.lines().filter_map(|line| line.split_once('=')?.1.parse().ok()).collect())
    }

    /// Adds a line, atomically: readers see either the old file or the new one.
    fn write(&self, me: &Announcement) -> io::Result<()> {
        let Some(addr) = me.addrs.first() else { return Ok(()) };
        let before = fs::read_to_string(self.0.join("nodes")).unwrap_or_default();
        let others = before.lines().filter(|line| !line.starts_with(&format!("{}=", me.name)));
        let lines: Vec<_> = others.map(str::to_owned).chain([format!("{}={addr}\n", me.name)]).collect();
        fs::write(self.0.join(&me.name), lines.join("\n"))?;
        fs::rename(self.0.join(&me.name), self.0.join("nodes"))
    }
}

impl Discovery for Registry {
    /// Called when the node starts, and again when its addresses change.
    fn announce(&self, me: &Announcement) {
        if let Err(error) = self.write(me) {
            eprintln!("{}: {error}", me.name);
        }
    }

    /// `PolledDiscovery` polls the source and turns differences into candidates. A source with change notifications
    /// makes its own stream instead.
    fn candidates(&self) -> Candidates {
        let registry = self.clone();
        let ask = move || std::future::ready(registry.read());
        PolledDiscovery::new("registry", Duration::from_millis(200), ask).candidates()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let registry = Registry(std::env::temp_dir().join(format!("artillery-registry-{}", std::process::id())));
    fs::create_dir_all(&registry.0)?;
    let mut nodes = Vec::new();
    for name in ["ann", "bob", "cleo"] {
        let node = Node::builder().cluster("registered").secret(SECRET).name(name).expect(3).mdns(false);
        let node = node.listen(([127, 0, 0, 1], 0).into()).discovery(registry.clone()).start().await?;
        // `write` is not safe for concurrent writers, so wait until this node is registered before starting the next.
        while !fs::read_to_string(registry.0.join("nodes")).is_ok_and(|text| text.contains(name)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        nodes.push(node);
    }
    for node in &nodes {
        node.ready().await?;
    }
    let client = Client::builder().cluster("registered").secret(SECRET).discovery(registry.clone()).connect().await?;
    client.kv().put("greeting", "found through a file").await?;
    println!("{:?}", client.kv().get("greeting").await?.value());
    client.close().await;
    fs::remove_dir_all(&registry.0)?;
    Ok(())
}
