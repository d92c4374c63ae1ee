//! Readiness of a node with a fixed configuration, and the wait until any node has reached a member.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;

use super::data::Data;
use crate::{
    api::{Query, ReadMode},
    driver::{
        chain::ChainReadiness,
        phase::{NeverReady, NodePhase, Ready},
    },
    replica::Halt,
    rpc::router::HowToRead,
};

impl Data {
    /// A member is ready once its chains are open; a spare, once a member has answered it.
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

    /// Runs `what`, at most until the node stops.
    pub(super) async fn unless_stopped(&self, what: impl Future<Output = ()>) {
        let mut phases = self.phases();
        tokio::select! {
            biased;
            _ = phases.wait_for(NodePhase::is_final) => {}
            () = what => {}
        }
    }

    pub(super) async fn reach_a_member(&self) {
        let Some(router) = self.router.get() else { return };
        let how = HowToRead { mode: ReadMode::Strong, timeout: self.config.timeout, session: None };
        while let Err(error) = router.read(Query::Key(Bytes::new()), &how).await {
            tracing::debug!(%error, "no member answers yet");
        }
    }
}

async fn opened(standing: &mut watch::Receiver<ChainReadiness>) -> Result<(), Halt> {
    let settled = standing.wait_for(|standing| standing.open.is_some() || standing.halted.is_some()).await;
    match settled.map(|standing| standing.halted.clone()) {
        Ok(None) => Ok(()),
        Ok(Some(why)) => Err(why),
        // The sender is gone only if the node has stopped.
        Err(_) => std::future::pending().await,
    }
}
