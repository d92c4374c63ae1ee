//! Locks and registries: the hand-over of a lock with a hundred waiters, and its requests; how soon the lock of a dead
//! holder is free; and the processor time that the renewals of many instances cost the head.

use std::time::Duration;

use artillery_benches::{
    SECRET, start_nodes,
    throughput::{Failed, machine::cpu_of},
};
use artillery_ddata::{Client, Kv, Node, metrics::OperationKind};
use artillery_processes::{Cluster, token};
use clap::Parser;
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep},
};

const LONG: Duration = Duration::from_secs(120);

/// Prints the costs of locks and registrations on loopback.
#[derive(Parser)]
struct Options {
    /// Number of waiters.
    #[arg(long, default_value_t = 100)]
    waiters: usize,
    /// Number of registered instances.
    #[arg(long, default_value_t = 10_000)]
    instances: usize,
    /// Length of the measurement of renewals, in seconds.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let options = Options::parse();
    hand_over(&options).await?;
    dead_holder().await?;
    renewals(&options).await
}

async fn client(name: &str, nodes: &[Node]) -> Result<Client, Failed> {
    let seeds = nodes.iter().map(Node::addr);
    Ok(Client::builder().cluster(name).secret(SECRET).seeds(seeds).connect().await?)
}

/// Counts of the requests that the nodes have answered. A node that forwards a request doesn't count it.
struct Requests {
    writes: u64,
    looks: u64,
    watches: u64,
    renewals: u64,
}

impl Requests {
    async fn count(nodes: &[Node]) -> Self {
        let mut operations = Vec::new();
        for node in nodes {
            operations.extend(node.metrics().await.operations);
        }
        let of = |kinds: &[OperationKind]| {
            let counted = operations.iter().filter(|operation| kinds.contains(&operation.kind));
            counted.map(|operation| operation.done).sum()
        };
        Self {
            writes: of(&[OperationKind::Put, OperationKind::Delete]),
            looks: of(&[OperationKind::Scan]),
            watches: of(&[OperationKind::Changes]),
            renewals: of(&[OperationKind::Batch]),
        }
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

async fn puts(kv: &Kv, count: usize) -> Result<Duration, Failed> {
    let mut times = Vec::new();
    for _ in 0..count {
        let begun = Instant::now();
        kv.put("a key", "a value").await?;
        times.push(begun.elapsed());
    }
    Ok(median(times))
}

async fn hand_over(options: &Options) -> Result<(), Failed> {
    let name = format!("locks-{}", token());
    let nodes = start_nodes(&name, 3, |builder| builder).await?;
    let client = client(&name, &nodes).await?;
    let kv = client.kv();
    puts(&kv, 200).await?;
    let put = puts(&kv, 1000).await?;

    let lock = kv.lock("jobs").with_ttl(LONG);
    let first = lock.acquire().await?;
    let before = Requests::count(&nodes).await;
    let (acquired, mut guards) = mpsc::channel(1);
    let mut waiting = JoinSet::new();
    for _ in 0..options.waiters {
        let (lock, acquired) = (lock.clone(), acquired.clone());
        waiting.spawn(async move {
            let guard = lock.acquire().timeout(LONG).await;
            let _ = acquired.send((guard, Instant::now())).await;
        });
    }
    drop(acquired);
    // Until all of them wait: each has put a key and looked for its predecessor.
    while Requests::count(&nodes).await.looks - before.looks < options.waiters as u64 {
        sleep(Duration::from_millis(10)).await;
    }
    sleep(Duration::from_secs(1)).await;
    let (mut times, mut released) = (Vec::new(), Instant::now());
    first.release().await?;
    while let Some((guard, at)) = guards.recv().await {
        times.push(at.saturating_duration_since(released));
        let guard = guard?;
        released = Instant::now();
        guard.release().await?;
    }
    let after = Requests::count(&nodes).await;
    let each = |total: u64| total as f64 / options.waiters as f64;
    let hand_over = median(times);
    println!("put, median: {put:.2?}");
    println!(
        "hand-over to the next of {} waiters, from the call of release, median: {hand_over:.2?}, {:.2} x a put",
        options.waiters,
        hand_over.as_secs_f64() / put.as_secs_f64()
    );
    println!(
        "requests per waiter: {:.2} puts and deletes, {:.2} looks, {:.2} watches, {:.2} renewals",
        each(after.writes - before.writes),
        each(after.looks - before.looks),
        each(after.watches - before.watches),
        each(after.renewals - before.renewals)
    );
    Ok(())
}

/// The holder's process ends without a release.
async fn dead_holder() -> Result<(), Failed> {
    let name = format!("locks-{}", token());
    let nodes = start_nodes(&name, 3, |builder| builder).await?;
    let ttl = Duration::from_secs(3);
    let mut times = Vec::new();
    for _ in 0..5 {
        let (holder, other) = (client(&name, &nodes).await?, client(&name, &nodes).await?);
        let guard = holder.kv().lock("jobs").with_ttl(ttl).acquire().await?;
        let waiting = tokio::spawn(other.kv().lock("jobs").with_ttl(ttl).acquire().timeout(LONG).into_future());
        sleep(ttl).await;
        // The client can no longer delete or renew the key.
        holder.close().await;
        std::mem::forget(guard);
        let died = Instant::now();
        waiting.await??.release().await?;
        times.push(died.elapsed());
    }
    println!("a dead holder's lock, ttl {ttl:?}, is held by the next after: {times:.2?}");
    Ok(())
}

async fn renewals(options: &Options) -> Result<(), Failed> {
    let cluster = Cluster::start(&[]).await;
    let seeds = cluster.addrs.iter();
    let builder = Client::builder().cluster(&cluster.name).secret(&cluster.secret);
    let client = seeds.fold(builder, |builder, seed| builder.seed(seed.as_str())).connect().await?;
    let registry = client.kv().registry("web").with_ttl(Duration::from_secs(30));
    let mut registering = JoinSet::new();
    for id in 0..options.instances {
        let register = registry.register(format!("{id}"), format!("192.0.2.1:{id}")).timeout(LONG);
        registering.spawn(register.into_future());
        if registering.len() == 256 {
            sleep(Duration::from_millis(1)).await;
        }
    }
    let mut registered = Vec::new();
    while let Some(registration) = registering.join_next().await {
        registered.push(registration??);
    }
    sleep(Duration::from_secs(12)).await;
    let cpu = || cluster.nodes.iter().map(|node| cpu_of(node.id())).collect::<Result<Vec<_>, _>>();
    let before = cpu()?;
    sleep(Duration::from_secs(options.seconds)).await;
    let after = cpu()?;
    let part = |at: usize| (after[at] - before[at]) / options.seconds as f64 * 100.0;
    println!(
        "{} instances, renewed every 10 s: {:.1} % of a core at the head, {:.1} % in the middle, {:.1} % at the tail",
        options.instances,
        part(0),
        part(1),
        part(2)
    );
    let found = registry.instances().await?.len();
    println!("still registered: {found}");
    Ok(())
}
