//! Two processes with one name: the connected process keeps the name while it is running.
//!
//! A peer may send a hello in one incarnation while this endpoint is connected to another incarnation of the same node.
//! Either the connected process has ended and the peer is its successor, or an operator has given one name to two
//! processes. The order of the incarnations does not distinguish these cases. So this endpoint probes the connected
//! process. If the process answers, the endpoint refuses the peer. Otherwise it closes the connections to that process
//! and admits the peer.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{CloseCode, Connection, registry::NotAdded, shared::EndpointShared};
use crate::{error::Refusal, id::MemberId};

/// A process that has not proved within this time that it is running is treated as ended.
const PROOF_TIMEOUT: Duration = Duration::from_millis(500);

const CHECK_PERIOD: Duration = Duration::from_millis(5);

/// The interval between two probes without an acknowledgement.
const ASK_PERIOD: Duration = Duration::from_millis(50);

/// Number of acknowledgements required. The first may have been in transit when the hello arrived. The second is taken
/// to answer a probe sent after the first was received.
const PROOF_ROUNDS: u32 = 2;

/// Determines whether the process at the other end of a connection is running.
#[derive(Debug)]
struct LifeProof {
    begun: Instant,
    limit: Duration,
    asked: Instant,
    seen: u64,
    rounds: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProofVerdict {
    Ask,
    Wait,
    Lives,
    /// The process has ended or does not answer.
    Gone,
}

impl LifeProof {
    /// The caller sends the first probe right after this call.
    fn new(now: Instant, limit: Duration, seen: u64) -> Self {
        Self { begun: now, limit, asked: now, seen, rounds: 0 }
    }

    /// `acknowledgements` is the number received until now, or `None` if the connection is closed.
    fn check(&mut self, now: Instant, acknowledgements: Option<u64>) -> ProofVerdict {
        let Some(acknowledgements) = acknowledgements else { return ProofVerdict::Gone };
        if acknowledgements != self.seen {
            self.seen = acknowledgements;
            self.rounds += 1;
            if self.rounds >= PROOF_ROUNDS {
                return ProofVerdict::Lives;
            }
        } else if now - self.begun >= self.limit {
            return ProofVerdict::Gone;
        } else if now - self.asked < ASK_PERIOD {
            return ProofVerdict::Wait;
        }
        self.asked = now;
        ProofVerdict::Ask
    }
}

/// Repeats `add` until it no longer conflicts with connections to another process with the peer's name. Closes these
/// connections if their process isn't running.
///
/// # Errors
/// The refusal of `add`, or [`Refusal::NameTaken`] if such a process is running.
pub(super) async fn once_free<T>(shared: &EndpointShared, add: impl Fn() -> Result<T, NotAdded>) -> Result<T, Refusal> {
    loop {
        match add() {
            Ok(added) => return Ok(added),
            Err(NotAdded::Refused(refusal)) => return Err(refusal),
            Err(NotAdded::Namesakes(namesakes)) => give_way(shared, namesakes).await?,
        }
    }
}

/// Closes these connections, unless a process at the other end of one is running: then returns [`Refusal::NameTaken`].
async fn give_way(shared: &EndpointShared, namesakes: Vec<Connection>) -> Result<(), Refusal> {
    let limit = PROOF_TIMEOUT.min(shared.config.hello_timeout / 2);
    if let Some(by) = living(&namesakes, limit).await {
        return Err(Refusal::NameTaken { by });
    }
    for connection in namesakes {
        connection.close(CloseCode::REPLACED, "another process of this node has connected");
    }
    Ok(())
}

async fn living(namesakes: &[Connection], limit: Duration) -> Option<MemberId> {
    #[cfg(feature = "testing")]
    for connection in namesakes.iter().filter(|connection| connection.traffic().is_none()) {
        if tokio::time::timeout(limit, connection.is_answered()).await.is_ok_and(|answered| answered) {
            return Some(connection.peer().id);
        }
    }
    let begun = Instant::now();
    let counted = namesakes.iter().filter_map(|connection| Some((connection, connection.traffic()?.acknowledgements)));
    let mut asked: Vec<_> = counted.map(|(one, seen)| (one, LifeProof::new(begun, limit, seen))).collect();
    asked.iter().for_each(|(connection, _)| connection.ask_for_acknowledgement());
    while !asked.is_empty() {
        sleep(CHECK_PERIOD).await;
        let now = Instant::now();
        let mut living = None;
        asked.retain_mut(|(connection, proof)| {
            let open = connection.close_reason().is_none();
            let traffic = connection.traffic().filter(|_| open);
            let verdict = proof.check(now, traffic.map(|traffic| traffic.acknowledgements));
            match verdict {
                ProofVerdict::Ask => connection.ask_for_acknowledgement(),
                ProofVerdict::Lives => living = Some(connection.peer().id),
                ProofVerdict::Wait | ProofVerdict::Gone => {}
            }
            verdict != ProofVerdict::Gone
        });
        if living.is_some() {
            return living;
        }
    }
    None
}

#[cfg(test)]
mod tests;
