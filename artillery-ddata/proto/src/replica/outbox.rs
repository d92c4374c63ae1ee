//! The outputs of a replica, in order.

use std::collections::VecDeque;

use super::{ReplicaEvent, ReplicaOutput, Token};
use crate::api::{Refusal, Reply};

/// Every part of a replica adds its replies and events here, so their order is that of the steps that cause them.
#[derive(Clone, Hash, Debug, Default)]
pub(super) struct Outbox(VecDeque<ReplicaOutput>);

impl Outbox {
    pub(super) fn reply(&mut self, token: Token, reply: Reply) {
        self.0.push_back(ReplicaOutput::Reply(token, reply));
    }

    pub(super) fn refuse(&mut self, token: Token, refusal: Refusal) {
        self.reply(token, Reply::Refused(refusal));
    }

    pub(super) fn event(&mut self, event: ReplicaEvent) {
        self.0.push_back(ReplicaOutput::Event(event));
    }

    pub(super) fn push(&mut self, output: ReplicaOutput) {
        self.0.push_back(output);
    }

    pub(super) fn pop(&mut self) -> Option<ReplicaOutput> {
        self.0.pop_front()
    }
}
