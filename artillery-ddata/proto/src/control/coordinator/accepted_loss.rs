//! An operator accepts the loss of a chain: none of the stores that served last is available and possibly complete. The
//! chain is opened again from the best available store, or empty (docs/DESIGN.md §5.8).
//!
//! Such an order must not discard any available data. So it waits until all living nodes have reported what they hold,
//! and is refused while a serving member is alive, or while a store is back that may open the chain by itself.

use std::cmp::Reverse;

use super::{
    Coordinator, CoordinatorOutput,
    reason::{ChangeReason, Why},
    view::View,
};
use crate::{
    ChainConfig, ChainId, ChainMember, Epoch, MemberId, Role, Sequence, Timestamp, Version,
    control::{
        log::{ChainChange, ConfigChange, Configs},
        message::StoreHolding,
        placement::rank,
        reopening::{NotReopened, Reopened},
    },
};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LossOrder {
    token: u64,
    chain: ChainId,
    /// The last epoch before the loss: none of its serving members survived.
    epoch: Epoch,
    until: Timestamp,
    /// The node that will serve; `None` while that isn't certain.
    choice: Option<Heir>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Heir {
    id: MemberId,
    last: Version,
    known: Sequence,
}

/// Why the chain can't be opened right now.
enum Hindrance {
    Final(NotReopened),
    Passing(NotReopened),
}

impl Coordinator {
    pub(super) fn accept_loss(&mut self, now: Timestamp, token: u64, chain: ChainId) {
        if let Err(error) = self.begin_loss(now, token, chain) {
            self.outputs.push_back(CoordinatorOutput::Reopened { token, result: Err(error) });
        }
    }

    fn begin_loss(&mut self, now: Timestamp, token: u64, chain: ChainId) -> Result<(), NotReopened> {
        let leader = self.leader;
        let Some(leading) = &mut self.leading else { return Err(NotReopened::NotLeading { leader }) };
        let config = self.configs.get(chain).ok_or(NotReopened::NoChain { chain })?;
        if leading.loss.is_some() {
            return Err(NotReopened::Busy);
        }
        // For all nodes to report what they hold, for leases to expire, and for the round that confirms this leader.
        let until = now + self.settings.reopen + 3 * self.settings.lease_and_drift();
        leading.loss = Some(LossOrder { token, chain, epoch: config.epoch, until, choice: None });
        Ok(())
    }

    /// Chooses the node that will serve, or ends the order: it is executed, refused, overtaken or out of time.
    pub(super) fn follow_loss(&mut self, now: Timestamp) {
        let Some(leading) = &self.leading else { return };
        let Some(order) = &leading.loss else { return };
        let config = self.configs.get(order.chain);
        let result = match config {
            Some(config) if config.epoch == order.epoch => {
                if leading.proposal.is_some() {
                    return;
                }
                let view = leading.view(now, self.me, &self.voters, &self.settings, &self.outside);
                match view.heir(&self.configs, config) {
                    Ok(heir) => return self.choose(Some(heir)),
                    Err(Hindrance::Passing(_)) if now < order.until => return self.choose(None),
                    Err(Hindrance::Passing(why) | Hindrance::Final(why)) => Err(why),
                }
            }
            _ => order.outcome(&self.configs),
        };
        self.finish_loss(result);
    }

    fn choose(&mut self, choice: Option<Heir>) {
        if let Some(order) = self.leading.as_mut().and_then(|leading| leading.loss.as_mut()) {
            order.choice = choice;
        }
    }

    /// This node no longer leads in this term. The operator must ask the new leader.
    pub(super) fn end_loss(&mut self) {
        let leader = self.leader;
        self.finish_loss(Err(NotReopened::NotLeading { leader }));
    }

    fn finish_loss(&mut self, result: Result<Reopened, NotReopened>) {
        if let Some(LossOrder { token, .. }) = self.leading.as_mut().and_then(|leading| leading.loss.take()) {
            self.outputs.push_back(CoordinatorOutput::Reopened { token, result });
        }
    }
}

impl LossOrder {
    /// The outcome of the order, once the chain is in a later epoch.
    fn outcome(&self, configs: &Configs) -> Result<Reopened, NotReopened> {
        let made = configs.loss(self.chain).filter(|loss| loss.epoch > self.epoch);
        let (loss, heir) = made.zip(self.choice).ok_or(NotReopened::Overtaken)?;
        let Heir { id, last, known } = heir;
        Ok(Reopened { chain: self.chain, epoch: loss.epoch, by: id, last, known })
    }
}

impl View<'_> {
    /// The ordered change, once it can be made.
    pub(super) fn accepted_loss(&self, configs: &Configs) -> Option<(ConfigChange, Vec<ChangeReason>)> {
        let LossOrder { chain, epoch, choice, .. } = self.loss?;
        let config = configs.get(*chain).filter(|config| config.epoch == *epoch)?;
        let member = (*choice)?.id;
        let members = vec![ChainMember { id: member, role: Role::Serving }];
        let change = ChainChange { replaces: *epoch, config: ChainConfig { members, ..config.clone() } };
        let why = ChangeReason { chain: *chain, member, why: Why::AcceptedLoss };
        Some((ConfigChange::AcceptLoss(change), vec![why]))
    }

    /// The node that may serve the chain now, provided that the order discards no available data.
    fn heir(&self, configs: &Configs, config: &ChainConfig) -> Result<Heir, Hindrance> {
        config.serving().try_for_each(|id| self.is_lost(configs, config, id))?;
        if let Some(first) = self.reopened(configs, config).and_then(|members| members.first().copied()) {
            return Err(Hindrance::Final(NotReopened::Whole { member: first.id }));
        }
        let settled = config.serving().all(|id| self.is_silent(id));
        let are_over = config.serving().all(|id| self.leases_expired(id) && self.leadership_confirmed(id));
        if !(settled && are_over) {
            return Err(Hindrance::Passing(NotReopened::Unconfirmed));
        }
        if let Some((&member, _)) = self.nodes.iter().find(|(id, node)| node.loads && self.is_there(**id)) {
            return Err(Hindrance::Passing(NotReopened::Comes { member }));
        }
        let known = self.highest_watermark(configs, config);
        let best = self.best_store(configs, config).map(|(id, held)| Heir { id, last: held.last, known });
        let free = || self.empty_node(configs, config).map(|id| Heir { id, last: Version::NONE, known });
        best.or_else(free).ok_or(Hindrance::Passing(NotReopened::NoNode))
    }

    /// Whether the member has been silent long enough to exclude a brief disconnection, in which it could still answer
    /// callers. By then each living node has renewed with this leader, and stores that were about to return are back.
    fn is_silent(&self, id: MemberId) -> bool {
        let heard = self.nodes.get(&id).map_or(self.since, |node| node.heard.max(self.since));
        self.now - heard >= self.settings.lease_and_drift() + self.settings.reopen
    }

    /// Whether a serving member has failed, and its store is not available or may be incomplete.
    fn is_lost(&self, configs: &Configs, config: &ChainConfig, member: MemberId) -> Result<(), Hindrance> {
        if !self.is_gone(member) {
            let was_heard = self.nodes.contains_key(&member) || member == self.me;
            let lives = NotReopened::Lives { member };
            return Err(if was_heard { Hindrance::Final(lives) } else { Hindrance::Passing(lives) });
        }
        let later = self.nodes.iter().filter(|(life, _)| life.shares_store(member) && **life > member);
        let Some((&life, node)) = later.filter(|(life, _)| !self.is_gone(**life)).max_by_key(|(life, _)| **life) else {
            return Ok(());
        };
        let comes = Hindrance::Passing(NotReopened::Comes { member: life });
        let Some(held) = node.holds.get(&config.chain) else { return Err(comes) };
        let has_all = held.whole && held.synced && held.last.sequence >= self.highest_watermark(configs, config);
        let can_open = self.is_there(life) && configs.node(life).is_some() && !self.has_halted(config.chain, life);
        match (has_all && !allows!(self.settings.guards, LoseWhole), can_open) {
            (false, _) => Ok(()),
            (true, true) => Err(Hindrance::Final(NotReopened::Whole { member: life })),
            (true, false) => Err(comes),
        }
    }

    /// The longest complete store available at any node. The versions of a store show how far it has followed the
    /// chain.
    fn best_store(&self, configs: &Configs, config: &ChainConfig) -> Option<(MemberId, StoreHolding)> {
        let is_able = |id| self.is_there(id) && configs.node(id).is_some() && !self.has_halted(config.chain, id);
        let all = self.nodes.iter().filter(|&(&id, _)| is_able(id));
        let stores = all.filter_map(|(&id, node)| Some((id, *node.holds.get(&config.chain)?)));
        let whole = stores.filter(|(_, held)| held.whole && !held.last.is_none());
        whole.max_by_key(|&(id, held)| (held.last, Reverse(id)))
    }

    /// The node at which the chain starts empty. A joiner isn't eligible, since its store is already partly filled.
    fn empty_node(&self, configs: &Configs, config: &ChainConfig) -> Option<MemberId> {
        let may_serve = |&id: &MemberId| self.may_take_part(config.chain, id);
        let free = configs.nodes().map(|node| node.id).filter(|&id| config.role(id).is_none());
        rank(self.settings.cluster, config.chain, free.filter(may_serve)).into_iter().next()
    }
}
