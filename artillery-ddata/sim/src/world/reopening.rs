//! What must hold when stores open a chain again of which no member lives on (docs/DESIGN.md §5.8).
//!
//! A life that syncs each batch loses nothing. One that syncs none keeps what it held if it is killed, and may lack the end of
//! it if the power is lost. So a chain may lack what was committed only if the power was lost at every member that served, and
//! none of them synced. A run ends there: what clients saw before has to be right, and nothing can be said of what follows.

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

/// What is known of the lives of stores.
#[derive(Default, Debug)]
pub(super) struct Lacking {
    /// What each life has found on its disk.
    found: BTreeMap<MemberId, Vec<StoreHolding>>,
    /// Lives that sync no batch.
    weak: BTreeSet<MemberId>,
    /// Those of them whose disks may lack what they held: the power was lost, or the disk failed.
    lacking: BTreeSet<MemberId>,
    /// Lives whose disk is gone.
    gone: BTreeSet<MemberId>,
    is_over: bool,
}

impl Lacking {
    /// A life begins with what its disk holds.
    pub(super) fn begins(&mut self, id: MemberId, opened: &Opened) {
        self.found.insert(id, opened.holds.clone());
        if opened.mode == SyncMode::Never {
            self.weak.insert(id);
        }
    }

    /// The power of the disk is lost, or the disk fails, and no start since this life has brought all that it held to the disk.
    pub(super) fn loses_power(&mut self, id: MemberId) {
        if self.weak.contains(&id) {
            self.lacking.insert(id);
        }
    }

    /// The disk of this life, which has ended, is gone.
    pub(super) fn loses_disk(&mut self, id: MemberId) {
        self.gone.insert(id);
    }

    /// Whether this life may lack on its disk what it held.
    pub(super) fn has_lost_power(&self, id: MemberId) -> bool {
        self.lacking.contains(&id)
    }

    pub(super) fn has_lost_disk(&self, id: MemberId) -> bool {
        self.gone.iter().any(|gone| gone.shares_store(id))
    }

    /// Whether the run has ended with a loss that the mode allows.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// What a later life of the store of `id` has found of a chain, if there is one.
    fn later(&self, id: MemberId, chain: ChainId) -> Option<&StoreHolding> {
        let (_, found) = self.found.iter().rev().find(|(life, _)| life.shares_store(id) && **life > id)?;
        found.iter().find(|holding| holding.chain == chain)
    }

    fn holding(&self, life: MemberId, chain: ChainId) -> Option<&StoreHolding> {
        self.found.get(&life)?.iter().find(|holding| holding.chain == chain)
    }

    /// Checks that `after` is what stores of `before` may open: whole ones that have synced since they served, or the longest of
    /// all, alone.
    fn check(&self, before: &ChainConfig, after: &ChainConfig) -> Result<(), String> {
        let chain = after.chain;
        let served = |life: MemberId| before.serving().find(|id| life.shares_store(*id));
        let mut all_synced = true;
        for life in after.serving() {
            let Some(id) = served(life) else {
                return Err(format!("{life} opens chain {}, and has not served", chain.0));
            };
            let is_whole = self.holding(life, chain).is_some_and(|held| held.whole);
            if !is_whole {
                return Err(format!("{life} opens chain {}, and its store isn't whole", chain.0));
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
                None => return Err(format!("chain {} is opened unsynced, and {id} isn't back", chain.0)),
                Some(held) if !opens(held) => {
                    return Err(format!("chain {} is opened unsynced, and {id} is longer: {}", chain.0, held.last));
                }
                Some(_) if !is_alone => return Err(format!("chain {} is opened unsynced by several stores", chain.0)),
                Some(_) => {}
            }
        }
        Ok(())
    }
}

impl World {
    /// Takes note of what the present life of a node has found on its disk.
    pub(super) fn note_life(&mut self, index: usize) {
        if let Some(opened) = &self.nodes[index].opened {
            self.lacking.begins(self.ids[index], opened);
        }
    }

    /// Checks the chains that were opened again since the last look.
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
            return fail(format!("chain {} is opened at {held}, and {committed} was committed", chain.0));
        }
        let known = held.sequence.0.checked_sub(1).and_then(|at| oracle.log().get(at as usize));
        if known.is_some_and(|known| known.version != held) {
            return fail(format!("chain {} is opened at {held}, which was never committed", chain.0));
        }
        self.trace.line(self.now, |out| write!(out, "chain {} lacks what no disk has synced: {held}", chain.0));
        self.end_with_loss();
        Ok(())
    }

    fn end_with_loss(&mut self) {
        self.counts.disks.losses += 1;
        self.lacking.is_over = true;
        self.phase = Phase::End;
    }

    /// Ends the run if a chain waits for an operator, since no store of it has synced, and one isn't whole or all lack what
    /// another node knows to be committed. Returns whether one does.
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
        // A member may have reported more to the leader before the power was lost.
        let is_known = || self.nodes.iter().any(knows_more) || self.highest_reported(config.chain) > Some(longest);
        is_torn || back.iter().all(|&(id, _)| lacks(id)) && is_known()
    }
}
