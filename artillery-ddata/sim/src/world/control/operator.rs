//! An operator that restarts nodes one after the other: it sends a node SIGTERM, and proceeds to the next node once the
//! first one reports ready again.

use std::fmt::Write as _;

use artillery_proto::MemberId;

use super::{Event, World};
use crate::{
    oracle::{Failure, Oracle},
    scenario::{HEALED, SECOND},
};

/// How long before healing the operator stops the last node.
const LAST: u64 = 5 * SECOND;

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Rolling {
    /// No restart is in progress.
    #[default]
    Rests,
    /// SIGTERM was sent to this node.
    Leaves(usize),
    /// This node has ended, and its next incarnation is not ready yet.
    Starts(usize),
}

impl World {
    pub(super) fn operate(&mut self) {
        let Some(control) = &mut self.control else { return };
        let (pause, draw) = (control.operator.between(20_000_000, 400_000_000), control.operator.below(u64::MAX));
        let after = control.operator.between(20_000_000, 1_500_000_000);
        match control.rolling {
            Rolling::Rests if self.now < HEALED - LAST => {
                let is_well = |node: &crate::node::Node| node.is_alive() && !node.drained && !node.fails && node.ready;
                if self.nodes.iter().all(is_well) {
                    let node = (draw % self.nodes.len() as u64) as usize;
                    control.rolling = Rolling::Leaves(node);
                    self.rolls += 1;
                    self.trace.line(self.now, |out| write!(out, "SIGTERM for n{node}"));
                    // With disks, one node in four leaves its chains. The others only withdraw.
                    if self.setup.durable.is_some() && !(draw >> 32).is_multiple_of(4) {
                        self.withdraw(node);
                    } else {
                        self.nodes[node].stops = true;
                        self.ask_to_leave(node, None);
                    }
                }
            }
            Rolling::Rests => return,
            // The node has ended, or it was killed and may have started again.
            Rolling::Leaves(node) if !self.nodes[node].is_alive() || !self.nodes[node].drained => {
                control.rolling = Rolling::Starts(node);
                self.queue.push(self.now + after, super::super::Event::Control(Event::Start(node)));
            }
            Rolling::Starts(node) if self.nodes[node].is_alive() && self.nodes[node].ready => {
                control.rolling = Rolling::Rests;
                return self.queue.push(self.now + 2 * pause, super::super::Event::Control(Event::Operate));
            }
            Rolling::Leaves(_) | Rolling::Starts(_) => {}
        }
        self.queue.push(self.now + pause, super::super::Event::Control(Event::Operate));
    }

    /// Whether a restart is in progress. No other node is killed then.
    pub(in super::super) fn is_rolling(&self) -> bool {
        self.control.as_ref().is_some_and(|control| control.rolling != Rolling::Rests)
    }

    /// Ends a node that was asked to stop, and checks that it may end.
    pub(super) fn ends_when_told(&mut self, node: usize) -> Result<(), Failure> {
        if !self.nodes[node].stops || !self.nodes[node].is_alive() {
            return Ok(());
        }
        if self.nodes[node].returns {
            // Its disk keeps its copy and its vote.
            self.end_life(node);
            self.start_soon(node);
            return Ok(());
        }
        self.check_last_copy(node)?;
        self.check_last_votes(node)?;
        self.end_life(node);
        Ok(())
    }

    /// Checks that this node does not take the log's majority from a member that was not asked to stop.
    fn check_last_votes(&self, node: usize) -> Result<(), Failure> {
        let Some(control) = &self.control else { return Ok(()) };
        let at = |id: MemberId| self.ids.iter().position(|&other| other == id).filter(|&at| self.nodes[at].is_alive());
        let stays = |id: MemberId| at(id).is_some_and(|at| at != node && !self.nodes[at].stops && !self.nodes[at].left);
        let mut members = control.configs().iter().flat_map(|config| config.serving());
        let had = control.group.has_majority_of(|id| at(id).is_some());
        let has = control.group.has_majority_of(|id| at(id).is_some_and(|at| at != node));
        if had && !has && members.any(stays) {
            let what = format!("n{node} was asked to stop, and took the log's quorum with it");
            return Err(Failure::new(Oracle::Lost, what));
        }
        Ok(())
    }

    /// Checks that this node is not the last serving member of a chain while another node could replace it.
    fn check_last_copy(&self, node: usize) -> Result<(), Failure> {
        let Some(control) = &self.control else { return Ok(()) };
        let (me, there) = (self.ids[node], |id: MemberId| {
            let is_whole = |&at: &usize| self.nodes[at].is_alive() && !self.nodes[at].fails && at != node;
            self.ids.iter().position(|&other| other == id).filter(is_whole)
        });
        let others = (0..self.nodes.len()).any(|at| at != node && self.nodes[at].is_alive() && !self.nodes[at].drained);
        for config in control.configs().iter() {
            let serves = config.serving().any(|id| id == me);
            if serves && others && !config.serving().any(|id| there(id).is_some()) {
                let what =
                    format!("n{node} was asked to stop, and was the last member serving chain {}", config.chain.0);
                return Err(Failure::new(Oracle::Lost, what));
            }
        }
        Ok(())
    }
}
