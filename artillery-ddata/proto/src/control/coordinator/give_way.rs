//! A cluster gives way to another one of its name and secret (docs/DESIGN.md §5.14, docs/adr/0049).
//!
//! An empty cluster does so by itself. It must be certain that nothing was or will ever be committed; that no member
//! holds anything now doesn't suffice. So the leader *seals* all chains first: in their next epoch no member orders any
//! update. A commit in an epoch needs every serving member to be in that epoch, and a serving member holds every
//! earlier committed update. So once all serving members report that they are in a sealed epoch and hold nothing,
//! nothing was committed in an earlier epoch, and nothing can be in this one. Then the cluster is *over*, by one entry
//! for all chains that replaces exactly those epochs. If data is found, the other cluster is no longer met, or
//! certainty takes too long, an entry removes the seal.
//!
//! An operator may give up a cluster that holds data, without this certainty.

use std::time::Duration;

use super::{
    reason::{ChangeReason, Why},
    types::CoordinatorOutput,
    view::View,
};
use crate::{
    ChainConfig, Sequence, Timestamp,
    control::{
        log::{ChainChange, ConfigChange},
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

/// Until when a report of another cluster is valid.
pub(super) fn valid_until(now: Timestamp, lease: Duration) -> Timestamp {
    now + (lease * TOLD_LEASES).max(TOLD_AT_LEAST)
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Sealing {
    /// Whether the chains should be sealed, so that the cluster gives way if it is empty.
    wanted: bool,
    since: Option<Timestamp>,
    /// The earliest time for another seal.
    pause: Timestamp,
    order: Option<(u64, Timestamp)>,
}

impl Sealing {
    pub(super) fn begin(&mut self, view: View<'_>, token: u64) -> Result<(), NotGivenUp> {
        if self.order.is_some() {
            return Err(NotGivenUp::Busy);
        }
        self.order = Some((token, view.now + view.settings().lease * ORDER_LEASES));
        Ok(())
    }

    /// Ends the operator's order if it is executed or out of time, and decides whether the chains should be sealed.
    pub(super) fn follow(&mut self, view: View<'_>, is_outranked: bool) -> Option<CoordinatorOutput> {
        let (now, lease, configs) = (view.now, view.settings().lease, view.configs());
        let is_over = configs.is_over();
        let is_sealed = !is_over && configs.iter().any(ChainConfig::is_sealed);
        match (is_sealed, self.since) {
            (true, None) => self.since = Some(now),
            (false, Some(_)) => (self.since, self.pause) = (None, now + lease * PAUSE_LEASES),
            _ => {}
        }
        let in_time = self.since.map_or(now >= self.pause, |since| now - since < lease * SEAL_LEASES);
        self.wanted = is_outranked && in_time && !is_over;
        match self.order? {
            _ if is_over => self.end(Ok(())),
            (_, until) if until <= now => self.end(Err(NotGivenUp::Undecided)),
            _ => None,
        }
    }

    /// Ends the operator's order, if there is one.
    pub(super) fn end(&mut self, result: Result<(), NotGivenUp>) -> Option<CoordinatorOutput> {
        self.order.take().map(|(token, _)| CoordinatorOutput::GivenUp { token, result })
    }

    /// The next step towards giving way, or the removal of the seal.
    pub(super) fn change(&self, view: View<'_>) -> Option<(ConfigChange, Vec<ChangeReason>)> {
        let configs = view.configs();
        if self.order.is_some() {
            return Some(of_all(configs.iter(), ChainConfig::over, Why::GaveWay));
        }
        let guards = view.guards();
        let ignores_data = allows!(guards, GiveWayWithData);
        let may_be_empty = !holds_data(view) || ignores_data;
        let mut sealed = configs.iter().filter(|config| config.is_sealed()).peekable();
        if !self.wanted || !may_be_empty {
            let unseals = sealed.peek().is_some() && !allows!(guards, NeverUnseal);
            return unseals.then(|| of_all(sealed, ChainConfig::unsealed, Why::Unsealed));
        }
        let is_empty = ignores_data || configs.iter().all(|config| is_empty(view, config));
        let all_sealed = configs.iter().all(ChainConfig::is_sealed) || allows!(guards, GiveWayUnsealed);
        is_empty.then(|| match all_sealed {
            true => of_all(configs.iter(), ChainConfig::over, Why::GaveWay),
            false => of_all(configs.iter(), ChainConfig::sealed, Why::Sealed),
        })
    }
}

/// Whether any node is known to this leader to hold data of this cluster, or to have held some. As in the
/// statements to other clusters, only committed updates are considered: nodes with uncommitted ones may never
/// return.
fn holds_data(view: View<'_>) -> bool {
    let reports = view.nodes().iter().flat_map(|(_, node)| node.told.values());
    let stores = view.nodes().iter().flat_map(|(_, node)| node.holds.values());
    let reported = reports.map(|told| told.report.watermark).max();
    view.configs().has_lost()
        || reported > Some(Sequence(0))
        || stores.into_iter().any(|held| held.watermark > Sequence(0))
}

/// Whether each serving member reports that it has opened the current epoch, holds nothing and hasn't halted.
fn is_empty(view: View<'_>, config: &ChainConfig) -> bool {
    let is_empty = |id| {
        let told = view.node(id).and_then(|node| node.told.get(&config.chain));
        told.is_some_and(|told| {
            let report = &told.report;
            let is_of_now = report.epoch == config.epoch && report.open;
            let counts = is_of_now || allows!(view.guards(), CountUnsealed);
            counts && !report.halted && report.held == Sequence(0)
        })
    };
    config.serving().all(is_empty)
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
