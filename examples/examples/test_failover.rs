//! A test of what an application does when the head of its chain fails. The mistake below passes all tests without a
//! failover, since then the head is always the same node. A test that kills or isolates the head finds it within a few
//! seeds, and names the seed. All of it runs in this process, on virtual time and without sockets.
//!
//! In a package of your own, the tests at the end need `artillery-ddata` with its feature `testing` in
//! `dev-dependencies`.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    time::Duration,
};

use artillery_ddata::{
    Batch, Error, Kv, Node, Place, Version,
    kv::Expected,
    testing::{Cluster, Trouble},
};
use tokio::time::sleep;

/// The pause between two invoices of a process.
const PAUSE: Duration = Duration::from_millis(200);
/// How long a leader stays one after its process died.
const TTL: Duration = Duration::from_secs(2);
/// The key of the last number.
const LAST: &str = "invoices/last";

/// The invoices that all processes have printed. A number must not be printed twice.
#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<u64>>>);

impl Printed {
    fn print(&self, number: u64) {
        self.0.lock().expect("no other thread panics").push(number);
    }

    fn check(&self) {
        let numbers = self.0.lock().expect("no other thread panics").clone();
        let distinct: BTreeSet<_> = numbers.iter().collect();
        assert!(!numbers.is_empty(), "no invoice was printed");
        assert_eq!(distinct.len(), numbers.len(), "a number was printed twice: {numbers:?}");
    }
}

/// The last number, and the version of its key.
async fn last_number(kv: &Kv) -> Result<(u64, Version), Error> {
    let read = kv.get(LAST).await?;
    let last = read.value().map_or(0, |value| String::from_utf8_lossy(value).parse().expect("a number"));
    Ok((last, read.version()))
}

/// The mistake: only the head prints, so it counts in memory from where it started. A node that becomes the head later
/// begins with an old number.
async fn by_place(node: Node, printed: Printed) {
    let kv = node.kv();
    let mut last = loop {
        match last_number(&kv).await {
            Ok((last, _)) => break last,
            Err(_) => sleep(PAUSE).await,
        }
    };
    loop {
        // Writes the same number again if the outcome was unknown.
        if node.place() == Place::Head && kv.put(LAST, (last + 1).to_string()).await.is_ok() {
            last += 1;
            printed.print(last);
        }
        sleep(PAUSE).await;
    }
}

/// The correct version: the leader of an election prints. It counts from the last number of its predecessor, and each
/// write is applied only while its fencing token is the newest. So a former leader that was isolated or paused, and
/// doesn't know of its successor, prints nothing. The version of the last number also excludes the leader's own earlier
/// write, if its outcome was unknown and it arrives late.
async fn by_election(node: Node, printed: Printed) {
    let kv = node.kv();
    loop {
        let candidate = kv.election("invoices").with_ttl(TTL).campaign(node.name().to_owned());
        let Ok(leader) = candidate.await else {
            sleep(PAUSE).await;
            continue;
        };
        while leader.is_held() {
            if let Ok((last, version)) = last_number(&kv).await {
                let next = (last + 1).to_string();
                let batch = Batch::new().held(&leader).require(LAST, Expected::Version(version)).put(LAST, next);
                // If the outcome is unknown, the next round continues after the number that it finds.
                if kv.write(batch).await.is_ok() {
                    printed.print(last + 1);
                }
            }
            sleep(PAUSE).await;
        }
    }
}

/// What happens to the head.
#[derive(Clone, Copy, PartialEq)]
enum Failure {
    None,
    Killed,
    Isolated,
}

/// Runs the application on each node of a cluster, and lets its head fail.
async fn office<P: Future<Output = ()> + Send + 'static>(
    cluster: Cluster,
    failure: Failure,
    process: impl Fn(Node, Printed) -> P,
) {
    let printed = Printed::default();
    let start = |&node| (node, tokio::spawn(process(cluster.node(node), printed.clone())));
    let processes: Vec<_> = cluster.nodes().iter().map(start).collect();
    sleep(Duration::from_secs(2)).await;
    let head = cluster.head();
    match failure {
        Failure::None => {}
        Failure::Killed => {
            cluster.crash(head);
            // The node has crashed. The rest of its process is ours to end.
            processes.iter().filter(|(node, _)| *node == head).for_each(|(_, process)| process.abort());
        }
        Failure::Isolated => cluster.isolate(head),
    }
    // Long enough for a successor: once the lease of the former head has expired, and a leader's time to live.
    sleep(Duration::from_secs(10)).await;
    cluster.heal();
    sleep(Duration::from_secs(2)).await;
    processes.iter().for_each(|(_, process)| process.abort());
    printed.check();
    // `explore` also checks that all calls were answered consistently, and that the members agree.
}

/// Runs the application with a number of seeds. A failure is a panic with its seed.
fn explore<P: Future<Output = ()> + Send + 'static>(failure: Failure, process: impl Fn(Node, Printed) -> P) {
    // Lost packets, connections and answers, and repeated requests. They alone cause no failover, unlike crashes, pauses
    // and cuts that are longer than half a second.
    let mut trouble = Trouble::rough();
    (trouble.crashes, trouble.interruptions) = (false, false);
    let cluster = Cluster::builder().nodes(4).replicas(3).trouble(trouble);
    cluster.explore(0..3, |cluster| office(cluster, failure, &process));
}

/// The seed and the reason of the first failure, if a seed fails.
fn found<P: Future<Output = ()> + Send + 'static>(
    failure: Failure,
    process: impl Fn(Node, Printed) -> P,
) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(|| explore(failure, process))).err()?;
    Some(panic.downcast_ref::<String>().expect("`explore` names the seed").clone())
}

fn main() {
    // Without a failover, the mistake isn't found.
    explore(Failure::None, by_place);
    println!("by place, without a failover: ok");
    for (name, failure) in [("killed", Failure::Killed), ("isolated", Failure::Isolated)] {
        let reason = found(failure, by_place).expect("two nodes must print one number");
        println!("by place, the head is {name}: found with {}", reason.lines().next().unwrap_or_default());
        explore(failure, by_election);
        println!("by election, the head is {name}: ok");
    }
    explore(Failure::None, by_election);
    println!("by election, without a failover: ok");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_election_prints_each_number_once() {
        for failure in [Failure::None, Failure::Killed, Failure::Isolated] {
            explore(failure, by_election);
        }
    }

    #[test]
    fn only_a_failover_shows_the_mistake() {
        assert_eq!(found(Failure::None, by_place), None);
        for failure in [Failure::Killed, Failure::Isolated] {
            let reason = found(failure, by_place).expect("two nodes must print one number");
            assert!(reason.starts_with("seed ") && reason.contains("printed twice"), "{reason}");
        }
    }
}
