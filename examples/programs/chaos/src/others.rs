//! Additional processes next to the nodes: twins of a running node, and young nodes in a crash loop.

use std::time::Duration;

use artillery_programs::{chance::Dice, exit::Failure};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::{cluster::Cluster, fault::name};

/// The last line of a twin's log must contain this word.
const REASON: &str = "name";
/// How long a young node runs, and the pause before the next one starts: shortest and longest, in milliseconds.
type Loop = ((u64, u64), (u64, u64));
const SLOW_LOOP_MS: Loop = ((300, 3000), (400, 1600));
/// The next node starts before the previous one is detected as dead.
const FAST_LOOP_MS: Loop = ((400, 1600), (0, 1));
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Starts a second process with the name of a node, and waits until it has ended by itself. Returns an error text if it
/// has not ended by `end`, ends with code 0 or by a signal, or doesn't log the reason.
pub(super) async fn twin(cluster: &Cluster, victim: usize, end: Instant) -> Result<Option<String>, Failure> {
    let mut twin = cluster.start_other(Some(name(victim)))?;
    let status = loop {
        match twin.process.ended() {
            Some(status) => break Some(status),
            None if Instant::now() >= end => break None,
            None => sleep(POLL_INTERVAL).await,
        }
    };
    let (last, log) = (twin.last_line(), twin.log.display().to_string());
    twin.remove().await?;
    Ok(match status {
        None => Some(format!("the twin didn't end by itself ({log})")),
        Some(status) if status.code().is_none_or(|code| code == 0) => {
            Some(format!("the twin ended with {status} ({log})"))
        }
        Some(_) if !last.to_lowercase().contains(REASON) => Some(format!("the twin didn't log why it ended: {last}")),
        Some(_) => None,
    })
}

/// Starts an unnamed node, kills it, and starts the next one, until `end`. Returns an error text if one ended by
/// itself.
pub(super) async fn young(cluster: &Cluster, pick: u64, end: Instant) -> Result<Option<String>, Failure> {
    let (mut dice, mut wrong) = (Dice::new(pick), None);
    let (life_ms, gap_ms) = if dice.below(2) == 0 { SLOW_LOOP_MS } else { FAST_LOOP_MS };
    while Instant::now() < end {
        let mut draw = |(least, most)| Duration::from_millis(least + dice.below(most - least));
        let (life, gap) = (draw(life_ms), draw(gap_ms));
        let mut node = cluster.start_other(None)?;
        sleep_until(end.min(Instant::now() + life)).await;
        if let Some(status) = node.process.ended() {
            wrong = Some(format!("a young node ended by itself with {status}: {}", node.last_line()));
        }
        node.remove().await?;
        // The fault may end during the pause.
        let _ = timeout_at(end, sleep(gap)).await;
    }
    Ok(wrong)
}
