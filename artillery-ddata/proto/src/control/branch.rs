//! The point at which a history branched off the previous one, and updates that a store may hold beyond it
//! (docs/adr/0030).

pub use super::history::{Branch, ChainBranch};
use super::{
    Relation,
    recovery::{ChainStanding, Standing},
};
use crate::{ChainId, MemberId};

/// Whether `me` may hold committed updates that are missing from the newest history that these nodes report. `None`: no
/// node reports a history newer than that of `me`, or `me` isn't among these nodes.
pub fn has_parted(me: MemberId, standings: &[Standing]) -> Option<bool> {
    let mine = standings.iter().find(|standing| standing.me.id == me)?;
    let newer = standings.iter().filter(|standing| standing.history.relation(mine.history) == Relation::Newer);
    let newest = newer.max_by_key(|standing| standing.history.generation)?;
    Some(holds_more(mine, &newest.branches))
}

/// Whether a node's store may hold commits that are missing from a later history. `branches`: the branches that led to
/// the later history, oldest first. If none of them starts from the node's history, any commit may be missing.
pub fn holds_more(mine: &Standing, branches: &[Branch]) -> bool {
    let beyond = |branch: Option<&Branch>| {
        let kept = |chain: ChainId| branch.and_then(|branch| branch.chains.iter().find(|kept| kept.chain == chain));
        mine.chains.iter().any(|held| goes_beyond(mine.me.id, held, kept(held.config.chain)))
    };
    match branches.iter().position(|branch| branch.from == mine.history) {
        // A later recovery may have kept less than the first one.
        Some(at) => branches[at..].iter().any(|branch| beyond(Some(branch))),
        None => beyond(None),
    }
}

/// Whether the copy of `me` may hold a commit that the branch is missing. `kept`: the branch's state of the chain, if
/// it has one.
///
/// A serving member holds every commit of its epoch and of earlier ones, and nothing is committed in its epoch without
/// it. So only an epoch after the branch's can have committed an update that the branch is missing, unless the disk of
/// the kept store may have lost some. A store that no longer serves may have served up to the epoch of the
/// configuration that its node knows. Equal versions mean equal histories.
fn goes_beyond(me: MemberId, held: &ChainStanding, kept: Option<&ChainBranch>) -> bool {
    let Some(served) = held.served(me).filter(|_| !held.last.is_none()) else { return false };
    let serves = held.config.serving().any(|id| id.shares_store(me));
    let served = if serves { served } else { served.max(held.config.epoch) };
    kept.is_none_or(|kept| (served > kept.epoch || !kept.synced) && held.last != kept.last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ClusterId, Epoch, Sequence, Version,
        control::History,
        fixtures::{self, founder, serving},
    };

    const FIRST: History = History { generation: 0, id: 7 };

    /// Node 2, which serves in `epoch` and whose last version is `last`.
    fn held(epoch: u64, last: Version) -> Standing {
        let config = serving(epoch, &[2, 3]);
        let serves = Some(Epoch(epoch));
        let chain = ChainStanding { config, serves, whole: true, synced: true, last, watermark: Sequence::ZERO };
        Standing { history: FIRST, chains: vec![chain], ..fixtures::standing(founder(2), ClusterId(7)) }
    }

    /// Node 1, which was kept by a recovery: it last served in `epoch`.
    fn kept(epoch: u64, last: Version) -> Standing {
        let chain = ChainBranch { chain: ChainId(0), epoch: Epoch(epoch), last, synced: true };
        let branches = vec![Branch { from: FIRST, chains: vec![chain] }];
        Standing { history: FIRST.next(1), branches, ..fixtures::standing(founder(1), ClusterId(7)) }
    }

    fn parted(mine: Standing, newer: Standing) -> Option<bool> {
        has_parted(mine.me.id, &[newer, mine])
    }

    #[test]
    fn what_a_former_member_may_have_seen_committed_has_parted() {
        let mut mine = held(7, Version::new(5, 101));
        let chain = &mut mine.chains[0];
        (chain.config, chain.serves) = (serving(7, &[3]), None);
        assert_eq!(parted(mine.clone(), kept(5, Version::new(5, 100))), Some(true), "epoch 6 may have committed 5.101");
        assert_eq!(parted(mine, kept(7, Version::new(7, 102))), Some(false));
    }

    #[test]
    fn what_any_later_recovery_dropped_has_parted() {
        let first = Version::new(5, 100);
        let mut newer = kept(5, first);
        let behind = ChainBranch { chain: ChainId(0), epoch: Epoch(4), last: Version::new(4, 90), synced: true };
        newer.branches.push(Branch { from: newer.history, chains: vec![behind] });
        newer.history = newer.history.next(2);
        assert_eq!(parted(held(5, first), newer), Some(true));
    }

    #[test]
    fn what_an_epoch_behind_the_branch_made_has_parted() {
        let branch = Version::new(5, 100);
        assert_eq!(parted(held(6, Version::new(6, 101)), kept(5, branch)), Some(true));
        // An update ordered in an earlier epoch may have been committed in a later one, and the branch may hold another
        // update at its sequence.
        assert_eq!(parted(held(6, Version::new(4, 80)), kept(5, branch)), Some(true));
        assert_eq!(parted(held(6, branch), kept(5, branch)), Some(false), "it entered an epoch without updates");
    }

    #[test]
    fn what_was_ordered_in_the_epoch_of_the_branch_was_not_committed_without_it() {
        let branch = Version::new(5, 100);
        for last in [Version::new(5, 90), Version::new(5, 120), Version::new(4, 80), Version::NONE] {
            assert_eq!(parted(held(5, last), kept(5, branch)), Some(false), "{last}");
        }
        assert_eq!(parted(held(4, Version::new(4, 80)), kept(5, branch)), Some(false));
    }

    #[test]
    fn a_branch_whose_disk_may_have_lost_something_may_lack_what_was_committed() {
        let mut weak = kept(5, Version::new(5, 100));
        weak.branches[0].chains[0].synced = false;
        assert_eq!(parted(held(5, Version::new(5, 120)), weak.clone()), Some(true));
        assert_eq!(parted(held(5, Version::new(5, 100)), weak), Some(false));
    }

    #[test]
    fn a_history_that_is_no_forerunner_of_the_newer_one_has_parted() {
        let mine = Standing { history: FIRST.next(2), ..held(5, Version::new(5, 90)) };
        let newer = Standing { history: FIRST.next(1).next(3), ..kept(5, Version::new(5, 100)) };
        assert_eq!(parted(mine.clone(), newer.clone()), Some(true));
        let empty = Standing { chains: vec![], ..mine };
        assert_eq!(parted(empty, newer), Some(false), "a spare holds nothing");
    }

    #[test]
    fn a_store_that_is_not_whole_holds_no_commits() {
        let mut mine = held(6, Version::new(6, 101));
        (mine.chains[0].serves, mine.chains[0].whole) = (None, false);
        assert_eq!(parted(mine, kept(5, Version::new(5, 100))), Some(false));
    }

    #[test]
    fn without_a_newer_history_nothing_is_said() {
        let other = Standing { history: FIRST, ..kept(5, Version::new(5, 100)) };
        assert_eq!(parted(held(6, Version::new(6, 101)), other), None);
        let twice = Standing { history: FIRST.next(2), ..held(6, Version::new(6, 101)) };
        assert_eq!(parted(twice, kept(5, Version::new(5, 100))), None, "recovered twice, from two sides");
    }
}
