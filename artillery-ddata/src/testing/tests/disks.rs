//! Clusters whose nodes have disks: they stop, one by one and all at once, and restart.

use std::{sync::Mutex, time::Duration};

use artillery_proto::guards::Mutant;

use super::{super::*, applications::everything};

fn durable() -> Builder {
    Cluster::builder().durable()
}

/// Depending on `number`, all nodes lose power, or some lose power, some crash and some keep running. Then all restart.
pub(super) async fn restart(cluster: &Cluster, number: u64) {
    let all = number.is_multiple_of(2);
    for (node, at) in cluster.nodes().into_iter().zip(0..) {
        match (number >> (2 * at + 1)) % 3 {
            0 if !all => {}
            1 if !all => cluster.crash(node),
            _ => cluster.power_cut(node),
        }
    }
    cluster.restart_all().await;
}

async fn everything_over_restarts(cluster: Cluster) {
    let callers = tokio::spawn(everything(cluster.clone()));
    for round in 0..3 {
        tokio::time::sleep(Duration::from_millis(100 + 50 * (cluster.seed() % 10))).await;
        restart(&cluster, cluster.seed() >> round).await;
    }
    callers.await.unwrap();
    restart(&cluster, cluster.seed()).await;
}

#[test]
fn what_was_acknowledged_is_there_after_all_nodes_have_started_again() {
    durable().explore(0..40, everything_over_restarts);
    durable().trouble(Trouble::rough()).explore(0..40, everything_over_restarts);
    durable().nodes(4).replicas(2).chains(3).trouble(Trouble::rough()).explore(0..10, everything_over_restarts);
}

#[tokio::test(start_paused = true)]
async fn clients_go_on_and_handles_of_ended_processes_fail() {
    let cluster = durable().seed(3).start().await;
    let (client, of_head) = (cluster.client(), cluster.kv(cluster.head()));
    let put = client.put("a", "1").await.unwrap();
    let before = cluster.nodes();
    cluster.power_cut(cluster.tail());
    client.put("a", "2").timeout(Duration::from_secs(1)).await.expect_err("a member is missing");
    cluster.restart_all().await;
    let read = client.get("a").await.unwrap();
    assert!(read.version() >= put.version);
    assert!(of_head.get("a").await.is_err(), "its process has ended");
    assert!(cluster.kv(cluster.head()).get("a").await.is_ok());
    for (before, now) in before.into_iter().zip(cluster.nodes()) {
        assert!(before.shares_store(now) && before < now, "another incarnation of the same store");
    }
    cluster.check().await;
}

#[test]
fn a_seed_determines_a_run_with_disks() {
    let history = |seed| {
        let history = Mutex::new(String::new());
        durable().trouble(Trouble::rough()).explore([seed], |cluster| {
            let history = &history;
            async move {
                everything_over_restarts(cluster.clone()).await;
                *history.lock().unwrap() = cluster.history();
            }
        });
        history.into_inner().unwrap()
    };
    assert_eq!(history(5), history(5));
    assert_ne!(history(5), history(6));
}

#[test]
fn a_write_that_is_answered_before_it_is_on_disk_is_noticed() {
    let lost = |mutant| {
        let run = || durable().mutant(mutant).explore(0..60, everything_over_restarts);
        std::panic::catch_unwind(run).is_err()
    };
    assert!(lost(Mutant::CommitUndurable));
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "no disks")]
async fn nodes_without_disks_lose_everything_and_do_not_start_again() {
    Cluster::builder().start().await.restart_all().await;
}
