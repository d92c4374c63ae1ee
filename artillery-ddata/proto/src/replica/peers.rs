//! The other members of the configuration, as known to this one.

mod link;
mod stream;

use std::collections::{BTreeMap, BTreeSet};

pub(super) use self::{
    link::PeerLink,
    stream::{Cursor, SuccessorStream},
};
use super::{Context, log::Log, unhashed::Unhashed};
use crate::{
    MemberId, Role, Sequence, Timestamp, Version,
    api::Refusal,
    message::{ChainMessage, Fullness},
    types::update::KeyChange,
};

/// The number of heartbeats for which a member's report that it is full is valid. If the report that revokes it is
/// lost, the refusal of writes still ends.
const FULLNESS_HEARTBEATS: u32 = 4;

#[derive(Clone, Hash, Debug, Default)]
pub(super) struct Peers {
    /// Every node with a link, whether or not it is a member.
    connected: BTreeSet<MemberId>,
    links: BTreeMap<MemberId, PeerLink>,
    /// The linked peers in the order of sending. A write waits until the successor has the update and until the head
    /// knows of its commit, so these two are first. Follows from the configuration.
    order: Unhashed<Vec<MemberId>>,
    /// When the latest report about fullness expires. The reports themselves are hashed.
    full_until: Unhashed<Timestamp>,
}

impl Peers {
    /// Replaces the links with new ones to the other members of the entered configuration.
    pub(super) fn enter(&mut self, cx: Context<'_>) {
        let links = cx.others().map(|id| (id, PeerLink::new(self.connected.contains(&id))));
        self.links = links.collect();
        let first = [cx.place().successor, cx.place().head];
        let others = self.links.keys().filter(|&&id| !first.contains(&Some(id)));
        let first = first.into_iter().flatten().filter(|&id| self.contains(id));
        *self.order = first.chain(others.copied()).collect();
    }

    pub(super) fn clear(&mut self) {
        self.links.clear();
        self.order.clear();
    }

    pub(super) fn contains(&self, id: MemberId) -> bool {
        self.links.contains_key(&id)
    }

    pub(super) fn get(&self, id: Option<MemberId>) -> Option<&PeerLink> {
        self.links.get(&id?)
    }

    pub(super) fn get_mut(&mut self, id: Option<MemberId>) -> Option<&mut PeerLink> {
        self.links.get_mut(&id?)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (MemberId, &PeerLink)> {
        self.links.iter().map(|(&id, link)| (id, link))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut PeerLink> {
        self.links.values_mut()
    }

    /// The peers in the order of sending.
    pub(super) fn in_order(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.order.iter().copied()
    }

    /// Makes a control frame to this peer due.
    pub(super) fn due(&mut self, id: Option<MemberId>) {
        if let Some(link) = self.get_mut(id) {
            link.due();
        }
    }

    pub(super) fn connected(&mut self, id: MemberId) {
        self.connected.insert(id);
        if let Some(link) = self.get_mut(Some(id)) {
            link.connected();
        }
    }

    pub(super) fn disconnected(&mut self, id: MemberId) {
        self.connected.remove(&id);
        if let Some(link) = self.get_mut(Some(id)) {
            link.disconnected();
        }
    }

    /// The highest watermark that a serving member has announced. A joiner's watermark commits nothing (trap 87).
    pub(super) fn highest_watermark(&self, cx: Context<'_>) -> Option<Sequence> {
        let all = allows!(cx.guards(), LearnFromJoiners);
        let serving = self.links.iter().filter(|&(&id, _)| all || cx.role_of(id) == Some(Role::Serving));
        serving.map(|(_, link)| link.watermark()).max()
    }

    /// The updates above `keep` were dropped, which invalidates the durable marks that peers reported for them.
    pub(super) fn cut(&mut self, keep: Sequence) {
        self.links.values_mut().for_each(|link| link.cut(keep));
    }

    /// Treats a risen watermark as the acknowledgement of a serving successor, which holds every update that it covers.
    ///
    /// A joiner may not have every committed update. If the watermark acknowledged updates for a joiner, the joiner
    /// would be promoted without them (trap 5).
    pub(super) fn acknowledge_by_watermark(&mut self, cx: Context<'_>, watermark: Sequence) {
        let place = cx.place();
        let serves = place.serves() && (!place.is_tail || allows!(cx.guards(), AcknowledgeForJoiner));
        if let Some(link) = self.get_mut(place.successor.filter(|_| serves)) {
            link.stream_mut().acknowledge(cx.now, watermark);
        }
    }

    /// The last sequence that is durable at every member from the head to this one; `None`: the members keep no
    /// journals.
    pub(super) fn durable_mark(&self, cx: Context<'_>, log: &Log) -> Option<Sequence> {
        let held = log.durable()?;
        let before = cx.place().predecessor.filter(|_| !allows!(cx.guards(), IgnoreMarks));
        let mark = before.map(|id| self.get(Some(id)).map_or(Sequence::ZERO, PeerLink::mark));
        Some(mark.map_or(held, |mark| mark.min(held)))
    }

    /// The last sequence that the joiner behind this tail has acknowledged or, in a durable chain, made durable.
    pub(super) fn held_by(&self, log: &Log, joiner: MemberId) -> Sequence {
        let held = |link: &PeerLink| if log.is_durable() { link.held() } else { link.stream().acknowledged() };
        self.get(Some(joiner)).map_or(Sequence::ZERO, held)
    }

    /// This member's durable mark for `to`, if it has changed.
    pub(super) fn poll_mark(
        &mut self,
        cx: Context<'_>,
        log: &Log,
        to: MemberId,
        is_sending_snapshot: bool,
    ) -> Option<ChainMessage> {
        let journal = log.journal()?;
        let version = if cx.place().successor == Some(to) {
            if is_sending_snapshot {
                // A joiner in the middle of a snapshot has no history to which a mark could belong. On a narrow link, a
                // mark with each update would leave the snapshot no capacity.
                return None;
            }
            // Cap the mark at the sent updates: a mark that arrives before its updates is ignored.
            let sent = self.get(Some(to))?.stream().cursor()?.next;
            let mark = self.durable_mark(cx, log)?.min(Sequence(sent.0.saturating_sub(1)));
            log.history().version_at(mark)?
        } else if cx.place().predecessor == Some(to) && cx.place().is_syncing() {
            journal.held()
        } else {
            return None;
        };
        let is_news = self.get_mut(Some(to))?.report_mark(version);
        (is_news && version != Version::NONE).then_some(ChainMessage::Durable(version))
    }

    /// Another member reported its durable mark. `version` is in this member's history.
    pub(super) fn receive_mark(&mut self, cx: Context<'_>, from: MemberId, version: Version) {
        let Some(link) = self.links.get_mut(&from) else { return };
        if cx.place().predecessor == Some(from) {
            link.raise_mark(version.sequence);
        } else if cx.place().successor == Some(from) {
            link.raise_held(version.sequence);
        }
    }

    /// The report to the head of whether this member is full, if that has changed.
    pub(super) fn poll_full(&mut self, cx: Context<'_>, log: &Log, to: MemberId) -> Option<ChainMessage> {
        if cx.place().head != Some(to) {
            return None;
        }
        let fullness = log.fullness(&cx);
        self.get_mut(Some(to))?.report_fullness(fullness).then_some(ChainMessage::Full(fullness))
    }

    /// Makes a full member report again: runs with each heartbeat.
    pub(super) fn repeat_full(&mut self, cx: Context<'_>, log: &Log) {
        if log.fullness(&cx) != Fullness::Nothing
            && let Some(head) = self.get_mut(cx.place().head)
        {
            head.forget_reported_fullness();
        }
    }

    pub(super) fn receive_full(&mut self, cx: Context<'_>, from: MemberId, fullness: Fullness) {
        let until = cx.now + cx.settings().heartbeat * FULLNESS_HEARTBEATS;
        if let Some(link) = self.links.get_mut(&from) {
            link.set_fullness(fullness, until);
            *self.full_until = until;
        }
    }

    /// Refuses changes that would add a value while a serving member is full: that member would have no disk or memory
    /// space for it (docs/DESIGN.md §8). Deletes, removals, renewals and reads continue (trap 106).
    pub(super) fn check_space(&self, cx: Context<'_>, log: &Log, changes: &[KeyChange]) -> Result<(), Refusal> {
        let adds = |change: &KeyChange| change.value.is_some() || change.renews && allows!(cx.guards(), RefuseRenewals);
        if !changes.iter().any(adds) || allows!(cx.guards(), FillFullDisks) {
            return Ok(());
        }
        let mine = Some((cx.me(), log.fullness(&cx))).filter(|&(_, mine)| mine != Fullness::Nothing);
        let other = |id| Some((id, self.get(Some(id))?.fullness(cx.now)?));
        let others = || cx.serving().filter(|_| cx.now < *self.full_until).find_map(other);
        match mine.or_else(others) {
            Some((member, Fullness::Disk)) => Err(Refusal::DiskFull { member }),
            Some((member, Fullness::Memory)) => Err(Refusal::MemoryFull { member }),
            Some((_, Fullness::Nothing)) | None => Ok(()),
        }
    }

    pub(super) fn barrier_ordered(&mut self, id: MemberId, sequence: Sequence) {
        if let Some(link) = self.get_mut(Some(id)) {
            link.barrier_ordered(sequence);
        }
    }

    pub(super) fn want_barriers(&self) -> bool {
        self.links.values().any(PeerLink::wants_barrier)
    }

    /// The peers that request a barrier of this head.
    pub(super) fn wanting_barriers(&self) -> Vec<MemberId> {
        self.iter().filter(|(_, link)| link.wants_barrier()).map(|(id, _)| id).collect()
    }
}
