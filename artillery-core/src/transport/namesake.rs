//! Two processes with one name: the connected process keeps the name while it is running.
//!
//! A peer may send a hello in one incarnation while this endpoint is connected to another incarnation of the same node.
//! Either the connected process has ended and the peer is its successor, or an operator has given one name to two
//! processes. The order of the incarnations does not distinguish these cases. So this endpoint probes the connected
//! process. If the process answers, the endpoint refuses the peer. Otherwise it closes the connections to that process
//! and admits the peer.

use std::{
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::{CloseCode, Connection, registry::NotAdded, shared::EndpointShared};
use crate::{error::Refusal, id::MemberId};

/// A process that has not proved within this time that it is running is treated as ended.
const PROOF_TIMEOUT: Duration = Duration::from_millis(500);

const CHECK_PERIOD: Duration = Duration::from_millis(5);

/// The interval between two probes without an acknowledgement.
const ASK_PERIOD: Duration = Duration::from_millis(50);

/// Number of acknowledgements required. The first may have been in transit when the hello arrived. The second answers a
/// probe sent after the first was received.
const PROOF_ROUNDS: u32 = 2;

/// A process that has been up or connected to other nodes for this long may keep its name against a second process: see
/// [`NameClaim`].
const SETTLED_AFTER: Duration = Duration::from_secs(10);

const TWIN_WARNING_PERIOD: Duration = Duration::from_secs(60);

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

/// Repeats `add` until it does not conflict with a connection to another process of the peer's name.
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

/// Closes these connections, unless a process at the other end of one is running.
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

/// The state of this process when a peer reports that its name is taken.
#[derive(Debug, Clone, Copy)]
struct NameClaim {
    /// Time since the endpoint was opened.
    up: Duration,
    is_formed: bool,
    /// The age of its oldest open connection to another node.
    oldest: Option<Duration>,
}

impl NameClaim {
    /// Whether this process must stop because a third node is connected to the other process of this name. A process
    /// that has been connected to other nodes for a long time continues: the third node met the two in the wrong order.
    fn yields_to_peer(self) -> bool {
        self.oldest.is_none_or(|age| age < SETTLED_AFTER)
    }

    /// Whether this process must stop because it has itself dialled the other process of this name.
    fn yields_to_twin(self) -> bool {
        !self.is_formed || self.up < SETTLED_AFTER
    }
}

/// The processes with this node's name that this endpoint has refused.
#[derive(Debug)]
pub(super) struct Twins {
    begun: Instant,
    /// The process refused last. A refused process stops, so remembering one suffices.
    refused: Mutex<Option<MemberId>>,
    warned: Mutex<Option<Instant>>,
}

impl Twins {
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), refused: Mutex::default(), warned: Mutex::default() }
    }

    fn on_refused(&self, twin: MemberId) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(twin);
    }

    /// Whether to log a warning. A process that restarts repeatedly must not fill the log.
    fn should_warn(&self, now: Instant) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = warned.is_none_or(|last| now - last >= TWIN_WARNING_PERIOD);
        if is_due {
            *warned = Some(now);
        }
        is_due
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

    /// Records and reports that this endpoint refused a peer, if the peer has this node's name.
    pub(super) fn on_twin(&self, refusal: &Refusal, peer: MemberId, addr: SocketAddr) {
        if matches!(refusal, Refusal::Itself(_)) && peer != self.id {
            self.twins.on_refused(peer);
            if self.twins.should_warn(Instant::now()) {
                tracing::warn!(%addr, other = %peer, "another process uses this node's name: give each node its own name");
            }
        }
    }

    /// Handles a peer's refusal of this endpoint. Notifies the service if the refusal proves that the name is taken and
    /// this process must stop.
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
            tracing::warn!(other = ?by, "another process uses this node's name: stop that process");
        }
    }
}

#[cfg(test)]
mod tests;
