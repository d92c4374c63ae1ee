//! Measures reads and writes over time while a member is killed and restarted.

use std::{thread, time::Duration};

use artillery_core::{Timestamp, internal::clock};
use tokio::runtime::{Builder, Runtime};

use super::{Plan, SMALL, book, callers_per_link, millis};
use crate::{
    paper::{
        chain::{Chain, Lab},
        crowd::Crowd,
        results::Failover,
        tally::BUCKET,
    },
    throughput::{Failed, results::System, stats::Window},
};

const MEMBERS: usize = 3;
/// The default lease of a node.
const LEASE_MS: u32 = 1000;
/// Enough to distribute the clients of a dead member over the live ones.
const CLIENTS_PER_MEMBER: usize = 4;
/// How often clients look for new members.
const REFRESH: Duration = Duration::from_millis(500);
const WRITERS: usize = 32;
const WRITES_PER_SECOND: f64 = 500.0;

/// Measures reads and writes of a chain of three while one member is killed and restarted. One run per place: head,
/// middle and tail; in a quick run the middle only.
///
/// # Errors
/// A node doesn't start or doesn't get ready, a client can't connect, or a read returns a wrong value. Failed
/// operations are counted, and are no error.
pub fn failover(lab: &Lab, plan: &Plan, mbit: u32) -> Result<Vec<Failover>, Failed> {
    let places = if plan.quick { &["middle"][..] } else { &["head", "middle", "tail"][..] };
    places.iter().map(|killed| one(lab, plan, mbit, killed)).collect()
}

/// The times of events, relative to the start of the window.
struct Times {
    kill: Duration,
    start: Duration,
    end: Duration,
}

fn one(lab: &Lab, plan: &Plan, mbit: u32, killed: &str) -> Result<Failover, Failed> {
    let second = if plan.quick { Duration::from_millis(400) } else { Duration::from_secs(1) };
    let times = Times { kill: second * 4, start: second * 9, end: second * 16 };
    let mut chain = Chain::begin_with_lease(lab, System::Craq, MEMBERS, LEASE_MS)?;
    chain.ready()?;
    let mut crowd = Crowd::gather(lab, &chain, CLIENTS_PER_MEMBER)?;
    crowd.tolerant = true;
    crowd.refresh = Some(REFRESH);
    let book = book("failover", plan.keys, SMALL);
    crowd.fill(&book)?;
    let node = chain.node_of(killed).ok_or_else(|| format!("no node is the {killed}"))?;
    let mut jobs = crowd.readers(callers_per_link(SMALL) * MEMBERS);
    jobs.extend(crowd.writers(WRITERS, Some(WRITES_PER_SECOND)));
    let from = clock::now() + plan.warm_up;
    let window = Window { from, until: from + times.end };
    let (tally, ready_ms) = thread::scope(|scope| {
        let load = scope.spawn(|| crowd.run(&book, window, &jobs));
        let ready_ms = kill_and_restart(lab, &mut chain, node, from, &times);
        let tally = load.join().map_err(|_| "the load has panicked")??;
        Ok::<_, Failed>((tally, ready_ms?))
    })?;
    let found = Failover {
        mbit,
        members: MEMBERS,
        killed: killed.to_owned(),
        lease_ms: LEASE_MS,
        writes_wanted: WRITES_PER_SECOND,
        killed_ms: millis(times.kill),
        started_ms: millis(times.start),
        ready_ms,
        bucket_ms: millis(BUCKET),
        timeline: tally.timeline().to_vec(),
    };
    tell(&found);
    Ok(found)
}

/// Kills and restarts a node. Returns the time at which the node was ready again, in milliseconds since the start of
/// the window.
fn kill_and_restart(lab: &Lab, chain: &mut Chain, node: usize, from: Timestamp, times: &Times) -> Result<u64, Failed> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    wait_for(&runtime, from + times.kill);
    chain.kill(node);
    wait_for(&runtime, from + times.start);
    chain.restart(lab, node)?;
    Ok(millis(clock::now() - from))
}

/// Sleeps until `at`. The experiment fixes this time, so there is no condition to wait for.
fn wait_for(runtime: &Runtime, at: Timestamp) {
    runtime.block_on(async { tokio::time::sleep(at.saturating_since(clock::now())).await });
}

fn tell(found: &Failover) {
    let second = usize::try_from(1000 / found.bucket_ms.max(1)).unwrap_or(1).max(1);
    let sums = found.timeline.chunks(second).map(|chunk| {
        let reads: u32 = chunk.iter().map(|bucket| bucket.reads).sum();
        let writes: u32 = chunk.iter().map(|bucket| bucket.writes).sum();
        let failures: u32 = chunk.iter().map(|bucket| bucket.failures).sum();
        format!("{reads}/{writes}/{failures}")
    });
    let sums = sums.collect::<Vec<_>>().join(" ");
    let Failover { mbit, killed, killed_ms, started_ms, ready_ms, .. } = found;
    eprintln!(
        "  {mbit} Mbit/s, {killed} killed at {killed_ms} ms, started at {started_ms} ms, ready at {ready_ms} ms; \
         reads/writes/failures by second: {sums}"
    );
}
