//! The source of a snapshot: a tail whose joiner needs history that is no longer kept.
//!
//! A snapshot pins nothing in the store: each part has its keys as they are committed when the part is made
//! (docs/adr/0020-a-snapshot-of-what-is-there.md).

use bytes::Bytes;

use super::{super::Replica, ResyncProgress};
use crate::{
    MemberId, Sequence, Timestamp, Version,
    message::{
        ChainFrame, ChainMessage, Partial, RecordPiece, SessionEntry, SnapshotContent, SnapshotCursor, SnapshotHeader,
        SnapshotPart, SnapshotProgress,
    },
    replica::{ReplicaEvent, links::Cursor},
    store::{ScanRecord, StoreError},
};

/// What a record, or an entry of the table of sessions, counts in a part beside its bytes.
const ENTRY: usize = 96;

/// A snapshot on its way.
#[derive(Clone, Debug)]
pub(in super::super) struct SnapshotSender {
    id: u64,
    to: MemberId,
    beginning: SnapshotHeader,
    sessions: Vec<SessionEntry>,
    /// The value that goes in pieces. It is kept so that all pieces are of one version while the key changes.
    large: Option<LargeRecord>,
    /// The joiner has had the last part.
    ended: bool,
    /// What to send next; `None` until the joiner has told its position on this connection.
    next: Option<NextPart>,
    /// The joiner's last position; `None`: it hasn't begun.
    mark: Option<SnapshotCursor>,
    /// The newest update that the joiner has buffered.
    upto: Sequence,
    /// When the joiner's position last advanced, or sending began anew.
    progress: Timestamp,
    /// The same for the updates beside the snapshot.
    kept: Timestamp,
    sent: ResyncProgress,
}

#[derive(Clone, Debug)]
enum NextPart {
    Begin,
    At(SnapshotCursor),
    Nothing,
}

/// A record whose value is too large for one part.
#[derive(Clone, Debug)]
struct LargeRecord {
    /// The key before it.
    behind: Option<Bytes>,
    record: ScanRecord,
}

/// A part, and what follows it.
struct SentPart {
    at: SnapshotCursor,
    content: SnapshotContent,
    next: NextPart,
}

impl SnapshotSender {
    pub(in super::super) fn sent(&self) -> ResyncProgress {
        self.sent
    }

    /// Whether a joiner at this position can't use this snapshot. Before its first part, the joiner ignores a snapshot for
    /// another position. Afterwards, a joiner with a history has ended this snapshot, and dropped updates that are no longer in
    /// the backlog.
    fn is_useless_from(&self, said: Version) -> bool {
        match self.mark {
            None => self.beginning.said != said,
            Some(_) => said != Version::NONE && said.sequence >= self.beginning.version.sequence,
        }
    }

    /// Goes back to the joiner's last position.
    fn rewind(&mut self) {
        self.go_to(self.mark.clone().map_or(NextPart::Begin, NextPart::At));
    }

    fn go_to(&mut self, next: NextPart) {
        self.next = Some(if self.ended { NextPart::Nothing } else { next });
    }

    /// The large value of which the joiner has some pieces, by its mark.
    fn large_at(&self, mark: &SnapshotCursor) -> Option<&ScanRecord> {
        let large = self.large.as_ref().filter(|large| mark.bytes > 0 && large.behind == mark.behind)?;
        Some(&large.record)
    }
}

impl Replica {
    /// Offers a snapshot to a joiner that stands at `said`, since the history behind that is no longer kept. A joiner
    /// in the middle of an unknown snapshot stands at [`Version::NONE`].
    pub(in super::super) fn offer_snapshot(&mut self, now: Timestamp, to: MemberId, said: Version) {
        if !self.is_open() || self.promotion.is_some() {
            // Before the epoch is open here, our watermark may be below what was committed. A joiner that counts as the
            // tail holds every committed update, so the backlog has what it needs.
            return;
        }
        match &mut self.outgoing {
            None => self.begin_outgoing(now, to, said),
            Some(outgoing) if outgoing.is_useless_from(said) => {
                self.end_outgoing();
                self.begin_outgoing(now, to, said);
            }
            Some(outgoing) if outgoing.next.is_none() => outgoing.rewind(),
            Some(_) => {}
        }
    }

    fn begin_outgoing(&mut self, now: Timestamp, to: MemberId, said: Version) {
        let at = self.watermark;
        let Some(peer) = self.peers.get_mut(&to) else { return };
        // The joiner drops what it held.
        (peer.cursor, peer.cut, peer.acknowledged, peer.held) = (None, None, Sequence::ZERO, Sequence::ZERO);
        self.snapshot_number += 1;
        let (beginning, sessions) = self.snapshot_header(said);
        self.outgoing = Some(SnapshotSender {
            id: self.snapshot_number,
            to,
            beginning,
            sessions,
            large: None,
            ended: false,
            next: Some(NextPart::Begin),
            mark: None,
            upto: at,
            progress: now,
            kept: now,
            sent: ResyncProgress::default(),
        });
        self.event(ReplicaEvent::SnapshotBegun { to, at });
    }

    /// The beginning of a snapshot of what is committed now, and its sessions.
    pub(in super::super) fn snapshot_header(&self, said: Version) -> (SnapshotHeader, Vec<SessionEntry>) {
        let (at, sessions) = (self.watermark, self.sessions.copy());
        let header = SnapshotHeader {
            said,
            version: self.history.version_at(at).unwrap_or_default(),
            epochs: self.history.epochs_at(at),
            chain_time: self.writes.chain_time(),
            sessions: sessions.len() as u64,
        };
        (header, sessions)
    }

    pub(in super::super) fn end_outgoing(&mut self) {
        self.outgoing = None;
    }

    /// The backlog has moved on. If the joiner will miss updates, its snapshot is useless: it is offered another one
    /// after its next control frame.
    pub(in super::super) fn end_outgoing_if_overtaken(&mut self) {
        let first = self.history.first();
        if self.outgoing.as_ref().is_some_and(|outgoing| outgoing.upto.next() < first) {
            self.end_outgoing();
        }
    }

    /// The last parts on the old connection may be lost, so nothing is sent until the joiner tells its position.
    pub(in super::super) fn snapshot_link_changed(&mut self, id: MemberId) {
        if let Some(outgoing) = self.outgoing.as_mut().filter(|outgoing| outgoing.to == id) {
            outgoing.next = None;
        }
    }

    /// On lossy links: goes back to the joiner's position if that hasn't advanced for `after`.
    pub(in super::super) fn rewind_snapshot(&mut self, now: Timestamp, after: std::time::Duration) {
        let Some(outgoing) = &mut self.outgoing else { return };
        if now - outgoing.progress >= after {
            outgoing.progress = now;
            if outgoing.next.is_some() {
                outgoing.rewind();
            }
        }
        if now - outgoing.kept < after {
            return;
        }
        outgoing.kept = now;
        let behind = Cursor::at(outgoing.upto.next());
        if let Some(cursor) = self.peers.get_mut(&outgoing.to).and_then(|peer| peer.cursor.as_mut()) {
            *cursor = behind;
        }
    }

    /// Handles the progress of a joiner in the middle of a snapshot.
    pub(in super::super) fn hear_progress(
        &mut self,
        now: Timestamp,
        from: MemberId,
        progress: &SnapshotProgress,
        partial: Option<Partial>,
    ) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        let Some(outgoing) = self.outgoing.as_mut().filter(|outgoing| outgoing.id == progress.id) else {
            // The joiner is in another snapshot: one of an earlier epoch, or one that was overtaken.
            peer.cursor = None;
            return self.offer_snapshot(now, from, Version::NONE);
        };
        let known = outgoing.mark.as_ref();
        if known.is_none_or(|mark| progress.mark > *mark) {
            outgoing.progress = now;
        }
        if progress.upto > outgoing.upto {
            outgoing.kept = now;
        }
        outgoing.upto = outgoing.upto.max(progress.upto);
        if known.is_none_or(|mark| progress.mark > *mark) {
            outgoing.mark = Some(progress.mark.clone());
        }
        outgoing.ended |= progress.ended;
        outgoing.large.take_if(|large| progress.ended || progress.mark.behind.as_ref() >= Some(&large.record.key));
        if progress.again || progress.ended || outgoing.next.is_none() {
            outgoing.go_to(NextPart::At(progress.mark.clone()));
        }
        // The joiner's buffer begins behind the snapshot, so updates wait until the joiner has begun it.
        if progress.hold {
            peer.cursor = None;
        } else if progress.missed || peer.cursor.is_none() {
            peer.cursor = Some(Cursor::behind(progress.upto, partial));
        }
    }

    /// The next part of a snapshot for `to`: at most about `room` bytes, and at most
    /// [`MAX_CHUNK`](crate::message::MAX_CHUNK) and the length of two keys. Ask for it after controls and updates, when
    /// the link has room.
    pub(crate) fn poll_snapshot(&mut self, now: Timestamp, to: MemberId, room: usize) -> Option<ChainFrame> {
        let config = self.config.clone().filter(|_| self.halted.is_none())?;
        self.peers.get(&to).filter(|peer| peer.connected)?;
        let outgoing = self.outgoing.as_ref().filter(|outgoing| outgoing.to == to)?;
        let (id, next) = (outgoing.id, outgoing.next.clone()?);
        let made = match next {
            NextPart::Nothing => return None,
            NextPart::Begin => {
                // The joiner clears its store before it asks for the first part.
                let content = SnapshotContent::Begin(outgoing.beginning.clone());
                SentPart { at: SnapshotCursor::default(), content, next: NextPart::Nothing }
            }
            NextPart::At(mark) => match self.part_at(&mark, room) {
                Ok(made) => made?,
                Err(error) => {
                    self.halt(error.into());
                    return None;
                }
            },
        };
        let SentPart { at, content, next } = made;
        let outgoing = self.outgoing.as_mut()?;
        if outgoing.mark.as_ref().unwrap_or(&SnapshotCursor::default()) == &at {
            outgoing.progress = now;
        }
        outgoing.count(&content);
        outgoing.next = Some(next);
        let part = SnapshotPart { id, at, watermark: self.watermark, content };
        Some(self.frame(&config, ChainMessage::Snapshot(part)))
    }

    fn part_at(&mut self, mark: &SnapshotCursor, room: usize) -> Result<Option<SentPart>, StoreError> {
        let most = room.min(self.chunk());
        let Some(outgoing) = &self.outgoing else { return Ok(None) };
        let from = usize::try_from(mark.sessions).unwrap_or(usize::MAX);
        if let Some(left) = outgoing.sessions.get(from..).filter(|left| !left.is_empty()) {
            let entries = entries_of(left, most);
            let next = SnapshotCursor { sessions: mark.sessions + entries.len() as u64, ..SnapshotCursor::default() };
            let content = SnapshotContent::Sessions(entries);
            return Ok(Some(SentPart { at: mark.clone(), content, next: NextPart::At(next) }));
        }
        if let Some(record) = outgoing.large_at(mark) {
            return Ok(Some(self.piece_of_record(mark, record)));
        }
        self.records_at(mark, most).map(Some)
    }

    fn records_at(&mut self, mark: &SnapshotCursor, most: usize) -> Result<SentPart, StoreError> {
        let (records, large) = self.records_behind(mark.behind.as_ref(), most)?;
        if let Some(record) = large.filter(|_| records.is_empty()) {
            let made = self.piece_of_record(mark, &record);
            if let Some(outgoing) = &mut self.outgoing {
                outgoing.large = Some(LargeRecord { behind: mark.behind.clone(), record });
            }
            return Ok(made);
        }
        // If the joiner has pieces of a large value here, they are of a version that is gone.
        let at = SnapshotCursor { bytes: 0, ..mark.clone() };
        let Some(last) = records.last() else {
            return Ok(SentPart { at, content: SnapshotContent::End, next: NextPart::Nothing });
        };
        let next = SnapshotCursor { behind: Some(last.key.clone()), ..at.clone() };
        Ok(SentPart { at, content: SnapshotContent::Records(records), next: NextPart::At(next) })
    }

    /// The records behind a key, as they are committed now, and the large one that ends them. The store keeps of every key what
    /// a reader at the watermark needs, and no update is committed while a part is made.
    pub(in super::super) fn records_behind(
        &self,
        behind: Option<&Bytes>,
        most: usize,
    ) -> Result<(Vec<ScanRecord>, Option<ScanRecord>), StoreError> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        let from = behind.map_or_else(Vec::new, |behind| [behind, &[0][..]].concat());
        for record in self.store.scan(self.chain, &from, self.watermark) {
            let record = record?;
            let Some(value) = &record.held.value else { continue };
            if value.len() > self.chunk() {
                return Ok((records, Some(record)));
            }
            let cost = ENTRY + record.key.len() + value.len();
            if bytes + cost > most && !records.is_empty() {
                break;
            }
            bytes += cost;
            records.push(record);
        }
        Ok((records, None))
    }

    /// The next piece of a large value, and what follows it.
    fn piece_of_record(&self, mark: &SnapshotCursor, record: &ScanRecord) -> SentPart {
        let piece = self.piece_at_mark(mark, record);
        let start = if mark.bytes < u64::from(piece.len) { mark.bytes } else { 0 };
        let end = start + piece.bytes.len() as u64;
        let next = if end < u64::from(piece.len) {
            SnapshotCursor { bytes: end, ..mark.clone() }
        } else {
            SnapshotCursor { behind: Some(record.key.clone()), bytes: 0, ..*mark }
        };
        let at = SnapshotCursor { bytes: start, ..mark.clone() };
        SentPart { at, content: SnapshotContent::Piece(piece), next: NextPart::At(next) }
    }

    /// The next piece of a large value; the first one, if the mark is behind its end. A joiner knows whether its pieces are
    /// of the same version.
    pub(in super::super) fn piece_at_mark(&self, mark: &SnapshotCursor, record: &ScanRecord) -> RecordPiece {
        let value = record.held.value.clone().unwrap_or_default();
        let start = usize::try_from(mark.bytes).ok().filter(|&start| start < value.len()).unwrap_or_default();
        let end = value.len().min(start.saturating_add(self.chunk()));
        RecordPiece {
            key: record.key.clone(),
            version: record.held.version,
            len: u32::try_from(value.len()).unwrap_or(u32::MAX),
            bytes: value.slice(start..end),
        }
    }
}

impl SnapshotSender {
    fn count(&mut self, content: &SnapshotContent) {
        match content {
            SnapshotContent::Records(records) => {
                self.sent.records += records.len() as u64;
                let len = |record: &ScanRecord| record.key.len() + record.held.value.as_ref().map_or(0, Bytes::len);
                self.sent.bytes += records.iter().map(len).sum::<usize>() as u64;
            }
            SnapshotContent::Piece(piece) => self.sent.bytes += piece.bytes.len() as u64,
            _ => {}
        }
    }
}

/// The first entries, up to `most` bytes together, but at least one.
pub(in super::super) fn entries_of(left: &[SessionEntry], most: usize) -> Vec<SessionEntry> {
    let taken = |entry: &SessionEntry| match entry {
        SessionEntry::Record { taken: Some(taken), .. } => taken.len(),
        _ => 0,
    };
    let mut bytes = 0;
    let fits = left.iter().take_while(|entry| {
        bytes += ENTRY + taken(entry);
        bytes <= most
    });
    let count = fits.count().max(1);
    left[..count].to_vec()
}
