//! The source of a snapshot: a tail whose joiner needs updates that are no longer kept.

use std::time::Duration;

use bytes::Bytes;

use super::ResyncProgress;
use crate::{
    MemberId, Sequence, Timestamp, Version,
    message::{Partial, SessionEntry, SnapshotContent, SnapshotCursor, SnapshotHeader, SnapshotPart, SnapshotProgress},
    replica::{
        Context, Outbox, ReplicaEvent,
        log::{Log, entries_of, piece_at},
        peers::{Cursor, Peers, SuccessorStream},
    },
    store::{ScanRecord, StoreError},
};

#[derive(Clone, Hash, Debug)]
struct SnapshotSender {
    id: u64,
    to: MemberId,
    beginning: SnapshotHeader,
    sessions: Vec<SessionEntry>,
    /// The value that is being sent in pieces. It is kept so that all pieces are of one version even if the key
    /// changes.
    large: Option<LargeRecord>,
    ended: bool,
    /// The next part to send; `None` until the joiner has reported its position on this link.
    next: Option<NextPart>,
    /// The joiner's last position; `None`: it hasn't begun.
    mark: Option<SnapshotCursor>,
    /// The newest update that the joiner has buffered.
    upto: Sequence,
    /// When the joiner's position last advanced, or sending restarted.
    progress: Timestamp,
    /// The same for the updates sent alongside the snapshot.
    kept: Timestamp,
    sent: ResyncProgress,
}

#[derive(Clone, Hash, Debug)]
enum NextPart {
    Begin,
    At(SnapshotCursor),
    Nothing,
}

/// A record whose value is too large for one part.
#[derive(Clone, Hash, Debug)]
struct LargeRecord {
    /// The key before the record.
    behind: Option<Bytes>,
    record: ScanRecord,
}

/// A part, and the position after it.
struct SentPart {
    at: SnapshotCursor,
    content: SnapshotContent,
    next: NextPart,
}

impl SnapshotSender {
    /// Whether a joiner at this position can't use this snapshot. Before its first part, the joiner ignores a snapshot
    /// for another position. Afterwards, a joiner with a history has ended this snapshot and dropped updates that are
    /// no longer in the backlog.
    fn is_useless_from(&self, said: Version) -> bool {
        match self.mark {
            None => self.beginning.said != said,
            Some(_) => said != Version::NONE && said.sequence >= self.beginning.version.sequence,
        }
    }

    /// Returns to the joiner's last position.
    fn rewind(&mut self) {
        self.go_to(self.mark.clone().map_or(NextPart::Begin, NextPart::At));
    }

    fn go_to(&mut self, next: NextPart) {
        self.next = Some(if self.ended { NextPart::Nothing } else { next });
    }

    /// The large value, if the joiner has some of its pieces according to `mark`.
    fn large_at(&self, mark: &SnapshotCursor) -> Option<&ScanRecord> {
        let large = self.large.as_ref().filter(|large| mark.bytes > 0 && large.behind == mark.behind)?;
        Some(&large.record)
    }
}

#[derive(Clone, Hash, Debug, Default)]
pub(in super::super) struct Source {
    outgoing: Option<SnapshotSender>,
    /// The number of the newest snapshot that was begun for a joiner.
    number: u64,
}

impl Source {
    #[cfg(test)]
    pub(in super::super) fn number(&self) -> u64 {
        self.number
    }

    pub(in super::super) fn is_sending(&self) -> bool {
        self.outgoing.is_some()
    }

    pub(in super::super) fn sent(&self) -> Option<ResyncProgress> {
        self.outgoing.as_ref().map(|outgoing| outgoing.sent)
    }

    pub(in super::super) fn end(&mut self) {
        self.outgoing = None;
    }

    /// Offers a snapshot to a joiner whose position is `said`, because the updates after `said` are no longer kept. A
    /// joiner in the middle of an unknown snapshot is at [`Version::NONE`].
    pub(in super::super) fn offer(
        &mut self,
        cx: Context<'_>,
        log: &Log,
        peers: &mut Peers,
        (to, said): (MemberId, Version),
        out: &mut Outbox,
    ) {
        match &mut self.outgoing {
            None => self.begin(cx, log, peers, (to, said), out),
            Some(outgoing) if outgoing.is_useless_from(said) => {
                self.end();
                self.begin(cx, log, peers, (to, said), out);
            }
            Some(outgoing) if outgoing.next.is_none() => outgoing.rewind(),
            Some(_) => {}
        }
    }

    fn begin(
        &mut self,
        cx: Context<'_>,
        log: &Log,
        peers: &mut Peers,
        (to, said): (MemberId, Version),
        out: &mut Outbox,
    ) {
        let Some(link) = peers.get_mut(Some(to)) else { return };
        link.restart();
        self.number += 1;
        let at = log.watermark();
        let (beginning, sessions) = log.snapshot_header(cx.guards(), said);
        self.outgoing = Some(SnapshotSender {
            id: self.number,
            to,
            beginning,
            sessions,
            large: None,
            ended: false,
            next: Some(NextPart::Begin),
            mark: None,
            upto: at,
            progress: cx.now,
            kept: cx.now,
            sent: ResyncProgress::default(),
        });
        out.event(ReplicaEvent::SnapshotBegun { to, at });
    }

    /// The backlog was trimmed. If the joiner would miss updates, its snapshot is useless, and the joiner is offered
    /// another one after its next control frame.
    pub(in super::super) fn end_if_overtaken(&mut self, log: &Log) {
        let first = log.history().first();
        self.outgoing.take_if(|outgoing| outgoing.upto.next() < first);
    }

    /// The last parts on the old link may be lost, so nothing is sent until the joiner reports its position.
    pub(in super::super) fn link_changed(&mut self, id: MemberId) {
        if let Some(outgoing) = self.outgoing.as_mut().filter(|outgoing| outgoing.to == id) {
            outgoing.next = None;
        }
    }

    /// On lossy links: returns to the joiner's position if that hasn't advanced within `after`.
    pub(in super::super) fn resend(&mut self, now: Timestamp, after: Duration, peers: &mut Peers) {
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
        if let Some(link) = peers.get_mut(Some(outgoing.to)).filter(|link| link.stream().is_following()) {
            link.stream_mut().set_cursor(Some(behind));
        }
    }

    /// Handles the progress of a joiner in the middle of a snapshot. Returns whether the joiner must be offered a new
    /// snapshot, because it is in another one, of an earlier epoch or obsolete.
    pub(in super::super) fn receive_progress(
        &mut self,
        now: Timestamp,
        stream: &mut SuccessorStream,
        progress: &SnapshotProgress,
        partial: Option<Partial>,
    ) -> bool {
        let Some(outgoing) = self.outgoing.as_mut().filter(|outgoing| outgoing.id == progress.id) else {
            stream.set_cursor(None);
            return true;
        };
        outgoing.advance(now, progress);
        // The joiner's buffer begins at the snapshot's first watermark, so updates wait until the joiner has begun the
        // snapshot.
        if progress.hold {
            stream.set_cursor(None);
        } else if progress.missed || !stream.is_following() {
            stream.set_cursor(Some(Cursor::behind(progress.upto, partial)));
        }
        false
    }

    /// The next part of a snapshot for `to`: as many entries as fit into `room` bytes, but at least one, or the next
    /// piece of a large value. A part has at most about [`MAX_CHUNK`](crate::message::MAX_CHUNK) bytes plus the length
    /// of two keys.
    pub(in super::super) fn poll_part(
        &mut self,
        cx: Context<'_>,
        log: &Log,
        to: MemberId,
        room: usize,
    ) -> Result<Option<SnapshotPart>, StoreError> {
        let chunk = cx.settings().chunk();
        let Some(outgoing) = self.outgoing.as_mut().filter(|outgoing| outgoing.to == to) else { return Ok(None) };
        let made = match outgoing.next.clone() {
            None | Some(NextPart::Nothing) => return Ok(None),
            Some(NextPart::Begin) => {
                // The joiner clears its store before it requests the first part.
                let content = SnapshotContent::Begin(outgoing.beginning.clone());
                SentPart { at: SnapshotCursor::default(), content, next: NextPart::Nothing }
            }
            Some(NextPart::At(mark)) => outgoing.part_at(log, &mark, room.min(chunk), chunk)?,
        };
        Ok(Some(outgoing.send(cx.now, log.watermark(), made)))
    }
}

impl SnapshotSender {
    fn advance(&mut self, now: Timestamp, progress: &SnapshotProgress) {
        if self.mark.as_ref().is_none_or(|mark| progress.mark > *mark) {
            self.progress = now;
            self.mark = Some(progress.mark.clone());
        }
        if progress.upto > self.upto {
            self.kept = now;
            self.upto = progress.upto;
        }
        self.ended |= progress.ended;
        self.large.take_if(|large| progress.ended || progress.mark.behind.as_ref() >= Some(&large.record.key));
        if progress.again || progress.ended || self.next.is_none() {
            self.go_to(NextPart::At(progress.mark.clone()));
        }
    }

    fn send(&mut self, now: Timestamp, watermark: Sequence, made: SentPart) -> SnapshotPart {
        let SentPart { at, content, next } = made;
        if self.mark.as_ref().unwrap_or(&SnapshotCursor::default()) == &at {
            self.progress = now;
        }
        self.count(&content);
        self.next = Some(next);
        SnapshotPart { id: self.id, at, watermark, content }
    }

    fn part_at(&mut self, log: &Log, mark: &SnapshotCursor, most: usize, chunk: usize) -> Result<SentPart, StoreError> {
        let from = usize::try_from(mark.sessions).unwrap_or(usize::MAX);
        if let Some(left) = self.sessions.get(from..).filter(|left| !left.is_empty()) {
            let entries = entries_of(left, most);
            let next = SnapshotCursor { sessions: mark.sessions + entries.len() as u64, ..SnapshotCursor::default() };
            let content = SnapshotContent::Sessions(entries);
            return Ok(SentPart { at: mark.clone(), content, next: NextPart::At(next) });
        }
        if let Some(record) = self.large_at(mark) {
            return Ok(piece_of_record(mark, record, chunk));
        }
        let (records, large) = log.records_behind(mark.behind.as_ref(), most, chunk)?;
        if let Some(record) = large.filter(|_| records.is_empty()) {
            let made = piece_of_record(mark, &record, chunk);
            self.large = Some(LargeRecord { behind: mark.behind.clone(), record });
            return Ok(made);
        }
        // Any pieces of a large value that the joiner has here belong to a version that no longer exists.
        let at = SnapshotCursor { bytes: 0, ..mark.clone() };
        let Some(last) = records.last() else {
            return Ok(SentPart { at, content: SnapshotContent::End, next: NextPart::Nothing });
        };
        let next = SnapshotCursor { behind: Some(last.key.clone()), ..at.clone() };
        Ok(SentPart { at, content: SnapshotContent::Records(records), next: NextPart::At(next) })
    }

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

/// The next piece of a large value, and what follows it.
fn piece_of_record(mark: &SnapshotCursor, record: &ScanRecord, chunk: usize) -> SentPart {
    let piece = piece_at(mark, record, chunk);
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
