//! Test-only: copies of a replica, from which the model checker explores every order of events
//! (docs/adr/0019-model-checking.md).

use std::{fmt, sync::Arc};

use super::{Gate, Replica};
use crate::{Timestamp, store::Store};

impl Replica {
    /// A replica in the same state, over a store and behind a gate that are copies of this one's.
    pub(crate) fn fork(&self, store: Arc<dyn Store>, gate: Arc<Gate>) -> Self {
        Self {
            me: self.me,
            chain: self.chain,
            settings: self.settings.clone(),
            store: self.store.fork(store, gate.clone()),
            gate,
            config: self.config.clone(),
            newest: self.newest,
            place: self.place,
            history: self.history.clone(),
            watermark: self.watermark,
            lease: self.lease,
            open_upto: self.open_upto,
            open_awaits: self.open_awaits,
            connected: self.connected.clone(),
            peers: self.peers.clone(),
            needs_resume: self.needs_resume,
            is_prefix: self.is_prefix,
            gap: self.gap,
            incoming: self.incoming.clone(),
            promotion: self.promotion,
            outgoing: self.outgoing.clone(),
            snapshot_number: self.snapshot_number,
            filling: self.filling.clone(),
            past: self.past.clone(),
            snapshot_seen: self.snapshot_seen,
            resyncs: self.resyncs,
            writes: self.writes.clone(),
            assembling: self.assembling.clone(),
            sessions: self.sessions.clone(),
            reads: self.reads.clone(),
            snapshots: self.snapshots.clone(),
            watchers: self.watchers.clone(),
            outputs: self.outputs.clone(),
            next_heartbeat: self.next_heartbeat,
            halted: self.halted.clone(),
            closing: self.closing,
            pace: self.pace,
            joiner_heard: self.joiner_heard,
            acks: self.acks,
            journal: self.journal.clone(),
            full_until: self.full_until,
            unreplicated: self.unreplicated.clone(),
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
            me,
            chain,
            settings: _,
            store,
            gate: _,
            config,
            newest,
            place,
            history,
            watermark,
            lease,
            open_upto,
            open_awaits,
            connected,
            peers,
            needs_resume,
            is_prefix,
            gap,
            incoming,
            promotion,
            outgoing,
            snapshot_number,
            filling,
            past,
            snapshot_seen,
            resyncs,
            writes,
            assembling,
            sessions,
            reads,
            snapshots,
            watchers,
            outputs,
            next_heartbeat,
            halted,
            closing,
            // Durations: only a tail with a joiner acts on them. What they report to others is described by the driver
            // ([`Replica::progress`]).
            pace: _,
            joiner_heard: _,
            acks,
            journal,
            // The words of the peers say more.
            full_until: _,
            // Only reports show it.
            unreplicated: _,
        } = self;
        // The place follows from the configuration.
        write!(out, "{:?}", (me.node, chain, config.as_ref().map(|config| config.epoch), newest, place.role))?;
        write!(out, "{:?}", (history, watermark, lease, open_upto, open_awaits, connected))?;
        for (id, peer) in peers {
            // When it last made progress matters to resends alone.
            let progress = self.settings.resend.map_or(Timestamp::ZERO, |_| peer.progress);
            let mut peer = peer.clone();
            peer.progress = progress;
            write!(out, "{:?}", (id, peer))?;
        }
        write!(out, "{:?}", (needs_resume, is_prefix, gap, incoming, promotion, outgoing, snapshot_number, filling))?;
        write!(out, "{:?}", (snapshot_seen, resyncs, writes, assembling, sessions, reads, snapshots, watchers))?;
        write!(out, "{:?}", (outputs, next_heartbeat, halted, closing, acks, store.is_behind(), past.len()))?;
        journal.as_ref().map_or(Ok(()), |journal| write!(out, "{journal:?}"))
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
