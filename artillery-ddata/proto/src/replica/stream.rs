//! History on its way down the chain: updates for the successor, and updates from the predecessor.
//!
//! A cursor over the history sends. An update that is too large for one frame goes in pieces, and a member hands on the
//! pieces of an update that is still arriving: so a large value travels on all hops of the chain at the same time.

use super::{
    Halt, Replica, SnapshotReceiver,
    incoming::{Incoming, Misplaced, piece_of},
    links::Cursor,
};
use bytes::Bytes;

use crate::{
    MemberId, Sequence, Timestamp, Version,
    message::{ChainFrame, ChainMessage, Chunk, ChunkPart, MAX_CHUNK, Outline, Partial, Updates},
    types::update::Update,
};

/// The most updates in one frame: their headers must stay far below the limit for headers.
pub(super) const MAX_UPDATES: usize = 4096;

/// A large update, whole or still arriving.
enum LargeUpdate<'a> {
    Whole(&'a Update),
    Incoming(&'a Incoming),
}

impl LargeUpdate<'_> {
    fn version(&self) -> Version {
        match self {
            Self::Whole(update) => update.version,
            Self::Incoming(incoming) => incoming.version(),
        }
    }

    /// The length of the whole update in bytes, also while only a part of it is here.
    fn len(&self) -> u64 {
        match self {
            Self::Whole(update) => update.bytes() as u64,
            Self::Incoming(incoming) => incoming.outline().bytes(),
        }
    }

    fn outline(&self) -> Outline {
        match self {
            Self::Whole(update) => Outline::of(update),
            Self::Incoming(incoming) => incoming.outline().clone(),
        }
    }

    fn piece(&self, at: usize, most: usize) -> Bytes {
        match self {
            Self::Whole(update) => piece_of(update, at, most),
            Self::Incoming(incoming) => incoming.piece(at, most),
        }
    }
}

impl Replica {
    /// The next updates for `to`: as many as fit `room` bytes, but at least one if there is any, or the next piece of a
    /// large one. Before them, how far this member is durable: behind them that would wait for as long as updates come.
    pub(crate) fn poll_updates(&mut self, now: Timestamp, to: MemberId, room: usize) -> Option<ChainFrame> {
        if self.halted.is_some() {
            return None;
        }
        self.poll_mark(to).or_else(|| self.poll_full(to)).or_else(|| self.next_updates(now, to, room))
    }

    fn next_updates(&mut self, now: Timestamp, to: MemberId, room: usize) -> Option<ChainFrame> {
        let config = self.config.clone().filter(|_| self.place.successor == Some(to))?;
        let cursor = self.peers.get(&to).filter(|peer| peer.connected)?.cursor?;
        let (message, next) = self.updates_at(cursor, room).or_else(|| self.piece_at(cursor))?;
        let peer = self.peers.get_mut(&to)?;
        if peer.acknowledged.next() == cursor.next {
            peer.progress = now;
        }
        peer.cursor = Some(next);
        Some(self.frame(&config, message))
    }

    /// Whole updates, up to the first large one.
    fn updates_at(&self, cursor: Cursor, room: usize) -> Option<(ChainMessage, Cursor)> {
        let mut left = room;
        let mut updates = Vec::new();
        for update in self.history.from(cursor.next).take(MAX_UPDATES) {
            let cost = update.cost();
            if (cost > left && !updates.is_empty()) || update.bytes() > self.chunk() {
                break;
            }
            left = left.saturating_sub(cost);
            updates.push(update.clone());
        }
        let next = updates.last()?.version.sequence.next();
        // The backlog may have moved on beyond the cursor.
        let after = self.version_before(updates.first()?.version.sequence);
        Some((ChainMessage::Updates(Updates { watermark: self.watermark, after, updates }), Cursor::at(next)))
    }

    fn version_before(&self, sequence: Sequence) -> Version {
        let before = Sequence(sequence.0.saturating_sub(1));
        self.history.version_at(before).unwrap_or_default()
    }

    /// The next piece of the large update at the cursor, as far as it has arrived.
    fn piece_at(&self, cursor: Cursor) -> Option<(ChainMessage, Cursor)> {
        let large = self.large_at(cursor.next)?;
        let (version, len) = (large.version(), large.len());
        // Pieces that were sent of another update with this sequence don't count.
        let at = cursor.begun.filter(|begun| begun.version == version).map_or(0, |begun| begun.bytes);
        let bytes = large.piece(at as usize, self.chunk());
        if bytes.is_empty() {
            return None;
        }
        let end = at + bytes.len() as u64;
        let begun = Some(Partial { version, bytes: end });
        let next = if end < len { Cursor { begun, ..cursor } } else { Cursor::at(cursor.next.next()) };
        let part = if at == 0 { ChunkPart::First(large.outline()) } else { ChunkPart::Behind(at) };
        let after = self.version_before(version.sequence);
        Some((ChainMessage::Chunk(Chunk { watermark: self.watermark, after, version, part, bytes }), next))
    }

    fn large_at(&self, sequence: Sequence) -> Option<LargeUpdate<'_>> {
        let incoming = || self.incoming.as_ref().filter(|incoming| incoming.version().sequence == sequence);
        let whole = self.history.from(sequence).next().map(LargeUpdate::Whole);
        whole.or_else(|| incoming().map(LargeUpdate::Incoming))
    }

    pub(super) fn chunk(&self) -> usize {
        self.settings.chunk.clamp(1, MAX_CHUNK)
    }

    pub(super) fn receive_updates(&mut self, now: Timestamp, from: MemberId, message: Updates) {
        if self.place.predecessor != Some(from) {
            return;
        }
        let mut in_order = false;
        let held = self.reached().sequence;
        let mut after = message.after;
        for update in message.updates {
            let version = update.version;
            if version.sequence > held {
                if allows!(self.settings.guards, LoseInFlight) && self.place.serves() {
                    self.pass_over(&update);
                }
                if !self.is_next(from, after, version.sequence) {
                    break;
                }
                if let Err(halt) = self.append(update) {
                    return self.halt(halt);
                }
                in_order = true;
            }
            after = version;
        }
        self.received(now, from, in_order, message.watermark);
    }

    /// Mutant: what is missing before an update is taken to be nothing.
    fn pass_over(&mut self, update: &Update) {
        while self.reached().sequence.next() < update.version.sequence {
            let version = Version { sequence: self.reached().sequence.next(), ..update.version };
            let nothing = Update { version, request: None, changes: Default::default(), ..update.clone() };
            if let Err(halt) = self.append(nothing) {
                return self.halt(halt);
            }
        }
    }

    /// Whether the update at `sequence`, which follows `after`, continues our history. If updates are missing before
    /// it, or `after` isn't our last version, the predecessor is asked to compare histories: now, and with each
    /// heartbeat.
    fn is_next(&mut self, from: MemberId, after: Version, sequence: Sequence) -> bool {
        if self.is_clogged() && !allows!(self.settings.guards, QueueAll) {
            return false;
        }
        let reached = self.reached();
        let keeps = |filling: &SnapshotReceiver| !allows!(self.settings.guards, KeepNothing) || filling.has_ended();
        if self.filling.as_ref().is_some_and(|filling| !filling.takes_updates() || !keeps(filling)) {
            return false;
        }
        // Diverged histories may have equal sequences. Appending to another history than the predecessor's would commit
        // one update in place of another (trap 54).
        let continues = after == reached
            || allows!(self.settings.guards, CompareSequences)
            || allows!(self.settings.guards, FollowTooSoon)
            || allows!(self.settings.guards, LoseInFlight);
        let next = reached.sequence.next();
        if sequence > next || (sequence == next && !continues) {
            self.miss(from);
        }
        sequence == next && continues
    }

    /// The last version that has come. During a snapshot it is that of the buffered updates.
    fn reached(&self) -> Version {
        self.filling.as_ref().map_or(self.history.last(), |filling| filling.reached())
    }

    pub(super) fn miss(&mut self, from: MemberId) {
        if !std::mem::replace(&mut self.gap, true) {
            self.due_for(Some(from));
        }
    }

    fn append(&mut self, update: Update) -> Result<(), Halt> {
        match &mut self.filling {
            Some(filling) => filling.keep(update, self.settings.joiner_buffer),
            None => self.apply(update)?,
        }
        self.gap = false;
        self.incoming = None;
        Ok(())
    }

    pub(super) fn receive_chunk(&mut self, now: Timestamp, from: MemberId, chunk: Chunk) {
        if self.place.predecessor != Some(from) {
            return;
        }
        let Chunk { watermark, after, version, part, bytes } = chunk;
        let mut in_order = false;
        self.make_room_for(&part);
        if self.is_next(from, after, version.sequence) {
            match self.take_piece(version, part, &bytes) {
                Ok(None) => self.gap = false,
                Ok(Some(update)) => {
                    if let Err(halt) = self.append(update) {
                        return self.halt(halt);
                    }
                    in_order = true;
                }
                Err(Misplaced) => self.miss(from),
            }
        }
        self.received(now, from, in_order, watermark);
    }

    /// If the joiner has no room for a large update, it doesn't begin it.
    fn make_room_for(&mut self, part: &ChunkPart) {
        if let (Some(filling), ChunkPart::First(outline)) = (&mut self.filling, part) {
            let bytes = usize::try_from(outline.bytes()).unwrap_or(usize::MAX);
            filling.has_room(bytes, self.settings.joiner_buffer);
        }
    }

    /// Takes in a piece of the update behind our history. Returns the update once it is whole.
    fn take_piece(&mut self, version: Version, part: ChunkPart, bytes: &[u8]) -> Result<Option<Update>, Misplaced> {
        let offset = match part {
            ChunkPart::First(outline) => {
                // Pieces of the same version are kept: they may be on their way to the successor.
                if self.incoming.as_ref().is_none_or(|incoming| incoming.version() != version) {
                    self.incoming = Some(Incoming::new(version, outline));
                }
                0
            }
            ChunkPart::Behind(offset) => offset,
        };
        let incoming = self.incoming.as_mut().filter(|incoming| incoming.version() == version);
        let incoming = incoming.ok_or(Misplaced)?;
        let offset = if allows!(self.settings.guards, JoinPieces) { incoming.partial().bytes } else { offset };
        incoming.take(offset, bytes)?;
        Ok(self.incoming.take_if(|incoming| incoming.is_whole()).and_then(Incoming::finish))
    }

    /// Handles what follows from new or repeated updates.
    fn received(&mut self, now: Timestamp, from: MemberId, in_order: bool, watermark: Sequence) {
        if self.filling.is_some() {
            self.due_for(Some(from));
            self.learn_from(now, from, watermark);
            return self.catch_up(now);
        }
        if in_order {
            self.found_prefix(now);
            self.needs_resume = false;
            self.gap = false;
            self.follow_chain_time();
        }
        if in_order {
            self.acknowledge(now, from, watermark);
        } else if !self.gap {
            // The updates were repeated, so the acknowledgement was lost: send it again.
            self.due_for(Some(from));
        }
        self.open_if_caught_up(now);
        self.commit_as_tail(now);
        self.learn_from(now, from, watermark);
    }
}
