//! Has the chains of this node act by what the log says.

use std::{collections::BTreeSet, sync::Arc};

use super::{Node, Output};
use crate::{
    ChainConfig, ChainId, Timestamp,
    control::{Configs, log::LogIndex},
    runner::Order,
};

/// What the chains have been told.
#[derive(Clone, Debug)]
pub(super) struct Acting {
    configs: Arc<Configs>,
    /// The chains that have yet to say that they act by it.
    waits: BTreeSet<ChainId>,
}

impl Node {
    /// Tells the chains what the log comes to, if they don't know it yet: one thing after the other.
    pub(super) fn act(&mut self) {
        let configs = self.holder.configs().clone();
        if self.acting.is_some() || self.acted.is_some_and(|acted| acted >= configs.applied()) {
            return;
        }
        if self.state.configs.history() != configs.history() {
            self.outputs.push_back(Output::Begins(configs.clone()));
        }
        for config in configs.iter() {
            let order = self.order(&configs, config);
            self.outputs.push_back(Output::Order(config.chain, order));
        }
        let waits = configs.iter().map(|config| config.chain).collect();
        self.acting = Some(Acting { configs, waits });
    }

    fn order(&self, configs: &Configs, config: &ChainConfig) -> Order {
        let upto = configs.applied();
        match config.role(self.me) {
            Some(_) => {
                let history = configs.history().life();
                Order::Enter { config: Arc::new(config.clone()), history, upto }
            }
            None => Order::Expelled { epoch: config.epoch, upto },
        }
    }

    /// A chain acts by this. Once all do, every node that it expels has been refused since, so the node may say that it acts
    /// by it.
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
        self.outputs.push_back(Output::Acts(configs));
        // The first look is a lease after the node began.
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
