//! One resync, message by message: who takes part in it dies between two of them, or the link between them breaks.

use std::fmt::Write as _;

use artillery_proto::{ChainId, MemberId, message::ChainMessage};

use super::{Event, World};
use crate::faults::Fault;

/// What happens, and behind which message of a resync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Boundary {
    /// Behind so many messages between source and joiner, counted from 0.
    pub behind: u64,
    /// What.
    pub end: ResyncEnd,
}

/// How a resync may be ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ResyncEnd {
    /// The source stops, and starts another life later.
    SourceDies,
    /// The joiner does.
    JoinerDies,
    /// Their connection breaks, and comes back later.
    LinkBreaks,
}

/// What source and joiner of the resyncs of the first chain have said to each other, and about it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ResyncCounts {
    /// Parts of snapshots.
    pub parts: u64,
    /// Frames with updates.
    pub updates: u64,
    /// Controls of the joiner, with what it has taken in.
    pub acknowledgements: u64,
    /// Controls of the source.
    pub controls: u64,
    /// Requests for a promotion.
    pub promotions: u64,
    /// Snapshots that a joiner has begun to take in.
    pub begun: u64,
    /// Joiners that came through one.
    pub through: u64,
    /// When it was ended, in virtual nanoseconds.
    pub ended: Option<u64>,
    /// When the chain had all its members after that.
    pub whole: Option<u64>,
}

impl ResyncCounts {
    /// All messages.
    pub const fn messages(&self) -> u64 {
        self.parts + self.updates + self.acknowledgements + self.controls + self.promotions
    }
}

/// How long whoever died stays away, or the link down.
const AWAY: u64 = 400_000_000;

impl World {
    /// Source and joiner of the first chain, if there is a resync.
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
            ChainMessage::Control(_) => counts.controls += 1,
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

    /// Ends it, if it is time, before anything else happens.
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

    /// Whether the chain has all its members again after a resync was ended.
    pub(super) fn watch_boundary(&mut self) {
        let ResyncCounts { ended, whole, .. } = self.counts.resync;
        if ended.is_some_and(|ended| self.now > ended) && whole.is_none() && self.is_settled() {
            let lives = self.members_now(0).into_iter().all(|node| self.nodes[node].is_alive());
            self.counts.resync.whole = lives.then_some(self.now);
        }
    }
}
