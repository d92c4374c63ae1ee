//! A cluster gives way to another one of its name and secret (docs/DESIGN.md §5.14, docs/adr/0049).
//!
//! An empty cluster does so by itself. It must be certain that nothing was or will ever be committed; that no member
//! holds anything now doesn't suffice. So the leader *seals* all chains first: in their next epoch no member orders any
//! update. A commit in an epoch needs every serving member while it is in that epoch, and a serving member holds every
//! earlier committed update. So once all serving members report that they are in a sealed epoch and hold nothing,
//! nothing was committed in an earlier epoch, and nothing can be in this one. Then the cluster is *over*, by one entry
//! for all chains that replaces exactly those epochs. If a member holds something, or the other cluster is no longer
//! met, an entry removes the seal.
//!
//! An operator may give up a cluster that holds data, without this certainty.

use std::time::Duration;

use super::{
    Coordinator, CoordinatorOutput,
    reason::{ChangeReason, Why},
    view::View,
};
use crate::{
    ChainConfig, ClusterId, Sequence, Timestamp,
    control::{
        log::{ChainChange, ConfigChange, Configs},
        message::NotGivenUp,
    },
};

/// A report of another cluster is valid for this many leases, and at least for `TOLD_AT_LEAST`: nodes repeat it every
/// second.
const TOLD_LEASES: u32 = 3;
const TOLD_AT_LEAST: Duration = Duration::from_secs(3);

/// A seal is removed after this many leases without certainty, because a member may be absent for longer.
const SEAL_LEASES: u32 = 6;

/// After the removal of a seal, the next one waits for this many leases, so that the cluster accepts writes most of the
/// time.
const PAUSE_LEASES: u32 = 20;

/// An operator's order times out after this many leases.
const ORDER_LEASES: u32 = 5;

/// The cluster to which this one gives way if it is empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Outranked {
    by: ClusterId,
    until: Timestamp,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Sealing {
    /// The chains should be sealed, and the cluster gives way if it is empty.
    wanted: bool,
    since: Option<Timestamp>,
    /// The earliest time for another seal.
    pause: Timestamp,
    order: Option<(u64, Timestamp)>,
}

impl Coordinator {
    pub(super) fn outranked(&mut self, now: Timestamp, by: Option<ClusterId>) {
        let until = now + (self.settings.lease * TOLD_LEASES).max(TOLD_AT_LEAST);
        self.outranked = by.map(|by| Outranked { by, until });
    }

    pub(super) fn give_up(&mut self, now: Timestamp, token: u64) {
        let (leader, until) = (self.leader, now + self.settings.lease * ORDER_LEASES);
        let refusal = match &mut self.leading {
            None => NotGivenUp::NotLeading { leader },
            Some(leading) if leading.sealing.order.is_some() => NotGivenUp::Busy,
            Some(leading) => return leading.sealing.order = Some((token, until)),
        };
        self.outputs.push_back(CoordinatorOutput::GivenUp { token, result: Err(refusal) });
    }

    /// Ends the operator's order if it is executed or out of time, and decides whether the chains should be sealed.
    pub(super) fn follow_sealing(&mut self, now: Timestamp) {
        self.outranked.take_if(|known| known.until <= now);
        let is_outranked = self.outranked.is_some();
        let (lease, is_over) = (self.settings.lease, self.configs.is_over());
        let is_sealed = !is_over && self.configs.iter().any(ChainConfig::is_sealed);
        let Some(leading) = &mut self.leading else { return };
        let sealing = &mut leading.sealing;
        match (is_sealed, sealing.since) {
            (true, None) => sealing.since = Some(now),
            (false, Some(_)) => (sealing.since, sealing.pause) = (None, now + lease * PAUSE_LEASES),
            _ => {}
        }
        let in_time = sealing.since.map_or(now >= sealing.pause, |since| now - since < lease * SEAL_LEASES);
        sealing.wanted = is_outranked && in_time && !is_over;
        let ended = match sealing.order {
            Some(_) if is_over => Some(Ok(())),
            Some((_, until)) if until <= now => Some(Err(NotGivenUp::Undecided)),
            _ => None,
        };
        if let Some(result) = ended {
            self.finish_giving_up(result);
        }
    }

    /// This node no longer leads in this term. The operator must ask the new leader.
    pub(super) fn end_giving_up(&mut self) {
        self.finish_giving_up(Err(NotGivenUp::NotLeading { leader: self.leader }));
    }

    fn finish_giving_up(&mut self, result: Result<(), NotGivenUp>) {
        let order = self.leading.as_mut().and_then(|leading| leading.sealing.order.take());
        if let Some((token, _)) = order {
            self.outputs.push_back(CoordinatorOutput::GivenUp { token, result });
        }
    }
}

impl View<'_> {
    /// The next step towards giving way, or the removal of the seal.
    pub(super) fn giving_way(&self, configs: &Configs) -> Option<(ConfigChange, Vec<ChangeReason>)> {
        if self.sealing.order.is_some() {
            return Some(of_all(configs.iter(), ChainConfig::over, Why::GaveWay));
        }
        let guards = self.settings.guards;
        let ignores_data = allows!(guards, GiveWayWithData);
        let may_be_empty = !self.holds_data(configs) || ignores_data;
        let mut sealed = configs.iter().filter(|config| config.is_sealed()).peekable();
        if !self.sealing.wanted || !may_be_empty {
            let unseals = sealed.peek().is_some() && !allows!(guards, NeverUnseal);
            return unseals.then(|| of_all(sealed, ChainConfig::unsealed, Why::Unsealed));
        }
        let is_empty = ignores_data || configs.iter().all(|config| self.is_empty(config));
        let all_sealed = configs.iter().all(ChainConfig::is_sealed) || allows!(guards, GiveWayUnsealed);
        is_empty.then(|| match all_sealed {
            true => of_all(configs.iter(), ChainConfig::over, Why::GaveWay),
            false => of_all(configs.iter(), ChainConfig::sealed, Why::Sealed),
        })
    }

    /// Whether any node is known to this leader to hold data of this cluster, or to have held some. As in the
    /// statements to other clusters, only committed updates are considered: nodes with uncommitted ones may never
    /// return.
    fn holds_data(&self, configs: &Configs) -> bool {
        let reports = self.nodes.values().flat_map(|node| node.told.values());
        let stores = self.nodes.values().flat_map(|node| node.holds.values());
        let reported = reports.map(|told| told.report.watermark).max();
        configs.has_lost()
            || reported > Some(Sequence(0))
            || stores.into_iter().any(|held| held.watermark > Sequence(0))
    }

    /// Whether each serving member reports, in the current epoch, that it holds nothing.
    fn is_empty(&self, config: &ChainConfig) -> bool {
        let is_empty = |id| {
            let told = self.nodes.get(&id).and_then(|node| node.told.get(&config.chain));
            told.is_some_and(|told| {
                let report = &told.report;
                let is_of_now = report.epoch == config.epoch && report.open;
                let counts = is_of_now || allows!(self.settings.guards, CountUnsealed);
                counts && !report.halted && report.held == Sequence(0)
            })
        };
        config.serving().all(is_empty)
    }
}

fn of_all<'a>(
    configs: impl Iterator<Item = &'a ChainConfig>,
    changed: impl Fn(&ChainConfig) -> ChainConfig,
    why: Why,
) -> (ConfigChange, Vec<ChangeReason>) {
    let (mut changes, mut reasons) = (Vec::new(), Vec::new());
    for config in configs {
        changes.push(ChainChange { replaces: config.epoch, config: changed(config) });
        reasons.extend(config.head().map(|member| ChangeReason { chain: config.chain, member, why }));
    }
    (ConfigChange::Chains(changes), reasons)
}
