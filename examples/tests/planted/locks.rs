//! Mistakes about locks, leaders and registrations.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    rc::Rc,
    time::Duration,
};

use artillery_ddata::{Batch, Kv, Place, Version, recipes::Guard, testing::Cluster};
use tokio::{
    join, select,
    time::{Instant, sleep},
};

use crate::{
    app::{exists, number, once, once_if},
    hunt::{hunt, rough, rough_but},
};

/// The time to live of locks and registrations.
const TTL: Duration = Duration::from_secs(1);

#[test]
fn lock_without_fencing_token() {
    /// Two processes add to a number that a lock protects, and count what was added.
    async fn store(cluster: Cluster, set: impl AsyncFn(&Kv, &Guard, i64) -> bool) {
        let added = Cell::new(0);
        let restock = async |kv: Kv| {
            for _ in 0..3 {
                let lock = kv.lock("stock").with_ttl(TTL);
                let Ok(guard) = lock.acquire().timeout(TTL * 20).await else { continue };
                let (_, stock) = number(&kv, "stock").await;
                // The process is paused here, at the latest after it has looked at its guard.
                if guard.is_held() && set(&kv, &guard, stock + 1).await {
                    added.set(added.get() + 1);
                }
                let _ = guard.release().await;
            }
        };
        let nodes = cluster.nodes();
        join!(restock(cluster.kv(nodes[0])), restock(cluster.kv(nodes[1])), restock(cluster.client()));
        assert_eq!(number(&cluster.client(), "stock").await.1, added.get(), "a late write has replaced another one");
    }
    let wrong = async |kv: &Kv, _: &Guard, stock: i64| {
        once(kv.put("stock", stock.to_string())).await;
        true
    };
    let right = async |kv: &Kv, guard: &Guard, stock: i64| {
        once_if(kv.write(Batch::new().held(guard).put("stock", stock.to_string()))).await.is_ok()
    };
    let builder = rough_but(|trouble| trouble.crashes = false);
    hunt("lock without a fencing token", builder, |cluster| store(cluster, wrong), |cluster| store(cluster, right));
}

#[test]
fn time_to_live_from_the_answer() {
    /// Until when a lock that was acquired is held.
    async fn acquire(kv: &Kv, counts_from_answer: bool) -> Option<Instant> {
        let asked = Instant::now();
        once_if(kv.compare_and_swap("lock", Version::NONE, "held").ttl(TTL)).await.ok()?;
        // The clocks of two machines may differ by 1 %.
        Some(if counts_from_answer { Instant::now() + TTL } else { asked + TTL * 99 / 100 })
    }
    async fn work(cluster: Cluster, counts_from_answer: bool) {
        let held: Rc<RefCell<[Option<Instant>; 2]>> = Rc::default();
        let worker = async |me: usize| {
            let kv = cluster.client();
            for _ in 0..8 {
                if let Some(until) = acquire(&kv, counts_from_answer).await {
                    held.borrow_mut()[me] = Some(until);
                    let holds = |at: usize| held.borrow()[at].is_some_and(|until| Instant::now() < until);
                    assert!(!(holds(0) && holds(1)), "two processes hold the lock");
                }
                sleep(TTL / 4).await;
            }
        };
        join!(worker(0), worker(1));
    }
    hunt("time to live from the answer", rough(), |cluster| work(cluster, true), |cluster| work(cluster, false));
}

#[test]
fn leader_by_place() {
    const HOURS: u32 = 12;
    /// Each hour, one of the nodes sends a report: an effect outside of the cluster.
    async fn reports(cluster: Cluster, leads: impl AsyncFn(&Kv, Place, u32) -> bool) {
        let sent = RefCell::new(BTreeSet::new());
        let node = async |at: usize| {
            let node = cluster.node(cluster.nodes()[at]);
            for hour in 0..HOURS {
                if leads(&node.kv(), node.place(), hour).await {
                    assert!(sent.borrow_mut().insert(hour), "two nodes have sent the report of one hour");
                }
                sleep(Duration::from_secs(1)).await;
            }
        };
        let trouble = async {
            let seed = cluster.seed();
            sleep(Duration::from_millis(seed * 300 % 2000)).await;
            cluster.isolate(cluster.nodes()[seed as usize % 3]);
            sleep(Duration::from_millis(seed * 700 % 8000)).await;
            cluster.heal();
        };
        join!(node(0), node(1), node(2), trouble);
    }
    let wrong = async |_: &Kv, place, _| place == Place::Head;
    let right = async |kv: &Kv, place, hour: u32| {
        // The place only saves requests. The claim decides.
        place == Place::Head
            && once_if(kv.compare_and_swap(format!("report/{hour}"), Version::NONE, "sent")).await.is_ok()
    };
    hunt("leader by place", Cluster::builder(), |cluster| reports(cluster, wrong), |cluster| reports(cluster, right));
}

#[test]
fn forgotten_registration() {
    const KEY: &str = "registry/{web}/1";
    /// A service on a spare, which may be isolated for longer than the time to live.
    async fn service(cluster: Cluster, stay_registered: impl AsyncFn(Kv)) {
        let spare = *cluster.nodes().iter().find(|node| !cluster.chain().contains(node)).expect("a spare");
        let trouble = async {
            sleep(TTL).await;
            cluster.isolate(spare);
            sleep(TTL / 4 * (cluster.seed() % 16) as u32).await;
            cluster.heal();
            sleep(TTL * 6).await;
            assert!(exists(&cluster.client(), KEY).await, "a running service isn't registered");
        };
        select! {
            biased;
            () = trouble => {}
            () = stay_registered(cluster.kv(spare)) => unreachable!("the service runs until the end"),
        }
    }
    let wrong = async |kv: Kv| {
        once(kv.put(KEY, "a:80").ttl(TTL)).await;
        loop {
            sleep(TTL / 3).await;
            // Returns `false` if the key is gone.
            let _ = kv.expire(KEY, TTL).timeout(TTL).await;
        }
    };
    let right = async |kv: Kv| loop {
        if let Ok(_registration) = kv.registry("web").with_ttl(TTL).register("1", "a:80").await {
            // Renews it, and registers again if it is gone.
            std::future::pending::<()>().await;
        }
    };
    let builder = Cluster::builder().nodes(4).replicas(3);
    hunt("forgotten registration", builder, |cluster| service(cluster, wrong), |cluster| service(cluster, right));
}
