//! Two processes with one name: the one that lives keeps it.
//!
//! A peer may say hello in one incarnation while this endpoint is connected with another incarnation of the same node.
//! Either the former process has ended and the peer is its successor, or an operator has given one name to two
//! processes. Which incarnation is the later one doesn't tell. So the former process is asked for a sign of life. If it
//! gives one, the peer is refused. Otherwise its connections are closed, and the peer takes its place.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::{CloseCode, Connection, shared::EndpointShared};
use crate::{error::Refusal, id::MemberId};

/// How long a process is asked for a sign of life.
const PROOF_TIMEOUT: Duration = Duration::from_millis(500);

/// How often the connections are checked.
const CHECK_PERIOD: Duration = Duration::from_millis(5);

/// After so long without an acknowledgement the process is asked once more.
const ASK_PERIOD: Duration = Duration::from_millis(50);

/// The first acknowledgement may have been on its way before the hello came. The second one answers a question that was
/// sent after the first had come.
const PROOF_ROUNDS: u32 = 2;

/// A process that has been connected, or has belonged to a formation, for so long is not the second one of its name.
const SETTLED_AFTER: Duration = Duration::from_secs(10);

/// Whether the process at the other end of a connection lives.
#[derive(Debug)]
struct LifeProof {
    begun: Instant,
    limit: Duration,
    asked: Instant,
    /// Acknowledgements seen so far.
    seen: u64,
    rounds: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProofVerdict {
    Ask,
    Wait,
    Lives,
    /// It has ended, or is as good as dead.
    Gone,
}

impl LifeProof {
    /// Ask right after this.
    fn new(now: Instant, limit: Duration, seen: u64) -> Self {
        Self { begun: now, limit, asked: now, seen, rounds: 0 }
    }

    /// `acknowledgements` are those received so far, `None` if the connection is closed.
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

/// Finds out whether a process at the other end of these connections lives: then the refusal says so. Otherwise closes
/// the connections.
pub(super) async fn give_way(shared: &EndpointShared, namesakes: Vec<Connection>) -> Result<(), Refusal> {
    let limit = PROOF_TIMEOUT.min(shared.config.hello_timeout / 2);
    if let Some(by) = living(&namesakes, limit).await {
        return Err(Refusal::NameTaken { by });
    }
    for connection in namesakes {
        connection.close(CloseCode::REPLACED, "another process of this node has called");
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

/// What a process knows of itself when it hears that its name is taken.
#[derive(Debug, Clone, Copy)]
struct NameClaim {
    /// How long it has run.
    up: Duration,
    is_formed: bool,
    /// The age of its oldest living connection with another node.
    oldest: Option<Duration>,
}

impl NameClaim {
    /// Whether it has to end since a third node has the name's other process as a peer. A process that others have
    /// known for long goes on: the third one has met them in the wrong order, and will be met again.
    fn yields_to_peer(self) -> bool {
        self.oldest.is_none_or(|age| age < SETTLED_AFTER)
    }

    /// Whether it has to end since it has dialled the name's other process itself.
    fn yields_to_twin(self) -> bool {
        !self.is_formed || self.up < SETTLED_AFTER
    }
}

/// Processes with this node's name that this endpoint has refused.
#[derive(Debug)]
pub(super) struct Twins {
    begun: Instant,
    /// The one that was refused last. It ends for that, so one is enough.
    refused: Mutex<Option<MemberId>>,
}

impl Twins {
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), refused: Mutex::default() }
    }

    /// A process with this node's name has dialled this one, and is refused.
    fn on_refused(&self, twin: MemberId) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(twin);
    }

    fn has_refused(&self, twin: MemberId) -> bool {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) == Some(twin)
    }
}

impl EndpointShared {
    fn name_claim(&self) -> NameClaim {
        NameClaim {
            up: self.twins.begun.elapsed(),
            is_formed: self.registry.cluster_id().is_some(),
            oldest: self.registry.oldest_with_node(),
        }
    }

    /// This endpoint refuses a peer that may have its name.
    pub(super) fn on_twin(&self, refusal: &Refusal, peer: MemberId) {
        if matches!(refusal, Refusal::Itself(_)) && peer != self.id {
            self.twins.on_refused(peer);
        }
    }

    /// A peer has refused this endpoint: tells the service if that proves the name taken.
    pub(super) fn on_refusal(&self, refusal: &Refusal) {
        let (by, yields) = match refusal {
            Refusal::NameTaken { by } => (*by, self.name_claim().yields_to_peer()),
            Refusal::Itself(by) if *by != self.id && !self.twins.has_refused(*by) => {
                (*by, self.name_claim().yields_to_twin())
            }
            _ => return,
        };
        if yields {
            self.service.name_taken(by);
        } else {
            tracing::warn!(other = ?by, "another process has this node's name: end it");
        }
    }
}

#[cfg(test)]
mod tests;
