//! Test-only: copies of a replica, from which the model checker explores every order of events
//! (docs/adr/0019-model-checking.md).

use std::{fmt, sync::Arc};

use super::{Gate, Replica};
use crate::store::Store;

impl Replica {
    /// A replica in the same state, over a store and behind a gate that are copies of this one's.
    pub(crate) fn fork(&self, store: Arc<dyn Store>, gate: Arc<Gate>) -> Self {
        Self {
            log: self.log.fork(store, gate.clone()),
            reads: self.reads.fork(gate),
            membership: self.membership.clone(),
            upstream: self.upstream.clone(),
            peers: self.peers.clone(),
            head: self.head.clone(),
            source: self.source.clone(),
            joiner: self.joiner.clone(),
            outputs: self.outputs.clone(),
            ..*self
        }
    }

    /// Writes everything that the replica's behaviour depends on, except for its settings, its store, its gate, and
    /// what the log says of its epoch. Two replicas with equal descriptions over equal stores behave alike, as long as
    /// no member joins their chain.
    ///
    /// # Errors
    /// Errors of `out`.
    pub(crate) fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        // Destructures every field, so a new field that is forgotten here doesn't compile.
        let Self {
            membership,
            log,
            upstream,
            peers,
            head,
            reads,
            source,
            joiner,
            promotion,
            // Durations: only a tail with a joiner acts on them. What they report to others is described by the driver
            // ([`Replica::progress`]).
            pace: _,
            outputs,
            next_heartbeat,
        } = self;
        let peers = peers.describe(membership.settings().resend.is_some());
        write!(out, "{:?}", (membership.describe(), log.describe(), upstream, peers, head, reads.describe()))?;
        write!(out, "{:?}", (source, joiner, promotion.describe(), outputs, next_heartbeat))
    }
}

impl Gate {
    /// A gate in the same state, without its counters.
    pub fn fork(&self) -> Self {
        let fork = Self::new(self.chain).with_guards(self.guards());
        fork.serve(self.serving());
        if self.is_held() {
            fork.hold();
        }
        fork.commit(self.watermark());
        fork.lease(self.lease_until());
        fork
    }
}
