//! Executes the outputs of the node, and sends its renewals.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use artillery_core::MemberId;
use artillery_proto::{
    data_dir::ControlRecord,
    node::{NodeInput, NodeOutput},
    runner::ChainOrder,
};
use tokio::sync::mpsc::error::TrySendError;

use super::{ControlEnd, ControlTask, Done, events};
use crate::{
    ChainConfig, ChainId, Routing,
    control::{Configs, StorePosition, StoreRolledBack, message::Renewal},
    driver::{chain::Ordered, lanes::Lanes},
    message::control::{ControlAnswer, ControlCall},
    offload::offload_in,
};

impl ControlTask {
    pub(super) fn act(&mut self, output: NodeOutput) {
        match output {
            NodeOutput::Order(chain, order) => self.order(chain, order),
            NodeOutput::Lease(lease) => drop(self.parts.queues.leases.send_replace(lease)),
            NodeOutput::Begins(configs) => self.parts.local.update(Routing::of(self.parts.cluster, &configs)),
            NodeOutput::Acts(configs) => self.acts(&configs),
            NodeOutput::RolledBack { to, number } => {
                tracing::error!(node = %to, "the directory of a node is an older copy, or a second one: it is refused");
                self.callers.renewed(to, number, Err(StoreRolledBack(to)));
            }
            NodeOutput::Over => self.end(ControlEnd::Superseded),
            NodeOutput::Left => self.callers.left(),
            NodeOutput::Succeeded { by } => {
                tracing::warn!(%by, "this node's cluster gave way to another one, and this node holds none of its data: it stops");
                self.end(ControlEnd::Superseded);
            }
            NodeOutput::Ready => drop(self.parts.queues.ready.take().map(|ready| ready.send(()))),
            NodeOutput::Event(event) => events::log(self.parts.cluster, event),
            NodeOutput::Keep(configs) => {
                let (me, mode) = (self.parts.me, self.parts.kept.as_ref().map(|(_, mode)| *mode));
                let Some(mode) = mode else { return };
                self.keep(Some(NodeInput::Kept), move |record| record.keep(me, &configs, mode));
            }
            NodeOutput::KeepHeard(_) => {
                // The log's group receives positions that the node doesn't receive.
                if let Some(heard) = self.parts.kept.as_ref().map(|(place, _)| place.all_heard()) {
                    self.keep(None, |record| record.heard.merge(heard));
                }
            }
            NodeOutput::Coordinator(output) => self.act_for_coordinator(output),
        }
    }

    /// Changes the control file, and then passes `then` to the node. Without a directory, does nothing.
    fn keep(&mut self, then: Option<NodeInput>, change: impl FnOnce(&mut ControlRecord) + Send + 'static) {
        let Some((place, _)) = self.parts.kept.clone() else { return };
        offload_in(&mut self.tasks, move || match place.control.change(change) {
            Ok(()) => Done::Kept(then.map(Box::new)),
            Err(error) => Done::Unkept(error),
        });
    }

    /// Sends an order to a chain. The chain's queue has capacity for all pending orders. An order to close is dropped
    /// if the queue is more than half full, since it is repeated.
    fn order(&mut self, chain: ChainId, order: ChainOrder) {
        let lanes = match &order {
            ChainOrder::Enter { config, .. } => self.lanes(config),
            _ => BTreeMap::new(),
        };
        let may_be_lost = matches!(order, ChainOrder::Close { .. });
        let Some(inlets) = self.parts.chains.get(chain) else {
            self.end(ControlEnd::Stopped);
            return;
        };
        if may_be_lost && inlets.orders.capacity() * 2 < inlets.orders.max_capacity() {
            return;
        }
        match inlets.orders.try_send(Ordered { order, lanes }) {
            Ok(()) => {}
            Err(TrySendError::Closed(_)) => self.end(ControlEnd::Stopped),
            Err(TrySendError::Full(_)) => {
                tracing::error!(chain = chain.0, "a chain takes no orders: this node stops acting by the log");
                self.end(ControlEnd::Stopped);
            }
        }
    }

    fn lanes(&self, config: &ChainConfig) -> BTreeMap<MemberId, Lanes> {
        let configs = self.parts.node.configs();
        let others = config.members.iter().map(|member| member.id).filter(|&id| id != self.parts.me);
        let lanes = others.map(|id| {
            let addrs = configs.node(id).map_or(&[][..], |founder| &founder.addrs);
            (id, self.parts.hub.lanes(id.node, addrs))
        });
        lanes.collect()
    }

    fn acts(&mut self, configs: &Arc<Configs>) {
        self.parts.feed.add(configs);
        self.parts.local.update(Routing::of(self.parts.cluster, configs));
        let knows = |node| configs.nodes().any(|founder| founder.id.node == node);
        self.parts.hub.retain(knows);
        self.parts.calls.retain(|node| knows(node) || self.parts.node.has_met(node));
    }

    pub(super) fn is_of_a_true_store(&self, from: MemberId, position: Option<&StorePosition>) -> bool {
        let stated = self.parts.kept.as_ref().zip(position);
        stated.is_none_or(|((place, _), &position)| place.hear(from, position).is_ok())
    }

    pub(super) fn renew(&mut self) {
        if let Some((place, _)) = &self.parts.kept {
            self.parts.node.stands_at(place.position());
        }
        loop {
            let standings = &self.parts.queues.standings;
            let progress = |chain: ChainId| standings.get(&chain).map(|standing| standing.borrow().progress);
            let Some((to, addrs, renewal)) = self.parts.node.poll_renewal(self.parts.local.clock.now(), progress)
            else {
                return;
            };
            self.ask(to, addrs, renewal);
        }
    }

    fn ask(&mut self, to: MemberId, addrs: Vec<SocketAddr>, renewal: Renewal) {
        let (calls, limit) = (self.parts.calls.clone(), self.parts.limit);
        let histories = self.parts.log.histories();
        self.tasks.spawn(async move {
            let renewed = match calls.ask(to, &addrs, &ControlCall::Renewal(histories.mine(), renewal), limit).await {
                // A lease is valid in one history only.
                Ok(ControlAnswer::Renewed(theirs, renewed))
                    if theirs.is_none_or(|theirs| histories.meet(theirs).is_ok()) =>
                {
                    Some(*renewed)
                }
                Ok(ControlAnswer::RolledBack) => return Done::RolledBack,
                Ok(ControlAnswer::OtherHistory(theirs)) => {
                    // This answer shows that this node's history is over.
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
