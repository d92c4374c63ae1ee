//! Sends the node's renewals.

use std::net::SocketAddr;

use artillery_core::{MemberId, internal::clock};
use artillery_proto::node::NodeInput;

use super::{ControlTask, Done};
use crate::{
    ChainId,
    control::{StorePosition, message::Renewal},
    message::control::{ControlAnswer, ControlCall},
};

impl ControlTask {
    pub(super) fn is_of_a_true_store(&self, from: MemberId, position: Option<&StorePosition>) -> bool {
        let said = self.parts.kept.as_ref().zip(position);
        said.is_none_or(|((place, _), &position)| place.hear(from, position).is_ok())
    }

    pub(super) fn renew(&mut self) {
        if let Some((place, _)) = &self.parts.kept {
            self.parts.node.stands_at(place.position());
        }
        loop {
            let standings = &self.parts.queues.standings;
            let progress = |chain: ChainId| standings.get(&chain).map(|standing| standing.borrow().progress);
            let Some((to, addrs, renewal)) = self.parts.node.poll_renewal(clock::now(), progress) else { return };
            self.ask(to, addrs, renewal);
        }
    }

    fn ask(&mut self, to: MemberId, addrs: Vec<SocketAddr>, renewal: Renewal) {
        let (calls, patience) = (self.parts.calls.clone(), self.parts.patience);
        let histories = self.parts.log.histories();
        self.tasks.spawn(async move {
            let renewed = match calls.ask(to, &addrs, &ControlCall::Renewal(histories.mine(), renewal), patience).await
            {
                // A lease is valid in one history only.
                Ok(ControlAnswer::Renewed(theirs, renewed))
                    if theirs.is_none_or(|theirs| histories.meet(theirs).is_ok()) =>
                {
                    Some(*renewed)
                }
                Ok(ControlAnswer::RolledBack) => return Done::RolledBack,
                Ok(ControlAnswer::OtherHistory(theirs)) => {
                    // The peer answers so to a node that it has left behind.
                    let _ = histories.meet(theirs);
                    None
                }
                Ok(_) => None,
                Err(error) => {
                    tracing::debug!(peer = %to, %error, "a renewal was not answered");
                    None
                }
            };
            Done::Input(Box::new(NodeInput::Renewed { from: to, renewed }))
        });
    }
}
