//! Interrupts one resync between two of its messages: the source or the joiner dies, or the link between them breaks.

use std::fmt::Write as _;

use artillery_proto::{ChainId, MemberId, message::ChainMessage};

use super::{Event, World};
use crate::faults::Fault;

/// Where and how a resync is interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Boundary {
    /// The number, from 0, of the message between source and joiner after which the resync is interrupted.
    pub behind: u64,
    /// The interruption.
    pub end: ResyncEnd,
}

/// The kind of an interruption.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ResyncEnd {
    /// The source stops, and later starts another incarnation.
    SourceDies,
    /// The joiner stops, and later starts another incarnation.
    JoinerDies,
    /// The connection between them breaks, and recovers later.
    LinkBreaks,
}

/// Counts of the messages between source and joiner in resyncs of the first chain, and of related events.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ResyncCounts {
    /// Snapshot parts.
    pub parts: u64,
    /// Frames with updates, or with a piece of one.
    pub updates: u64,
    /// Control frames of the joiner, which acknowledge the data received.
    pub acknowledgements: u64,
    /// Control frames of the source, and `Durable` and `Full` messages of either node.
    pub controls: u64,
    /// Requests to promote the joiner.
    pub promotions: u64,
    /// Snapshots begun by joiners.
    pub begun: u64,
    /// Snapshots completed by joiners.
    pub through: u64,
    /// When the resync was interrupted, in virtual nanoseconds.
    pub ended: Option<u64>,
    /// When the chain was complete again after the interruption, in virtual nanoseconds.
    pub whole: Option<u64>,
}

impl ResyncCounts {
    /// Number of messages of all kinds.
    pub const fn messages(&self) -> u64 {
        self.parts + self.updates + self.acknowledgements + self.controls + self.promotions
    }
}

/// How long the stopped node stays down, or the link broken, in nanoseconds.
const AWAY: u64 = 400_000_000;

impl World {
    fn resync(&self) -> Option<(usize, usize)> {
        let config = self.control.as_ref()?.configs().get(ChainId(0))?;
        let at = |id: MemberId| self.ids.iter().position(|&other| other == id);
        Some((at(config.tail()?)?, at(config.syncing()?)?))
    }

    pub(super) fn note_frame(&mut self, from: usize, to: usize, message: &ChainMessage) {
        let Some((source, joiner)) = self.resync().filter(|_| self.setup.boundary.is_some()) else { return };
        let counts = &mut self.counts.resync;
        match message {
            _ if (from, to) != (source, joiner) && (from, to) != (joiner, source) => return,
            ChainMessage::Snapshot(_) => counts.parts += 1,
            ChainMessage::Updates(_) | ChainMessage::Chunk(_) => counts.updates += 1,
            ChainMessage::Control(_) if from == joiner => counts.acknowledgements += 1,
            ChainMessage::Control(_) | ChainMessage::Durable(_) | ChainMessage::Full(_) => counts.controls += 1,
        }
        self.end_resync(source, joiner);
    }

    pub(super) fn note_promotion(&mut self, node: usize) {
        let Some((source, joiner)) = self.resync().filter(|_| self.setup.boundary.is_some()) else { return };
        if node == source {
            self.counts.resync.promotions += 1;
            self.end_resync(source, joiner);
        }
    }

    /// Interrupts the resync at once when it reaches the boundary.
    fn end_resync(&mut self, source: usize, joiner: usize) {
        let Some(Boundary { behind, end }) = self.setup.boundary else { return };
        let counts = &mut self.counts.resync;
        if counts.ended.is_some() || counts.messages() <= behind {
            return;
        }
        counts.ended = Some(self.now);
        self.queue.push(self.now, Event::Boundary { end, source, joiner, over: false });
        self.queue.push(self.now + AWAY, Event::Boundary { end, source, joiner, over: true });
    }

    pub(super) fn boundary(&mut self, end: ResyncEnd, source: usize, joiner: usize, over: bool) {
        self.trace.line(self.now, |out| write!(out, "{end:?}: source n{source}, joiner n{joiner}, over: {over}"));
        match end {
            ResyncEnd::SourceDies if over => self.restart_life(source),
            ResyncEnd::JoinerDies if over => self.restart_life(joiner),
            ResyncEnd::SourceDies => self.stop_life(source),
            ResyncEnd::JoinerDies => self.stop_life(joiner),
            ResyncEnd::LinkBreaks => self.struck(Fault::Break(source, joiner), !over),
        }
    }

    pub(super) fn watch_boundary(&mut self) {
        let ResyncCounts { ended, whole, .. } = self.counts.resync;
        if ended.is_some_and(|ended| self.now > ended) && whole.is_none() && self.is_settled() {
            let lives = self.members_now(0).into_iter().all(|node| self.nodes[node].is_alive());
            self.counts.resync.whole = lives.then_some(self.now);
        }
    }
}
