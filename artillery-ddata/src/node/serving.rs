//! Whether a node is ready, and whether it may serve now.

use std::{
    future::{Future, pending, poll_fn},
    sync::Arc,
    task::Poll,
};

use artillery_core::internal::watch;
use bytes::Bytes;
use tokio::sync::oneshot;

use super::data::Data;
use crate::{
    ChainConfig, ClusterId, Role,
    api::{Query, ReadMode},
    driver::{
        chain::ChainReadiness,
        control::NodeState,
        phase::{NeverReady, NodePhase, Ready},
    },
    replica::Halt,
    rpc::router::HowToRead,
};

/// A node without a leader's answer for this many leases may be cut off from the members, too.
const UNHEARD_LEASES: u32 = 3;

impl Data {
    /// With a fixed configuration, a member becomes ready once its chains are open, and a spare once a member has
    /// answered it. Both also wait while another cluster of the same name keeps this node from being ready.
    pub(super) async fn become_ready(self: Arc<Self>, ready: Ready, chains: Vec<watch::Receiver<ChainReadiness>>) {
        let became = async {
            if chains.is_empty() {
                self.reach_a_member().await;
            }
            let mut chains = chains;
            for standing in &mut chains {
                if let Err(why) = opened(standing).await {
                    return self.fail(NeverReady::Halted(why.to_string()));
                }
            }
            self.meets_no_other().await;
            self.advance(NodePhase::Ready(ready));
        };
        self.unless_stopped(became).await;
    }

    /// With the configuration log, a node becomes ready once the control task reports so. A spare also waits until a
    /// member answers it. Both also wait while another cluster of the same name keeps this node from being ready.
    pub(super) async fn become_member(
        self: Arc<Self>,
        cluster: ClusterId,
        mut state: watch::Receiver<NodeState>,
        mut standings: Vec<watch::Receiver<ChainReadiness>>,
        mut ready: oneshot::Receiver<()>,
    ) {
        let became = async {
            loop {
                let halted = standings.iter().find_map(|standing| standing.borrow().halted.clone());
                if let Some(why) = halted {
                    return self.fail(NeverReady::Halted(why.to_string()));
                }
                tokio::select! {
                    biased;
                    () = any_changed(&mut standings) => {}
                    // The sender is dropped only when the control task ends. The node's end then ends this wait.
                    notified = &mut ready => match notified {
                        Ok(()) => break,
                        Err(_) => pending().await,
                    },
                }
            }
            if !state.borrow().configs.names(self.id()) {
                self.reach_a_member().await;
                // Check again: while it waited, this node may have become a joiner, or another node may have died.
                if state.wait_for(|state| state.unready.is_none()).await.is_err() {
                    return;
                }
            }
            self.meets_no_other().await;
            self.advance(NodePhase::Ready(Ready::new(self.place(), cluster)));
        };
        self.unless_stopped(became).await;
    }

    async fn reach_a_member(&self) {
        let Some(started) = self.stage.started() else { return };
        let how = HowToRead { mode: ReadMode::Strong, timeout: self.config.timeout, session: None };
        while let Err(error) = started.router.read(Query::Key(Bytes::new()), &how).await {
            tracing::debug!(%error, "no member answers yet");
        }
    }

    /// Waits until no other cluster of the same name keeps this node from being ready.
    async fn meets_no_other(&self) {
        // The sender is this node's own, so it stays open.
        let _ = self.others.subscribe().wait_for(|others| others.unready.is_none()).await;
    }

    /// Whether this node was ready, and may still serve according to its local state: see `Node::may_serve`.
    pub(super) fn may_serve(&self) -> bool {
        if self.others.borrow().unready.is_some() || !self.phase.borrow().is_ready() {
            return false;
        }
        let Some(formed) = self.stage.formed() else { return false };
        let standings = &formed.standings;
        if standings.iter().any(|standing| standing.borrow().halted.is_some()) {
            return false;
        }
        let Some(known) = formed.state.as_ref().map(|state| state.borrow().clone()) else { return are_open(standings) };
        let now = self.local.clock.now();
        let is_led = self.is_led(&known);
        let is_serving = |config: &ChainConfig| config.role(self.id()) == Some(Role::Serving);
        // Ask the gate too: a member that resigned has given up its lease before the lease expires.
        let is_leased = |config: &ChainConfig| self.local.lease(config.chain) > now;
        self.serves(&known, standings)
            && known.configs.iter().all(|config| if is_serving(config) { is_leased(config) } else { is_led })
    }

    /// Whether all chains of a node with a fixed configuration are open.
    pub(super) fn is_open(&self) -> bool {
        self.stage.formed().is_some_and(|formed| are_open(&formed.standings))
    }

    /// Whether a leader confirmed by a majority has answered recently.
    pub(super) fn is_led(&self, known: &NodeState) -> bool {
        self.local.clock.now() - known.heard < self.lease() * UNHEARD_LEASES
    }

    /// Whether this node can fulfil its role in each chain.
    fn serves(&self, known: &NodeState, standings: &[watch::Receiver<ChainReadiness>]) -> bool {
        let leased = known.lease > self.local.clock.now();
        let mut chains = known.configs.iter().zip(standings);
        let serves = |(config, standing): (&ChainConfig, &watch::Receiver<ChainReadiness>)| match config.role(self.id())
        {
            Some(Role::Serving) => leased && standing.borrow().open == Some(config.epoch),
            Some(_) => false,
            None => known.answered,
        };
        // Until the chains have acted for the first time, no configuration is known.
        known.configs.iter().next().is_some() && chains.all(serves)
    }
}

fn are_open(standings: &[watch::Receiver<ChainReadiness>]) -> bool {
    standings.iter().all(|standing| standing.borrow().open.is_some())
}

async fn opened(standing: &mut watch::Receiver<ChainReadiness>) -> Result<(), Halt> {
    let settled = standing.wait_for(|standing| standing.open.is_some() || standing.halted.is_some()).await;
    match settled.map(|standing| standing.halted.clone()) {
        Ok(None) => Ok(()),
        Ok(Some(why)) => Err(why),
        // The sender is gone only if the node has stopped.
        Err(_) => pending().await,
    }
}

/// Waits until one of `standings` changes; never returns if all senders were dropped.
async fn any_changed(standings: &mut [watch::Receiver<ChainReadiness>]) {
    let mut changes: Vec<_> = standings.iter_mut().map(|standing| Box::pin(standing.changed())).collect();
    poll_fn(|cx| {
        let mut changed = false;
        changes.retain_mut(|change| match change.as_mut().poll(cx) {
            Poll::Ready(result) => {
                changed |= result.is_ok();
                false
            }
            Poll::Pending => true,
        });
        if changed { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
