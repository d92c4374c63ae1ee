//! The costs of a chain of three without requests, by chains and by connections: processor time and UDP packets per second.

use std::{hash::BuildHasher, hash::RandomState, time::Duration};

use artillery_benches::traffic;
use artillery_ddata::{Client, Node, config::Threads};
use clap::Parser;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::sleep;

const SECRET: &str = "a secret for benches alone";

/// Prints what three nodes and their clients, all in this process, cost a second while nothing is asked.
#[derive(Parser)]
struct Options {
    /// So long each is measured, in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Nodes share this program's thread, instead of having one each.
    #[arg(long)]
    shared: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    println!("| chains | clients | CPU ms a second | UDP sends a second |\n|--:|--:|--:|--:|");
    for (chains, clients) in [(1, 0), (10, 0), (1, 1000)] {
        measure(chains, clients, &options).await?;
    }
    Ok(())
}

async fn measure(chains: u32, clients: usize, options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let name = format!("rest-{:016x}", RandomState::new().hash_one(chains));
    let mut nodes: Vec<Node> = Vec::new();
    for _ in 0..3 {
        let mut builder = Node::builder().cluster(&name).secret(SECRET).mdns(false).expect(3);
        builder = builder.configure(|config| config.chains.chains = chains);
        if options.shared {
            builder = builder.threads(Threads::Shared);
        }
        if let Some(first) = nodes.first() {
            builder = builder.seed(first.addr().to_string());
        }
        nodes.push(builder.start().await?);
    }
    for node in &nodes {
        node.ready().await?;
    }
    let mut connected = Vec::new();
    for _ in 0..clients {
        let seeds = nodes.iter().map(Node::addr);
        let client = Client::builder().cluster(&name).secret(SECRET).seeds(seeds).connect().await?;
        client.kv().get("a key").await?;
        connected.push(client);
    }
    sleep(Duration::from_secs(2)).await;
    let sends = || traffic(&nodes.iter().map(Node::traffic).collect::<Vec<_>>()).udp_sends;
    let (cpu, sent) = (processor_time(), sends());
    sleep(Duration::from_secs(options.seconds)).await;
    let cpu = (processor_time() - cpu).as_secs_f64() * 1000.0 / options.seconds as f64;
    println!("| {chains} | {clients} | {cpu:.2} | {:.0} |", (sends() - sent) as f64 / options.seconds as f64);
    for client in connected {
        client.close().await;
    }
    Ok(())
}

/// The processor time of all threads of this process.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
