//! The members that may stall their chain, as observed by this leader, and the quarantined nodes.

use std::collections::BTreeMap;

use super::{
    gray_failure::{Suspicion, blame},
    paths::{SlowSuspect, slow_suspect},
    quarantine::Quarantines,
    reason::Why,
    view::View,
};
use crate::{ChainConfig, ChainId, Epoch, MemberId, Timestamp};

/// The leader's observations of one chain in one epoch.
#[derive(Clone, Debug)]
struct Watched {
    epoch: Epoch,
    blame: Option<Suspicion>,
    /// The current suspect of a slow chain, and since when it has been the suspect without a break.
    suspect: Option<(SlowSuspect, Timestamp)>,
    /// The ends of the hop that was broken when a member was last moved out, and when that was.
    ends: Option<([MemberId; 2], Timestamp)>,
}

impl Watched {
    /// Follows the chain into a later epoch, and quarantines the blamed member if it was moved out.
    fn enter(&mut self, view: View<'_>, config: &ChainConfig, outside: &mut Quarantines) {
        (self.epoch, self.suspect) = (config.epoch, None);
        let Some(blame) = self.blame.take().filter(|blame| config.role(blame.member).is_none()) else { return };
        self.ends = blame.ends.map(|ends| (ends, view.now));
        let apart = blame.ends.and_then(|ends| ends.into_iter().find(|&end| end != blame.member));
        // The reports of a deaf or a halted node show by themselves whether it has recovered.
        if !matches!(blame.why, Why::Deaf | Why::Halted) {
            outside.add(view, blame.member.node, apart);
        }
    }

    fn judge(&mut self, view: View<'_>, config: &ChainConfig, outside: &Quarantines) {
        let known = self.suspect;
        let same =
            |found: &SlowSuspect| known.filter(|(before, _)| before == found).map_or(view.now, |(_, since)| since);
        self.suspect = slow_suspect(view, config).map(|suspect| (suspect, same(&suspect)));
        let found = blame(view, outside, config, self.ends, self.suspect);
        let since = self.blame.map_or(Timestamp::ZERO, |blame| blame.since);
        let keeps = view.now - since < view.settings().lease * 2;
        let kept = self.blame.filter(|before| {
            let same = found.is_some_and(|found| (found.member, found.why) == (before.member, before.why));
            same || (matches!(before.why, Why::Slow | Why::Disk) && keeps)
        });
        self.blame = kept.or(found);
    }
}

#[derive(Clone, Default, Debug)]
pub(super) struct Suspicions {
    watched: BTreeMap<ChainId, Watched>,
    outside: Quarantines,
}

impl Suspicions {
    pub(super) fn end_term(&mut self) {
        self.watched.clear();
    }

    pub(super) fn outside(&self) -> &Quarantines {
        &self.outside
    }

    #[cfg(test)]
    pub(super) fn outside_mut(&mut self) -> &mut Quarantines {
        &mut self.outside
    }

    pub(super) fn judge(&mut self, view: View<'_>) {
        self.watched.retain(|&chain, _| view.configs().get(chain).is_some());
        for config in view.configs().iter() {
            let new = || Watched { epoch: config.epoch, blame: None, suspect: None, ends: None };
            let chain = self.watched.entry(config.chain).or_insert_with(new);
            if chain.epoch != config.epoch {
                chain.enter(view, config, &mut self.outside);
            }
            chain.judge(view, config, &self.outside);
        }
    }

    pub(super) fn blamed(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.watched.values().filter_map(|chain| chain.blame).map(|blame| blame.member)
    }

    pub(super) fn is_blamed(&self, chain: ChainId, id: MemberId) -> Option<Why> {
        let blame = self.watched.get(&chain)?.blame?;
        (blame.member == id).then_some(blame.why)
    }
}
