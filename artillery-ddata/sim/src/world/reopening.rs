//! Checks the stores that reopen a chain after all of its members' incarnations have ended (docs/DESIGN.md §5.8).
//!
//! An incarnation that syncs each batch loses nothing. One that never syncs keeps its data when it is killed, but may
//! lose the end of it when the power is lost. So committed updates may be lost only if no serving member synced and all
//! of them lost power. The run ends at such a loss: the clients' observations up to it must be correct, but nothing
//! after it can be checked.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use artillery_proto::{ChainConfig, ChainId, MemberId, control::message::StoreHolding, journal::SyncMode};

use super::{Phase, World};
use crate::{
    disk::Opened,
    oracle::{Failure, Oracle},
};

/// The data that incarnations found on their disks, and the data that their disks may have lost.
#[derive(Default, Debug)]
pub(super) struct Lacking {
    /// The data that each incarnation found on its disk.
    found: BTreeMap<MemberId, Vec<StoreHolding>>,
    /// Incarnations that never sync.
    weak: BTreeSet<MemberId>,
    /// Weak incarnations whose disks may be missing data: the power was lost, or the disk failed.
    lacking: BTreeSet<MemberId>,
    gone: BTreeSet<MemberId>,
    is_over: bool,
}

impl Lacking {
    pub(super) fn begins(&mut self, id: MemberId, opened: &Opened) {
        self.found.insert(id, opened.holds.clone());
        if opened.mode == SyncMode::Never {
            self.weak.insert(id);
        }
    }

    /// Records that the disk of this incarnation lost power or failed. Synced incarnations lose nothing.
    pub(super) fn loses_power(&mut self, id: MemberId) {
        if self.weak.contains(&id) {
            self.lacking.insert(id);
        }
    }

    pub(super) fn loses_disk(&mut self, id: MemberId) {
        self.gone.insert(id);
    }

    pub(super) fn has_lost_power(&self, id: MemberId) -> bool {
        self.lacking.contains(&id)
    }

    pub(super) fn has_lost_disk(&self, id: MemberId) -> bool {
        self.gone.iter().any(|gone| gone.shares_store(id))
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The data that a later incarnation of the store of `id` found of a chain.
    fn later(&self, id: MemberId, chain: ChainId) -> Option<&StoreHolding> {
        let (_, found) = self.found.iter().rev().find(|(life, _)| life.shares_store(id) && **life > id)?;
        found.iter().find(|holding| holding.chain == chain)
    }

    fn holding(&self, life: MemberId, chain: ChainId) -> Option<&StoreHolding> {
        self.found.get(&life)?.iter().find(|holding| holding.chain == chain)
    }

    /// Checks that the stores that form `after` may do so: whole synced stores, or the longest store of all, alone.
    fn check(&self, before: &ChainConfig, after: &ChainConfig) -> Result<(), String> {
        let chain = after.chain;
        let served = |life: MemberId| before.serving().find(|id| life.shares_store(*id));
        let mut all_synced = true;
        for life in after.serving() {
            let Some(id) = served(life) else {
                return Err(format!("{life} reopens chain {} but did not serve it", chain.0));
            };
            let is_whole = self.holding(life, chain).is_some_and(|held| held.whole);
            if !is_whole {
                return Err(format!("{life} reopens chain {} but its store is not whole", chain.0));
            }
            all_synced &= !self.weak.contains(&id);
        }
        if all_synced {
            return Ok(());
        }
        let opens = |held: &StoreHolding| {
            after.serving().filter_map(|life| self.holding(life, chain)).any(|of| of.last >= held.last)
        };
        let is_alone = after.serving().count() == 1;
        for id in before.serving() {
            match self.later(id, chain) {
                None => return Err(format!("chain {} reopens unsynced before {id} is back", chain.0)),
                Some(held) if !opens(held) => {
                    return Err(format!("chain {} reopens unsynced, but {id} is longer: {}", chain.0, held.last));
                }
                Some(_) if !is_alone => return Err(format!("chain {} reopens from several unsynced stores", chain.0)),
                Some(_) => {}
            }
        }
        Ok(())
    }
}

impl World {
    pub(super) fn note_life(&mut self, index: usize) {
        if let Some(opened) = &self.nodes[index].opened {
            self.lacking.begins(self.ids[index], opened);
        }
    }

    pub(super) fn check_reopenings(&mut self) -> Result<(), Failure> {
        for [before, after] in self.take_changes() {
            let lives_on = |id| before.serving().any(|other| other == id);
            // An operator may have accepted the loss of all stores.
            let loss = self.control.as_ref().and_then(|control| control.configs().loss(after.chain));
            let is_accepted = loss.is_some_and(|loss| loss.epoch == after.epoch);
            if !is_accepted && !after.serving().any(lives_on) {
                self.check_reopening(&before, &after)?;
            }
        }
        Ok(())
    }

    fn check_reopening(&mut self, before: &ChainConfig, after: &ChainConfig) -> Result<(), Failure> {
        let fail = |what: String| Err(Failure::new(Oracle::Reopened, what));
        if let Err(what) = self.lacking.check(before, after) {
            return fail(what);
        }
        let chain = after.chain;
        if self.has_unseen_loss(chain) {
            return Ok(());
        }
        let held = after.serving().filter_map(|life| self.lacking.holding(life, chain)).map(|held| held.last).max();
        let held = held.unwrap_or_default();
        let oracle = &self.oracles[chain.0 as usize];
        let committed = oracle.committed_up_to();
        if held.sequence >= committed {
            return Ok(());
        }
        if !before.serving().all(|id| self.lacking.lacking.contains(&id)) {
            return fail(format!("chain {} is reopened at {held}, but {committed} was committed", chain.0));
        }
        let known = held.sequence.0.checked_sub(1).and_then(|at| oracle.log().get(at as usize));
        if known.is_some_and(|known| known.version != held) {
            return fail(format!("chain {} is reopened at {held}, which was never committed", chain.0));
        }
        self.trace
            .line(self.now, |out| write!(out, "chain {} is missing updates that no disk has synced: {held}", chain.0));
        self.end_with_loss();
        Ok(())
    }

    fn end_with_loss(&mut self) {
        self.counts.disks.losses += 1;
        self.lacking.is_over = true;
        self.phase = Phase::End;
    }

    /// Ends the run if a chain must wait for an operator: none of its stores has synced, and one of them is not whole,
    /// or all end below a watermark that another node knows. Returns whether that is the case.
    pub(super) fn waits_for_operator(&mut self) -> bool {
        let Some(control) = &self.control else { return false };
        let waits = control.configs().iter().any(|config| self.may_stay_closed(config));
        if waits {
            self.trace.line(self.now, |out| write!(out, "a chain waits for an operator: no disk has synced all of it"));
            self.end_with_loss();
        }
        waits
    }

    fn may_stay_closed(&self, config: &ChainConfig) -> bool {
        let lacks = |id: MemberId| self.lacking.lacking.contains(&id);
        let back = config.serving().map(|id| self.lacking.later(id, config.chain).map(|held| (id, held)));
        let Some(back) = back.collect::<Option<Vec<_>>>() else { return false };
        if back.iter().any(|(_, held)| held.synced) {
            return false;
        }
        let is_torn = back.iter().any(|&(id, held)| lacks(id) && !held.whole);
        let longest = back.iter().map(|(_, held)| held.last.sequence).max().unwrap_or_default();
        let slot = config.chain.0 as usize;
        let knows_more = |node: &crate::node::Node| {
            node.is_alive() && node.slots[slot].runner.replica().status().watermark > longest
        };
        // A member may have reported more to the leader before it lost power.
        let is_known = || self.nodes.iter().any(knows_more) || self.highest_reported(config.chain) > Some(longest);
        is_torn || back.iter().all(|&(id, _)| lacks(id)) && is_known()
    }
}
