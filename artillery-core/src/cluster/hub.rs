//! The members as known to this node, and the event log that readers follow.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use futures_core::Stream;

use super::member::{Member, MemberEvent};
use crate::{
    id::NodeId,
    membership::{MemberState, SwimEvent},
};

const MAX_LOGGED_EVENTS: usize = 1024;

type MembersByNode = BTreeMap<NodeId, Member>;

#[derive(Debug, Default)]
pub(super) struct MemberHub {
    state: Mutex<MemberHubState>,
}

#[derive(Debug, Default)]
struct MemberHubState {
    view: MembersByNode,
    log: VecDeque<MemberEvent>,
    /// Sequence number of the first event in the log.
    first: u64,
    readers: BTreeMap<u64, Option<Waker>>,
    next_reader: u64,
    closed: bool,
}

impl MemberHubState {
    fn end(&self) -> u64 {
        self.first + self.log.len() as u64
    }

    fn push(&mut self, event: MemberEvent) {
        if self.closed {
            return;
        }
        apply(&mut self.view, &event);
        // Readers start at the end of the log, so nothing is kept while there is no reader.
        if self.readers.is_empty() {
            self.first = self.end() + 1;
            self.log.clear();
            return;
        }
        if self.log.len() == MAX_LOGGED_EVENTS {
            self.log.pop_front();
            self.first += 1;
        }
        self.log.push_back(event);
        self.wake();
    }

    fn wake(&mut self) {
        self.readers.values_mut().filter_map(Option::take).for_each(Waker::wake);
    }
}

fn apply(view: &mut MembersByNode, event: &MemberEvent) {
    match event {
        MemberEvent::Joined(member)
        | MemberEvent::Up(member)
        | MemberEvent::Suspect(member)
        | MemberEvent::Down(member)
        | MemberEvent::Left(member)
        | MemberEvent::Payload(member)
        | MemberEvent::Formed(member)
        | MemberEvent::Moved(member) => {
            view.insert(member.id.node, member.clone());
        }
        MemberEvent::SeedRefused { .. } | MemberEvent::Superseded { .. } | MemberEvent::Lagged { .. } => {}
    }
}

impl MemberHub {
    fn lock(&self) -> MutexGuard<'_, MemberHubState> {
        // A poisoned lock is still consistent: no code that holds it can panic halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn members(&self) -> Vec<Member> {
        self.lock().view.values().cloned().collect()
    }

    pub(super) fn member(&self, node: NodeId) -> Option<Member> {
        self.lock().view.get(&node).cloned()
    }

    /// Whether `node` is alive or suspected.
    pub(super) fn is_active(&self, node: NodeId) -> bool {
        let state = self.lock();
        state.view.get(&node).is_some_and(|member| matches!(member.state, MemberState::Alive | MemberState::Suspect))
    }

    pub(super) fn on_event(&self, event: SwimEvent) {
        let mut state = self.lock();
        let event = match event {
            SwimEvent::Joined(member) => MemberEvent::Joined(Member::from_swim(member)),
            SwimEvent::Up(member) => MemberEvent::Up(Member::from_swim(member)),
            SwimEvent::Suspect(member) => MemberEvent::Suspect(Member::from_swim(member)),
            SwimEvent::Down(member) => MemberEvent::Down(Member::from_swim(member)),
            SwimEvent::Left(member) => MemberEvent::Left(Member::from_swim(member)),
            SwimEvent::Payload(member) => {
                let member = Member::from_swim(member);
                let before = state.view.get(&member.id.node).filter(|before| before.id == member.id);
                let formed = before.is_none_or(|before| before.cluster_id != member.cluster_id);
                let said = before.is_none_or(|before| before.payload != member.payload);
                let moved = before.is_some_and(|before| before.addrs != member.addrs);
                if formed {
                    state.push(MemberEvent::Formed(member.clone()));
                }
                if moved {
                    state.push(MemberEvent::Moved(member.clone()));
                }
                if !said {
                    return;
                }
                MemberEvent::Payload(member)
            }
            SwimEvent::Superseded { by } => MemberEvent::Superseded { by },
        };
        state.push(event);
    }

    pub(super) fn push(&self, event: MemberEvent) {
        self.lock().push(event);
    }

    pub(super) fn retain(&self, known: impl Fn(NodeId) -> bool) {
        self.lock().view.retain(|node, _| known(*node));
    }

    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.wake();
    }

    pub(super) fn subscribe(hub: &Arc<Self>) -> MemberEvents {
        let mut state = hub.lock();
        let reader = state.next_reader;
        state.next_reader += 1;
        state.readers.insert(reader, None);
        MemberEvents { reader, next: state.end(), view: state.view.clone(), hub: Arc::clone(hub) }
    }
}

/// A stream of membership changes. It ends after the last event when the node stops.
pub struct MemberEvents {
    hub: Arc<MemberHub>,
    reader: u64,
    next: u64,
    view: MembersByNode,
}

impl MemberEvents {
    /// The members just before the next event, with every earlier event applied. No event reports that a member was
    /// forgotten, so members may be listed that [`Cluster::members`](super::Cluster::members) has dropped.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.view.values()
    }

    /// The next change, or `None` once the node has stopped. Cancel-safe: no event is lost.
    pub async fn next(&mut self) -> Option<MemberEvent> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for MemberEvents {
    type Item = MemberEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<MemberEvent>> {
        let this = self.get_mut();
        let mut state = this.hub.lock();
        if this.next < state.first {
            let missed = state.end() - this.next;
            this.next = state.end();
            this.view = state.view.clone();
            return Poll::Ready(Some(MemberEvent::Lagged { missed }));
        }
        match state.log.get((this.next - state.first) as usize) {
            Some(event) => {
                let event = event.clone();
                this.next += 1;
                apply(&mut this.view, &event);
                Poll::Ready(Some(event))
            }
            None if state.closed => Poll::Ready(None),
            None => {
                state.readers.insert(this.reader, Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl Drop for MemberEvents {
    fn drop(&mut self) {
        self.hub.lock().readers.remove(&self.reader);
    }
}

impl fmt::Debug for MemberEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberEvents").field("next", &self.next).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{
        super::member::{MemberPrefix, wrap},
        *,
    };
    use crate::{ClusterId, Incarnation, MemberId, membership};

    fn member(name: &str, state: MemberState) -> membership::SwimMember {
        membership::SwimMember {
            id: MemberId { node: NodeId::from_name(name), incarnation: Incarnation { store: 1, starts: 1 } },
            name: name.into(),
            addr: ([127, 0, 0, 1], 1).into(),
            payload: Bytes::from_static(b"\0"),
            payload_version: 1,
            state,
        }
    }

    fn read(events: &mut MemberEvents) -> Option<MemberEvent> {
        match Pin::new(events).poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(event) => event,
            Poll::Pending => None,
        }
    }

    #[test]
    fn the_view_is_the_one_before_the_next_event() {
        let hub = Arc::new(MemberHub::default());
        hub.on_event(SwimEvent::Up(member("a", MemberState::Alive)));
        let mut events = MemberHub::subscribe(&hub);
        hub.on_event(SwimEvent::Down(member("a", MemberState::Down)));
        assert_eq!(hub.members()[0].state, MemberState::Down);
        assert_eq!(events.members().next().unwrap().state, MemberState::Alive);
        assert!(matches!(read(&mut events), Some(MemberEvent::Down(_))));
        assert_eq!(events.members().next().unwrap().state, MemberState::Down);
        assert_eq!(read(&mut events), None);
    }

    #[test]
    fn a_slow_reader_is_told_what_it_missed() {
        let hub = Arc::new(MemberHub::default());
        let mut events = MemberHub::subscribe(&hub);
        for _ in 0..MAX_LOGGED_EVENTS + 5 {
            hub.on_event(SwimEvent::Up(member("a", MemberState::Alive)));
        }
        hub.on_event(SwimEvent::Left(member("a", MemberState::Left)));
        assert_eq!(read(&mut events), Some(MemberEvent::Lagged { missed: MAX_LOGGED_EVENTS as u64 + 6 }));
        assert_eq!(events.members().next().unwrap().state, MemberState::Left);
        assert_eq!(read(&mut events), None);
        hub.on_event(SwimEvent::Up(member("b", MemberState::Alive)));
        assert!(matches!(read(&mut events), Some(MemberEvent::Up(_))));
    }

    #[test]
    fn a_late_reader_misses_nothing() {
        let hub = Arc::new(MemberHub::default());
        for _ in 0..3 {
            hub.on_event(SwimEvent::Up(member("a", MemberState::Alive)));
        }
        let mut events = MemberHub::subscribe(&hub);
        assert_eq!(read(&mut events), None);
        hub.on_event(SwimEvent::Suspect(member("a", MemberState::Suspect)));
        assert!(matches!(read(&mut events), Some(MemberEvent::Suspect(_))));
    }

    #[test]
    fn a_formation_and_a_payload_are_told_apart() {
        let hub = Arc::new(MemberHub::default());
        let mut events = MemberHub::subscribe(&hub);
        let say = |id: Option<u128>, payload: &'static str| {
            let payload =
                wrap(&MemberPrefix { cluster_id: id.map(ClusterId), addrs: Vec::new() }, &Bytes::from(payload));
            membership::SwimMember { payload, ..member("a", MemberState::Alive) }
        };
        hub.on_event(SwimEvent::Joined(say(None, "x")));
        assert!(matches!(read(&mut events), Some(MemberEvent::Joined(_))));
        hub.on_event(SwimEvent::Payload(say(Some(1), "x")));
        assert!(matches!(read(&mut events), Some(MemberEvent::Formed(m)) if m.cluster_id == Some(ClusterId(1))));
        assert_eq!(read(&mut events), None);
        hub.on_event(SwimEvent::Payload(say(Some(1), "y")));
        assert!(matches!(read(&mut events), Some(MemberEvent::Payload(m)) if m.payload == "y"));
        assert_eq!(read(&mut events), None);
    }

    #[test]
    fn the_end_is_told_after_the_last_event() {
        let hub = Arc::new(MemberHub::default());
        let mut events = MemberHub::subscribe(&hub);
        hub.on_event(SwimEvent::Up(member("a", MemberState::Alive)));
        hub.close();
        assert!(matches!(read(&mut events), Some(MemberEvent::Up(_))));
        let end = Pin::new(&mut events).poll_next(&mut Context::from_waker(Waker::noop()));
        assert_eq!(end, Poll::Ready(None));
    }
}
