//! Repeated deaths of the head, paused members, and consecutive restarts, under a load that checks every read and every
//! increment. Environment variables make the tests longer.

use std::time::Duration;

use artillery_processes::{Members, TEST_TIMEOUT, setting};
use tokio::time::{Instant, sleep};

use crate::counters::Counters;

const COUNTERS: usize = 100;

/// Waits until more increments are acknowledged.
async fn goes_on(counters: &Counters, why: &str) {
    let (before, deadline) = (counters.acknowledged(), Instant::now() + TEST_TIMEOUT);
    while counters.acknowledged() < before + 10 {
        assert!(Instant::now() < deadline, "nothing was acknowledged {why}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// `HEAD_FAILOVERS` (default 2) failovers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_are_exact_across_failovers_of_the_head() {
    let mut members = Members::start(&[]).await;
    let counters = Counters::start(&members, "failovers", COUNTERS).await;
    for failover in 0..setting("HEAD_FAILOVERS", 2) {
        let head = members.serving(3).await.swap_remove(0);
        goes_on(&counters, "before a failover").await;
        members.kill(&head).await;
        goes_on(&counters, "after the head had died").await;
        println!("{failover}: {} acknowledged", counters.acknowledged());
        let node = members.begin(&[]);
        members.add(node).await;
    }
    println!("{:?}", counters.end(&members).await);
}

/// Pauses of `PAUSE_SECONDS` (default 4) each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_member_resumes_fenced_and_rejoins() {
    let pause = Duration::from_secs(setting("PAUSE_SECONDS", 4));
    let members = Members::start(&[]).await;
    let counters = Counters::start(&members, "pauses", COUNTERS).await;
    for at in 0..3 {
        let stopped = members.serving(3).await.swap_remove(at);
        members.node(&stopped).signal("-STOP").await;
        // The length of the pause, not a wait for a condition.
        sleep(pause).await;
        goes_on(&counters, "while a member was stopped").await;
        members.node(&stopped).signal("-CONT").await;
        members.serving(3).await;
        let chain = members.chain(&stopped).await.unwrap_or_default();
        println!("place {at}: resyncs {} full, {} partial", chain["resyncs_full"], chain["resyncs_partial"]);
        assert!(chain["resyncs_partial"].as_u64() >= Some(1), "it was missing only the last few updates: {chain:#}");
        assert_eq!(chain["resyncs_full"], 0, "it was missing only the last few updates: {chain:#}");
    }
    println!("{:?}", counters.end(&members).await);
}

/// Restarts for `ROLLING_SECONDS` (default 8), at least one per node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_restart_under_their_old_names_one_at_a_time() {
    let mut members = Members::start(&[]).await;
    let mut names = members.serving(3).await;
    let counters = Counters::start(&members, "restarts", COUNTERS).await;
    let (begun, wanted) = (Instant::now(), Duration::from_secs(setting("ROLLING_SECONDS", 8)));
    let mut restarts = 0;
    while restarts < names.len() || begun.elapsed() < wanted {
        let name = names[restarts % 3].clone();
        members.kill(&name).await;
        let node = members.begin(&["--name", &name]);
        let restarted = members.add(node).await;
        names[restarts % 3] = restarted;
        restarts += 1;
        goes_on(&counters, "after a restart").await;
    }
    assert_eq!(members.serving(3).await.len(), 3);
    println!("{restarts} restarts in {:?}: {:?}", begun.elapsed(), counters.end(&members).await);
}
