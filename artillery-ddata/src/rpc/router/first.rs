//! The first attempt of a call, polled in place by its caller. Most calls need no other attempt, so the state for a
//! longer wait or a retry is created only when needed.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    CallAnswer, Router, Tried, after,
    once::{WRITE_DOUBT_AFTER, may_doubt, patience},
    pick::{Attempts, Pick},
    repeat,
};
use crate::{
    ChainId, Epoch, MemberId, NodeId, Place, Routing,
    api::retry::{NextAttempt, Repeat, RetryState},
    rpc::channel::{CallRoom, Channel, LaneCall, Question},
};

pub(crate) struct First {
    channel: Arc<Channel>,
    call: LaneCall,
    chain: ChainId,
    member: MemberId,
    place: Place,
    epoch: Epoch,
    repeat: Repeat,
    /// The end of polling in place.
    until: Instant,
    told: Instant,
    deadline: Instant,
    /// The outcome of the attempt, if it doesn't end the call.
    tried: Option<Tried>,
}

/// The node that the first attempt goes to, with its channel.
pub(super) struct FirstTarget {
    channel: Arc<Channel>,
    room: CallRoom,
    member: MemberId,
    place: Place,
    epoch: Epoch,
    /// Whether other members could answer too.
    others: bool,
}

impl First {
    pub(super) const fn chain(&self) -> ChainId {
        self.chain
    }

    pub(super) const fn deadline(&self) -> Instant {
        self.deadline
    }
}

impl Router {
    /// The other node to which the request can be sent now. `None` if this node itself should answer, if the request is
    /// large or would have to wait, if another node has to forward it, or if the routing names no member.
    pub(super) fn way(&self, routing: &Routing, question: &Question) -> Option<FirstTarget> {
        match self.pick_by(routing, question, &Attempts::default()) {
            Pick::There { member, answers, place, epoch, others } if member == answers => {
                let channel = self.peers().channels.get(&member.node)?.clone();
                let room = channel.room_now(&question.operation)?;
                Some(FirstTarget { channel, room, member, place, epoch, others })
            }
            Pick::There { .. } | Pick::Here(_) | Pick::NoMember => None,
        }
    }

    /// Sends the first attempt; `None` if the channel is closed.
    pub(super) fn begin(&self, way: FirstTarget, question: Question, timeout: Duration) -> Option<First> {
        let FirstTarget { channel, room, member, place, epoch, others } = way;
        let (chain, repeat) = (question.chain, repeat(&question.operation));
        let now = Instant::now();
        let deadline = after(now, timeout);
        let (until, told) = if may_doubt(&question) {
            (deadline.min(now + WRITE_DOUBT_AFTER), deadline)
        } else {
            let patience = others.then(|| patience(&question, &Attempts::default())).flatten();
            let until = patience.map_or(deadline, |patience| deadline.min(now + patience));
            (until, until)
        };
        let call = channel.begin(room, question, told, until)?;
        if let Some(local) = self.local() {
            local.count_forwarded();
        }
        Some(First { channel, call, chain, member, place, epoch, repeat, until, told, deadline, tried: None })
    }

    /// The answer, if it ends the call. `None`: the call continues in [`await_first`](Self::await_first).
    pub(super) fn poll_first(&self, first: &mut First, context: &mut Context<'_>) -> Poll<Option<CallAnswer>> {
        let Some(outcome) = ready!(first.call.poll(context)) else { return Poll::Ready(None) };
        match self.tried(outcome, first.chain, first.member, first.place) {
            Tried::Answered(answer) if RetryState::new(first.repeat).replied(&answer.reply) == NextAttempt::Done => {
                Poll::Ready(Some(answer))
            }
            tried => {
                first.tried = Some(tried);
                Poll::Ready(None)
            }
        }
    }

    pub(super) async fn await_first(&self, first: Box<First>, question: &Question) -> (Tried, Option<NodeId>) {
        let First { channel, call, chain, member, place, epoch, until, told, tried, .. } = *first;
        let tried = match tried {
            Some(tried) => tried,
            None => {
                let doubts = may_doubt(question).then(|| self.doubts(chain, epoch, member));
                let outcome = channel.outcome(question, call, (until, told), doubts).await;
                self.tried(outcome, chain, member, place)
            }
        };
        (tried, Some(member.node))
    }
}
