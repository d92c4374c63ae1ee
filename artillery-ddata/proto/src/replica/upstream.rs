//! How this member's history relates to its predecessor's, and so to the head's, in the present epoch.

mod acks;
mod incoming;

use self::acks::Acks;
pub(super) use self::incoming::{Incoming, Misplaced, piece_of};
use super::{Context, log::Log};
use crate::{
    Sequence, Timestamp, Version,
    message::{ChunkPart, Partial},
    types::update::Update,
};

pub(super) use self::acks::ack_delay;

#[derive(Clone, Hash, Debug, Default)]
pub(super) struct Upstream {
    /// The predecessor hasn't confirmed yet that it knows the position of our history.
    needs_resume: bool,
    /// Our history is known to be a prefix of the head's in this epoch, so it is never cut again. The head knows this
    /// at once. Another member knows it once its predecessor confirms it or sends the next update, or once a resync
    /// ends.
    is_prefix: bool,
    /// Updates are missing, which the predecessor must send again.
    gap: bool,
    /// The update after our history, if it arrives in pieces.
    incoming: Option<Incoming>,
    /// The last sequence of our history when the epoch opened here; `None`: it is not open here.
    open_upto: Option<Sequence>,
    /// The epoch opens here once our history reaches this sequence, which the predecessor's `open` named.
    open_awaits: Option<Sequence>,
    acks: Acks,
}

impl Upstream {
    /// Resets the state when an epoch or a resync begins. The epoch isn't open here.
    pub(super) fn reset(&mut self, cx: Context<'_>) {
        *self = Self {
            needs_resume: cx.place().predecessor.is_some(),
            is_prefix: cx.place().is_head,
            acks: self.acks.cleared(),
            ..Self::default()
        };
    }

    pub(super) fn is_open(&self) -> bool {
        self.open_upto.is_some()
    }

    pub(super) fn open_upto(&self) -> Option<Sequence> {
        self.open_upto
    }

    pub(super) fn open(&mut self, last: Sequence) {
        self.open_upto = Some(last);
    }

    pub(super) fn await_open(&mut self, upto: Option<Sequence>) {
        self.open_awaits = self.open_awaits.or(upto);
    }

    /// Whether the epoch isn't open here, and our history has reached the sequence at which it opens.
    pub(super) fn may_open(&self, log: &Log) -> bool {
        let last = log.last().sequence;
        !self.is_open() && self.open_awaits.is_some_and(|upto| last >= upto)
    }

    /// Whether, in a durable chain, updates above the watermark may have been committed in earlier epochs (trap 78).
    pub(super) fn awaits_marks(&self, cx: Context<'_>, log: &Log) -> bool {
        let waits = log.is_durable() && !allows!(cx.guards(), SpeakTooSoon);
        waits && self.open_upto.is_none_or(|upto| log.watermark() < upto)
    }

    /// Whether the epoch is open here, and this member's watermark covers every update that was committed in earlier
    /// epochs. Until then a tail answers no version query.
    pub(super) fn answers_queries(&self, cx: Context<'_>, log: &Log) -> bool {
        self.is_open() && !self.awaits_marks(cx, log) || allows!(cx.guards(), AnswerBeforeOpen)
    }

    pub(super) fn is_prefix(&self) -> bool {
        self.is_prefix
    }

    /// Returns whether the history was already known to be a prefix.
    pub(super) fn set_prefix(&mut self) -> bool {
        std::mem::replace(&mut self.is_prefix, true)
    }

    pub(super) fn needs_resume(&self) -> bool {
        self.needs_resume
    }

    pub(super) fn set_needs_resume(&mut self, needs_resume: bool) {
        self.needs_resume = needs_resume;
    }

    pub(super) fn has_gap(&self) -> bool {
        self.gap
    }

    /// Notes that updates are missing. Returns whether that was already known.
    pub(super) fn set_gap(&mut self) -> bool {
        std::mem::replace(&mut self.gap, true)
    }

    pub(super) fn incoming(&self) -> Option<&Incoming> {
        self.incoming.as_ref()
    }

    pub(super) fn partial(&self) -> Option<Partial> {
        self.incoming.as_ref().map(Incoming::partial)
    }

    pub(super) fn drop_incoming(&mut self) {
        self.incoming = None;
    }

    /// The update after our history was appended or buffered.
    pub(super) fn appended(&mut self) {
        (self.gap, self.incoming) = (false, None);
    }

    pub(super) fn in_order(&mut self) {
        (self.needs_resume, self.gap) = (false, false);
    }

    /// Adds a piece of the update after our history. Returns the update once it is whole.
    pub(super) fn add_piece(
        &mut self,
        cx: Context<'_>,
        version: Version,
        part: ChunkPart,
        bytes: &[u8],
    ) -> Result<Option<Update>, Misplaced> {
        let offset = match part {
            ChunkPart::First(outline) => {
                // Pieces of the same version are kept: they may be in flight to the successor.
                if self.incoming.as_ref().is_none_or(|incoming| incoming.version() != version) {
                    self.incoming = Some(Incoming::new(version, outline));
                }
                0
            }
            ChunkPart::Behind(offset) => offset,
        };
        let incoming = self.incoming.as_mut().filter(|incoming| incoming.version() == version);
        let incoming = incoming.ok_or(Misplaced)?;
        let offset = if allows!(cx.guards(), JoinPieces) { incoming.partial().bytes } else { offset };
        incoming.take(offset, bytes)?;
        let whole = self.incoming.take_if(|incoming| incoming.is_whole()).and_then(Incoming::finish);
        self.gap &= whole.is_some();
        Ok(whole)
    }

    /// Whether the acknowledgement of an update must be sent now. Otherwise it is withheld.
    pub(super) fn acknowledges(&mut self, cx: Context<'_>, log: &Log, watermark: Sequence) -> bool {
        let withholds = cx.place().serves() && !cx.place().is_tail && self.is_open();
        !withholds || self.acks.acknowledges(cx.now, log.last().sequence, watermark)
    }

    pub(super) fn acknowledged(&mut self, now: Timestamp) {
        self.acks.sent(now);
    }

    pub(super) fn next_ack(&self) -> Option<Timestamp> {
        self.acks.next_tick()
    }

    /// Whether a withheld acknowledgement must be sent now.
    pub(super) fn ack_is_due(&mut self, now: Timestamp) -> bool {
        self.acks.take_due(now)
    }
}
