//! One resync, message by message. Between two messages the source or the joiner dies, or the link between them breaks.

use std::fmt::Write as _;

use artillery_proto::{ChainId, MemberId, message::ChainMessage};

use super::{Event, World};
use crate::faults::Fault;

/// How a resync is ended, and behind which of its messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Boundary {
    /// The number of the message between source and joiner behind which the resync is ended, from 0.
    pub behind: u64,
    /// How it is ended.
    pub end: ResyncEnd,
}

/// A way to end a resync.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ResyncEnd {
    /// The source stops, and starts another incarnation later.
    SourceDies,
    /// The joiner stops, and starts another incarnation later.
    JoinerDies,
    /// Their connection breaks, and comes back later.
    LinkBreaks,
}

/// Counts of the messages between source and joiner in the resyncs of the first chain, and related events.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ResyncCounts {
    /// Parts of snapshots.
    pub parts: u64,
    /// Frames with updates.
    pub updates: u64,
    /// Control frames of the joiner, which acknowledge what it has received.
    pub acknowledgements: u64,
    /// Control frames of the source.
    pub controls: u64,
    /// Requests for a promotion.
    pub promotions: u64,
    /// Snapshots that a joiner has begun to receive.
    pub begun: u64,
    /// Joiners that finished one.
    pub through: u64,
    /// When the resync was ended, in virtual nanoseconds.
    pub ended: Option<u64>,
    /// When the chain had all its members again, in virtual nanoseconds.
    pub whole: Option<u64>,
}

impl ResyncCounts {
    /// The number of all messages.
    pub const fn messages(&self) -> u64 {
        self.parts + self.updates + self.acknowledgements + self.controls + self.promotions
    }
}

/// How long the stopped node stays away, or the link down, in nanoseconds.
const AWAY: u64 = 400_000_000;

impl World {
    /// Source and joiner of the present resync of the first chain.
    fn resync(&self) -> Option<(usize, usize)> {
        let config = self.control.as_ref()?.configs().get(ChainId(0))?;
        let at = |id: MemberId| self.ids.iter().position(|&other| other == id);
        Some((at(config.tail()?)?, at(config.syncing()?)?))
    }

    /// A frame was sent.
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

    /// A promotion was asked for.
    pub(super) fn note_promotion(&mut self, node: usize) {
        let Some((source, joiner)) = self.resync().filter(|_| self.setup.boundary.is_some()) else { return };
        if node == source {
            self.counts.resync.promotions += 1;
            self.end_resync(source, joiner);
        }
    }

    /// Ends the resync, if it has come to the boundary, before any other event.
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

    /// Notes when the chain has all its members again after a resync was ended.
    pub(super) fn watch_boundary(&mut self) {
        let ResyncCounts { ended, whole, .. } = self.counts.resync;
        if ended.is_some_and(|ended| self.now > ended) && whole.is_none() && self.is_settled() {
            let lives = self.members_now(0).into_iter().all(|node| self.nodes[node].is_alive());
            self.counts.resync.whole = lives.then_some(self.now);
        }
    }
}
