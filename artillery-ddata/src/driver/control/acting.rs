//! Has the chains of this node act by what the log says.

use std::{collections::BTreeMap, sync::Arc};

use artillery_core::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::{Control, Done};
use crate::{
    ChainConfig, MemberId, Routing,
    control::{
        Configs,
        message::{Close, Report},
    },
    driver::{chain::Command, lanes::Lanes},
};

impl Control {
    /// Tells the chains what the log comes to, if they don't know it yet: one thing after the other.
    pub(super) fn act(&mut self) {
        let configs = self.parts.holder.configs().clone();
        let known = self.acting.or(self.acted);
        if self.acting.is_some() || known.is_some_and(|known| known >= configs.applied()) {
            return;
        }
        self.acting = Some(configs.applied());
        let life = configs.history().life();
        if self.parts.local.life() != Some(life) {
            // Before the chains: a local reader of a session asks for the history behind its lookup (trap 58).
            self.parts.local.update(Routing::of(self.parts.cluster, &configs));
        }
        let told: Vec<_> = configs.iter().filter_map(|config| self.tell(&configs, config)).collect();
        self.tasks.spawn(async move { if all_done(told).await { Done::Acted(configs) } else { Done::Stopped } });
    }

    fn tell(&self, configs: &Configs, config: &ChainConfig) -> Option<Told> {
        let chain = self.parts.chains.get(config.chain)?;
        let (done, word) = oneshot::channel();
        let command = match config.role(self.parts.me) {
            Some(_) => {
                let lanes = self.lanes(configs, config);
                let history = configs.history().life();
                Command::Enter { config: Arc::new(config.clone()), history, lanes, done }
            }
            None => Command::Expelled { epoch: config.epoch, done },
        };
        Some((chain, command, word))
    }

    fn lanes(&self, configs: &Configs, config: &ChainConfig) -> BTreeMap<MemberId, Lanes> {
        let others = config.members.iter().map(|member| member.id).filter(|&id| id != self.parts.me);
        let lanes = others.map(|id| {
            let addrs = configs.node(id).map_or(&[][..], |founder| &founder.addrs);
            (id, self.parts.hub.lanes(id.node, addrs))
        });
        lanes.collect()
    }

    /// All chains act by this: whoever it expels has been refused since.
    pub(super) fn acted(&mut self, now: Timestamp, configs: Arc<Configs>) {
        self.acting = None;
        self.acted = Some(configs.applied());
        self.parts.local.update(Routing::of(self.parts.cluster, &configs));
        self.parts.holder.acts_by(now, configs.applied());
        let knows = |node| configs.nodes().any(|founder| founder.id.node == node);
        self.parts.hub.retain(knows);
        self.parts.calls.retain(|node| knows(node) || self.met.keys().any(|id| id.node == node));
        self.met.retain(|id, _| self.parts.events.members().any(|member| member.id == *id));
        self.parts.state.send_modify(|state| state.configs = configs);
        self.see_whether_left();
        self.act();
    }

    /// What this node says of its chains.
    pub(super) fn reports(&self, now: Timestamp) -> Vec<Report> {
        let standings = self.parts.standings.iter();
        standings.filter_map(|(chain, standing)| standing.borrow().progress.report(*chain, now)).collect()
    }

    /// Has heads order nothing for a moment. Whoever wants that says it again with each answer.
    pub(super) fn close(&self, now: Timestamp, close: &[Close]) {
        for close in close {
            if let Some(chain) = self.parts.chains.get(close.chain) {
                let until = now + self.parts.patience;
                // Without room it is said again.
                drop(chain.try_send(Command::Close { epoch: close.epoch, until }));
            }
        }
    }
}

/// A chain, what it is to be told, and where it says that it has done so.
pub(super) type Told = (mpsc::Sender<Command>, Command, oneshot::Receiver<()>);

/// Whether all of them have done what they were told.
pub(super) async fn all_done(told: Vec<Told>) -> bool {
    let mut words = Vec::new();
    for (chain, command, word) in told {
        if chain.send(command).await.is_err() {
            return false;
        }
        words.push(word);
    }
    for word in words {
        if word.await.is_err() {
            return false;
        }
    }
    true
}
