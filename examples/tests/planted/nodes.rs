//! Mistakes that show only when processes or machines fail.

use std::{collections::BTreeMap, time::Duration};

use artillery_ddata::{Kv, testing::Cluster};
use bytes::Bytes;
use tokio::time::{sleep, timeout};

use crate::{
    app::{exists, once, read, text},
    hunt::{hunt, hunt_on},
};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn ids_from_a_local_counter() {
    /// Stores an order, the `number`th of its process, and returns its key.
    async fn shop(cluster: Cluster, store: impl AsyncFn(&Kv, u32, &str) -> Bytes) {
        let mut stored = BTreeMap::new();
        let mut node = cluster.head();
        for process in 0..2 {
            let kv = cluster.kv(node);
            for number in 0..cluster.seed() as u32 % 3 {
                let order = format!("order {number} of process {process}");
                stored.insert(order.clone(), store(&kv, number, &order).await);
            }
            if process == 0 {
                cluster.crash(node);
                node = cluster.restart(node).await;
            }
        }
        for (order, key) in stored {
            let found = read(&cluster.client(), std::str::from_utf8(&key).expect("a text")).await;
            assert_eq!(found.value(), Some(&order.into()), "an order was replaced");
        }
    }
    let wrong = async |kv: &Kv, number: u32, order: &str| {
        let key = format!("order/{number}");
        once(kv.put(&key, order.to_owned())).await;
        key.into()
    };
    let right = async |kv: &Kv, _, order: &str| once(kv.put_sequential("order/", order.to_owned())).await.result;
    let builder = Cluster::builder();
    hunt("ids from a local counter", builder, |cluster| shop(cluster, wrong), |cluster| shop(cluster, right));
}

#[test]
fn data_in_memory_only() {
    /// Stores an order. Then some nodes die, and start again.
    async fn blackout(cluster: Cluster) {
        let kv = cluster.client();
        once(kv.put("order/1", "ada")).await;
        let nodes: Vec<_> = cluster.nodes().into_iter().take(cluster.seed() as usize % 4).collect();
        nodes.iter().for_each(|&node| cluster.crash(node));
        for node in nodes {
            cluster.restart(node).await;
        }
        let is_there = timeout(SECOND * 60, exists(&kv, "order/1")).await;
        assert_eq!(is_there, Ok(true), "an order was lost");
    }
    let (wrong, right) = (Cluster::builder(), Cluster::builder().durable());
    hunt_on("data in memory only", (wrong, blackout), (right, blackout));
}

#[test]
fn full_disk_ignored() {
    const EVENTS: usize = 6;
    /// Records an event each second, while a disk may be full for two seconds.
    async fn audit(cluster: Cluster, record: impl AsyncFn(&Kv)) {
        let (kv, full) = (cluster.client(), cluster.nodes()[cluster.seed() as usize % 3]);
        let events = async {
            for _ in 0..EVENTS {
                record(&kv).await;
                sleep(SECOND).await;
            }
        };
        let disk = async {
            sleep(SECOND).await;
            if cluster.seed() % 4 == 2 {
                cluster.fill_disk(full);
                sleep(SECOND * 3).await;
                cluster.free_disk(full);
            }
        };
        tokio::join!(events, disk);
        assert_eq!(text(&kv, "audit").await.1.len(), EVENTS, "an event wasn't recorded");
    }
    let wrong = async |kv: &Kv| drop(kv.append("audit", "x").await);
    let right = async |kv: &Kv| {
        let _ = once(kv.append("audit", "x")).await;
    };
    let builder = Cluster::builder().durable();
    hunt("full disk ignored", builder, |cluster| audit(cluster, wrong), |cluster| audit(cluster, right));
}

#[test]
fn answered_before_it_is_stored() {
    /// Takes orders in a process that dies with its node. `order` returns once the customer has an answer.
    async fn shop(cluster: Cluster, order: impl AsyncFn(&Kv, String)) {
        let node = cluster.nodes()[cluster.seed() as usize % 3];
        let kv = cluster.kv(node);
        let mut answered = Vec::new();
        let orders = async {
            for number in 0..20 {
                let key = format!("order/{number}");
                order(&kv, key.clone()).await;
                answered.push(key);
                sleep(SECOND / 100).await;
            }
        };
        let _ = timeout(Duration::from_millis(20 + cluster.seed() * 7 % 100), orders).await;
        cluster.crash(node);
        sleep(SECOND * 10).await;
        for key in answered {
            assert!(exists(&cluster.client(), &key).await, "an order was lost");
        }
    }
    let wrong = async |kv: &Kv, key: String| drop(tokio::spawn(kv.put(key, "ada").into_future()));
    let right = async |kv: &Kv, key: String| {
        let _ = once(kv.put(key, "ada")).await;
    };
    let builder = Cluster::builder();
    hunt("answered before it is stored", builder, |cluster| shop(cluster, wrong), |cluster| shop(cluster, right));
}
