//! Makes the chains of this node apply the configurations of the log. A chain applies a configuration when it executes
//! [`ChainOrder::Enter`] or [`ChainOrder::Expelled`].

use std::{collections::BTreeSet, sync::Arc};

use super::{NodeOutput, base::Base, disk::Disk};
use crate::{
    ChainConfig, ChainId, MemberId, Timestamp,
    control::{Configs, log::LogIndex},
    runner::ChainOrder,
};

/// Which configurations the chains of this node have applied.
#[derive(Clone, Default, Debug)]
pub(super) struct Acting {
    /// The configurations that were sent to the chains, until all have applied them; and the chains that have yet to
    /// report so.
    pending: Option<(Arc<Configs>, BTreeSet<ChainId>)>,
    /// The last log entry that all chains have applied.
    acted: Option<LogIndex>,
}

impl Acting {
    /// Whether all chains have applied some configurations.
    pub(super) fn has_acted(&self) -> bool {
        self.acted.is_some()
    }

    /// Sends the newest configurations to the chains, once all have applied the previous ones and the disk has the new
    /// ones.
    pub(super) fn act(&mut self, base: &mut Base) {
        let (configs, guards) = (base.configs().clone(), base.guards());
        if base.loads() || self.pending.is_some() || self.acted.is_some_and(|acted| acted >= configs.applied()) {
            return;
        }
        match base.disk_mut() {
            Some(disk) if !disk.has(configs.applied()) && !allows!(guards, ActUnkept) => {
                if disk.keep(&configs) {
                    base.push(NodeOutput::Keep(configs));
                }
            }
            _ => self.tell_chains(configs, base),
        }
    }

    /// The configurations of the last [`NodeOutput::Keep`] are on the disk.
    pub(super) fn has_kept(&mut self, base: &mut Base) {
        if let Some(configs) = base.disk_mut().and_then(Disk::has_kept) {
            self.tell_chains(configs, base);
        }
    }

    fn tell_chains(&mut self, configs: Arc<Configs>, base: &mut Base) {
        if base.state().configs.sessions_id() != configs.sessions_id() {
            base.push(NodeOutput::Begins(configs.clone()));
        }
        for config in configs.iter() {
            base.push(NodeOutput::Order(config.chain, order(base.me(), &configs, config)));
        }
        let waits = configs.iter().map(|config| config.chain).collect();
        self.pending = Some((configs, waits));
    }

    /// A chain has applied the log up to `upto`. Once all chains have, they refuse every member that the log removed,
    /// and the node may report this entry as applied. Returns whether this chain was the last.
    pub(super) fn chain_acts(&mut self, now: Timestamp, (chain, upto): (ChainId, LogIndex), base: &mut Base) -> bool {
        let Some((configs, waits)) = self.pending.as_mut().filter(|(configs, _)| configs.applied() == upto) else {
            return false;
        };
        waits.remove(&chain);
        if !waits.is_empty() && !allows!(base.guards(), ActEarly) {
            return false;
        }
        let configs = configs.clone();
        (self.pending, self.acted) = (None, Some(upto));
        base.holder_mut().acts_by(now, upto);
        base.state_mut().configs = configs.clone();
        base.push(NodeOutput::Acts(configs));
        true
    }

    #[cfg(feature = "mutants")]
    pub(super) fn describe(&self) -> impl std::fmt::Debug {
        let Self { pending, acted } = self;
        (pending.as_ref().map(|(configs, waits)| (configs.applied(), waits)), acted)
    }
}

fn order(me: MemberId, configs: &Configs, config: &ChainConfig) -> ChainOrder {
    let (history, upto) = (configs.sessions_id(), configs.applied());
    match config.role(me) {
        Some(_) => ChainOrder::Enter { config: Arc::new(config.clone()), history, upto },
        None => ChainOrder::Expelled { epoch: config.epoch, history, upto },
    }
}
