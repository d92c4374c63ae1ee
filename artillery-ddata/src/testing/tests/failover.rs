//! Nodes die, leave, join and restart under load, with the control plane that ships.

use std::{sync::Mutex, time::Duration};

use artillery_proto::guards::Mutant;

use super::{super::*, applications::everything};
use crate::{Error, Place, Refusal};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn writes_continue_after_the_head_was_killed() {
    let cluster = Cluster::builder().nodes(4).replicas(3).seed(1).start().await;
    let kv = cluster.client();
    kv.put("k", "v").await.unwrap();
    let (before, head) = (cluster.chain(), cluster.head());
    cluster.crash(head);
    let put = kv.put("k", "w").timeout(10 * SECOND).await.unwrap();
    assert!(put.copies >= 2, "{put:?}");
    cluster.settle().await;
    let after = cluster.chain();
    assert!(after.len() == 3 && !after.contains(&head), "{before:?}, {after:?}");
    cluster.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_restarts_and_joins_with_and_without_a_disk() {
    for durable in [false, true] {
        let builder = Cluster::builder().seed(2);
        let cluster = if durable { builder.durable() } else { builder }.start().await;
        let kv = cluster.client();
        let tail = cluster.tail();
        cluster.crash(tail);
        kv.put("k", "v").timeout(10 * SECOND).await.unwrap();
        let again = cluster.restart(tail).await;
        assert_eq!(again.shares_store(tail), durable);
        cluster.settle().await;
        assert_eq!(cluster.chain().len(), 3);
        assert_eq!(cluster.kv(again).get("k").await.unwrap().value().unwrap(), "v");
        cluster.check().await;
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_are_added_and_drained_under_load() {
    let cluster = Cluster::builder().seed(3).start().await;
    let load = tokio::spawn(everything(cluster.clone()));
    let added = cluster.add_node().await;
    cluster.settle().await;
    assert_eq!(cluster.node(added).place(), Place::Spare);
    let head = cluster.head();
    cluster.drain(head).await;
    cluster.settle().await;
    let chain = cluster.chain();
    assert!(chain.contains(&added) && !chain.contains(&head), "{chain:?}");
    assert!(!cluster.nodes().contains(&head));
    load.await.unwrap();
    cluster.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_stopped_node_is_missed_at_once_and_returns() {
    let cluster = Cluster::builder().durable().seed(4).start().await;
    let (kv, middle) = (cluster.client(), cluster.chain()[1]);
    kv.put("k", "v").await.unwrap();
    cluster.stop(middle).await;
    assert_eq!(kv.put("k", "w").timeout(SECOND).await.unwrap().copies, 2);
    cluster.restart(middle).await;
    cluster.settle().await;
    assert_eq!(kv.put("k", "x").await.unwrap().copies, 3);
    cluster.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_refuses_values_until_it_has_space() {
    let cluster = Cluster::builder().durable().seed(5).start().await;
    let kv = cluster.client();
    kv.put("k", "v").await.unwrap();
    let tail = cluster.tail();
    cluster.fill_disk(tail);
    let mut refused = Err("the full disk refused nothing".to_owned());
    for _ in 0..100 {
        if let Err(error) = kv.put("k", "w").await {
            refused = Ok(error);
            break;
        }
        tokio::time::sleep(SECOND / 10).await;
    }
    let refused = refused.unwrap();
    assert!(matches!(refused, Error::Refused { reason: Refusal::DiskFull { .. }, .. }), "{refused}");
    cluster.free_disk(tail);
    tokio::time::sleep(SECOND).await;
    kv.put("k", "x").await.unwrap();
    cluster.check().await;
}

/// A skew within the bound is harmless.
#[test]
fn clocks_may_run_at_different_rates() {
    Cluster::builder().trouble(Trouble::rough()).explore(0..10, |cluster| async move {
        let nodes = cluster.nodes();
        cluster.skew_clock(nodes[0], 5000);
        cluster.skew_clock(nodes[1], -5000);
        everything(cluster.clone()).await;
    });
}

/// Writes a key while its tail is isolated and its clock skewed, and reads it there.
async fn read_of_an_isolated_tail(builder: Builder, ppm: i32) -> Result<Checked, CheckFailed> {
    let cluster = builder.seed(6).start().await;
    let (kv, tail) = (cluster.client(), cluster.tail());
    kv.put("k", "v").await.unwrap();
    let inside = cluster.kv(tail);
    tokio::time::sleep(SECOND).await;
    cluster.skew_clock(tail, ppm);
    cluster.isolate(tail);
    kv.put("k", "w").timeout(20 * SECOND).await.unwrap();
    let _ = inside.get("k").timeout(SECOND).await;
    cluster.heal();
    cluster.skew_clock(tail, 0);
    cluster.try_check().await
}

#[tokio::test(start_paused = true)]
async fn an_isolated_member_serves_until_its_lease_ends_by_its_clock() {
    read_of_an_isolated_tail(Cluster::builder(), 0).await.unwrap();
    read_of_an_isolated_tail(Cluster::builder(), -5000).await.unwrap();
    // A clock so slow that the lease lasts for minutes, and a member that serves without a lease.
    let slow = read_of_an_isolated_tail(Cluster::builder(), -990_000).await;
    let leaseless = read_of_an_isolated_tail(Cluster::builder().mutant(Mutant::IgnoreLease), 0).await;
    for failed in [slow.unwrap_err(), leaseless.unwrap_err()] {
        assert!(failed.what.contains("not linearizable"), "{failed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_a_majority_is_checked_as_it_is() {
    let cluster = Cluster::builder().seed(7).start().await;
    cluster.client().put("k", "v").await.unwrap();
    for node in cluster.chain().into_iter().take(2) {
        cluster.crash(node);
    }
    cluster.client().put("k", "w").timeout(SECOND).await.unwrap_err();
    assert!(!cluster.try_check().await.unwrap().recovered);
}

#[tokio::test(start_paused = true)]
async fn a_chain_without_members_is_checked_as_it_is() {
    let cluster = Cluster::builder().nodes(5).replicas(2).seed(1).start().await;
    for node in cluster.chain() {
        cluster.crash(node);
    }
    assert!(!cluster.try_check().await.unwrap().recovered);
}

/// The data is lost with two of three memory nodes, which the test itself has caused.
#[tokio::test(start_paused = true)]
async fn nodes_that_run_without_serving_fail_the_check() {
    let cluster = Cluster::builder().seed(1).start().await;
    let two: Vec<_> = cluster.chain().into_iter().take(2).collect();
    two.iter().for_each(|&node| cluster.crash(node));
    for node in two {
        cluster.restart(node).await;
    }
    let failed = cluster.try_check().await.unwrap_err();
    assert!(failed.what.contains("doesn't serve"), "{}", failed.what);
}

#[test]
fn random_crashes_leave_a_majority() {
    let crashes = Trouble { crashes: true, ..Trouble::none() };
    Cluster::builder().trouble(crashes).explore(0..8, |cluster| async move {
        let tail = cluster.tail();
        match cluster.seed() % 3 {
            0 => cluster.drain(tail).await,
            1 => cluster.crash(tail),
            _ => cluster.isolate(tail),
        }
        tokio::time::sleep(30 * SECOND).await;
        cluster.client().put("k", "w").timeout(60 * SECOND).await.unwrap();
    });
}

#[tokio::test(start_paused = true)]
async fn all_first_nodes_can_be_replaced() {
    let cluster = Cluster::builder().seed(1).start().await;
    for old in cluster.nodes() {
        cluster.add_node().await;
        cluster.settle().await;
        cluster.drain(old).await;
        cluster.settle().await;
    }
    let last = cluster.add_node().await;
    cluster.settle().await;
    cluster.kv(last).put("k", "v").await.unwrap();
    cluster.check().await;
}

/// The retries take no time, so the test would hang.
#[tokio::test(start_paused = true)]
#[should_panic(expected = "a handle of a stopped node")]
async fn endless_retries_at_a_dead_node_are_noticed() {
    let cluster = Cluster::builder().seed(1).start().await;
    let kv = cluster.kv(cluster.head());
    cluster.next_outcome_unknown(Fate::Lost);
    let Err(Error::OutcomeUnknown { request_id, .. }) = kv.increment("n", 1).await else { panic!("an answer arrived") };
    cluster.crash(cluster.head());
    while kv.increment("n", 1).request_id(request_id).await.is_err() {}
}

/// Orders to one node at the same time, and calls that are dropped.
#[test]
fn orders_to_one_node_may_overlap() {
    for durable in [false, true] {
        let builder = Cluster::builder().nodes(4).replicas(3);
        let builder = if durable { builder.durable() } else { builder };
        builder.explore(0..6, |cluster| async move {
            let (node, stopping, starting) = (cluster.tail(), cluster.clone(), cluster.clone());
            let stops = tokio::spawn(async move { stopping.stop(node).await });
            tokio::time::sleep(Duration::from_millis(2)).await;
            cluster.restart(node).await;
            stops.await.unwrap();
            cluster.settle().await;
            let _ = tokio::time::timeout(Duration::from_millis(1), cluster.stop(node)).await;
            cluster.restart(node).await;
            cluster.settle().await;
            cluster.crash(node);
            let starts = tokio::spawn(async move { starting.restart(node).await });
            tokio::task::yield_now().await;
            cluster.crash(node);
            starts.await.unwrap();
            cluster.restart(node).await;
            tokio::join!(cluster.restart(node), cluster.restart(node));
        });
    }
}

/// Crashes, restarts, joins, leaves, full disks and skewed clocks, chosen by the seed, while applications work.
pub(super) async fn operated(cluster: Cluster) {
    let callers = tokio::spawn(everything(cluster.clone()));
    for round in 0..3 {
        let (draw, nodes) = (cluster.seed().wrapping_mul(31).wrapping_add(round * 7), cluster.nodes());
        let node = nodes[draw as usize / 6 % nodes.len()];
        match draw % 6 {
            0 => {
                cluster.crash(cluster.head());
                cluster.heal();
                let crashed: Vec<_> = cluster.nodes();
                for node in crashed {
                    cluster.restart(node).await;
                }
            }
            1 => {
                cluster.add_node().await;
            }
            2 if nodes.len() > 3 => cluster.drain(node).await,
            3 => cluster.skew_clock(node, (draw % 10_000) as i32 - 5000),
            4 if cluster.is_durable() => {
                cluster.fill_disk(node);
                tokio::time::sleep(SECOND).await;
                cluster.free_disk(node);
            }
            _ if cluster.is_durable() => {
                cluster.stop(node).await;
                cluster.restart(node).await;
            }
            _ => tokio::time::sleep(SECOND).await,
        }
    }
    callers.await.unwrap();
}

impl Cluster {
    fn is_durable(&self) -> bool {
        self.seed().is_multiple_of(2)
    }
}

fn explore_operated(seed: u64) {
    let builder = Cluster::builder().nodes(4).replicas(3).trouble(Trouble { crashes: false, ..Trouble::rough() });
    let builder = if seed.is_multiple_of(2) { builder.durable() } else { builder };
    builder.explore([seed], operated);
}

#[test]
fn applications_survive_operators_and_faults() {
    (0..24).for_each(explore_operated);
}

/// More seeds than a test run has time for.
#[test]
#[ignore = "takes minutes"]
fn applications_survive_operators_and_faults_for_long() {
    for seed in 24..400_u64 {
        explore_operated(seed);
    }
    explore(0..400, everything);
}

fn history(seed: u64) -> String {
    let history = Mutex::new(String::new());
    Cluster::builder().nodes(4).replicas(3).durable().trouble(Trouble::rough()).explore([seed], |cluster| {
        let history = &history;
        async move {
            operated(cluster.clone()).await;
            cluster.check().await;
            *history.lock().unwrap() = cluster.history();
        }
    });
    history.into_inner().unwrap()
}

#[test]
fn a_seed_determines_a_run_with_operators() {
    for seed in [2, 4, 6, 8] {
        let (first, second) = (history(seed), history(seed));
        let apart = first.lines().zip(second.lines()).find(|(first, second)| first != second);
        assert_eq!(apart, None, "seed {seed}");
        assert_eq!(first.len(), second.len());
    }
    assert_ne!(history(2), history(4));
}
