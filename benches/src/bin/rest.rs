//! The costs of an idle chain of three, by number of chains and of connections: processor time and UDP packets per
//! second.

use std::time::Duration;

use artillery_benches::{
    SECRET, start_nodes,
    throughput::{Failed, machine::own_cpu},
};
use artillery_ddata::{Client, Node, NodeBuilder, config::Threads};
use artillery_processes::token;
use clap::Parser;
use tokio::time::sleep;

/// Prints the costs per second of three idle nodes and their clients, all in this process.
#[derive(Parser)]
struct Options {
    /// Length of each measurement, in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Run the nodes on this program's thread instead of one thread each.
    #[arg(long)]
    shared: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failed> {
    let options = Options::parse();
    println!("| chains | clients | CPU ms a second | UDP sends a second |\n|--:|--:|--:|--:|");
    for (chains, clients) in [(1, 0), (10, 0), (1, 1000)] {
        measure(chains, clients, &options).await?;
    }
    Ok(())
}

async fn measure(chains: u32, clients: usize, options: &Options) -> Result<(), Failed> {
    let name = format!("rest-{}", token());
    let configure = |builder: NodeBuilder| {
        let builder = builder.configure(|config| config.chains.chains = chains);
        if options.shared { builder.threads(Threads::Shared) } else { builder }
    };
    let nodes = start_nodes(&name, 3, configure).await?;
    let mut connected = Vec::new();
    for _ in 0..clients {
        let seeds = nodes.iter().map(Node::addr);
        let client = Client::builder().cluster(&name).secret(SECRET).seeds(seeds).connect().await?;
        client.kv().get("a key").await?;
        connected.push(client);
    }
    sleep(Duration::from_secs(2)).await;
    let sends = || nodes.iter().map(|node| node.traffic().udp_sends).sum::<u64>();
    let (cpu, sent) = (own_cpu(), sends());
    sleep(Duration::from_secs(options.seconds)).await;
    let cpu = (own_cpu() - cpu) * 1000.0 / options.seconds as f64;
    println!("| {chains} | {clients} | {cpu:.2} | {:.0} |", (sends() - sent) as f64 / options.seconds as f64);
    for client in connected {
        client.close().await;
    }
    Ok(())
}
