//! Makes the chains of this node act by the configurations of the log.

use std::{collections::BTreeSet, sync::Arc};

use super::{NodeMachine, NodeOutput};
use crate::{
    ChainConfig, ChainId, Timestamp,
    control::{Configs, log::LogIndex},
    runner::ChainOrder,
};

/// The configurations that the chains have been told.
#[derive(Clone, Debug)]
pub(super) struct Acting {
    configs: Arc<Configs>,
    /// The chains that have yet to report that they act by them.
    waits: BTreeSet<ChainId>,
}

impl NodeMachine {
    /// Tells the chains the newest configurations, once they act by the ones that they were told before.
    pub(super) fn act(&mut self) {
        let configs = self.holder.configs().clone();
        if self.acting.is_some() || self.acted.is_some_and(|acted| acted >= configs.applied()) {
            return;
        }
        if self.state.configs.history() != configs.history() {
            self.outputs.push_back(NodeOutput::Begins(configs.clone()));
        }
        for config in configs.iter() {
            let order = self.order(&configs, config);
            self.outputs.push_back(NodeOutput::Order(config.chain, order));
        }
        let waits = configs.iter().map(|config| config.chain).collect();
        self.acting = Some(Acting { configs, waits });
    }

    fn order(&self, configs: &Configs, config: &ChainConfig) -> ChainOrder {
        let upto = configs.applied();
        match config.role(self.me) {
            Some(_) => {
                let history = configs.history().cluster_id();
                ChainOrder::Enter { config: Arc::new(config.clone()), history, upto }
            }
            None => ChainOrder::Expelled { epoch: config.epoch, upto },
        }
    }

    /// A chain acts by the log up to `upto`. Once all chains do, they refuse every member removed by it, and the node may say
    /// that it acts by it.
    pub(super) fn chain_acts(&mut self, now: Timestamp, chain: ChainId, upto: LogIndex) {
        let Some(acting) = self.acting.as_mut().filter(|acting| acting.configs.applied() == upto) else { return };
        acting.waits.remove(&chain);
        if (acting.waits.is_empty() || allows!(self.guards, ActEarly))
            && let Some(Acting { configs, .. }) = self.acting.take()
        {
            self.acted(now, configs);
        }
    }

    fn acted(&mut self, now: Timestamp, configs: Arc<Configs>) {
        self.acted = Some(configs.applied());
        self.holder.acts_by(now, configs.applied());
        self.state.configs = configs.clone();
        self.outputs.push_back(NodeOutput::Acts(configs));
        // The node first looks for other members one lease after its beginning.
        self.begin_to_look(now);
        self.see_whether_left();
        self.act();
    }
}

#[cfg(feature = "mutants")]
impl Acting {
    pub(super) fn describe(&self, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        let Self { configs, waits } = self;
        write!(out, "{:?}", (configs.applied(), waits))
    }
}
