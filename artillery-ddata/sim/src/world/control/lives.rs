//! The start, pause and end of incarnations, and the members that remain in a chain without one of them.

use std::{collections::BTreeSet, fmt::Write as _};

use artillery_proto::{
    ChainConfig, ChainId, MemberId, NodeId, Sequence, allows, control::log::Configs, node::NodeInput,
};

use super::{Event, World};
use crate::{oracle::Failure, scenario::SECOND};

impl World {
    /// Stops an incarnation if the chains and the log can continue without it. Does nothing while an operator restarts
    /// nodes, or until a required recovery has taken place.
    pub(in super::super) fn stop_life(&mut self, node: usize) {
        let may_end = self.can_spare(node) && !self.is_rolling() && !self.may_need_recovery();
        if !self.nodes[node].is_alive() || !may_end {
            return;
        }
        self.restarts += 1;
        self.end_life(node);
    }

    pub(in super::super) fn end_life(&mut self, node: usize) {
        self.nodes[node].down = true;
        self.disconnect(node);
        self.leave_disk(node);
    }

    /// Whether each chain keeps another serving member without this node, and no pending decision may change that.
    pub(in super::super) fn chains_can_spare(&self, node: usize) -> bool {
        let Some(control) = &self.control else { return true };
        let stays = |id: MemberId| {
            let at = self.ids.iter().position(|&other| other == id).filter(|&at| at != node);
            at.is_some_and(|at| self.nodes[at].is_alive() && !self.nodes[at].fails && !self.nodes[at].stops)
        };
        let proposes = control.nodes.iter().any(|half| half.decider.proposes());
        let decides = control.group.in_limbo() || control.appends > 0 || proposes;
        !decides && control.configs().iter().all(|config| self.keeps_another(node, config, stays))
    }

    /// Whether each chain keeps another serving member, and the log a majority, without this node. Always true with
    /// disks.
    pub(in super::super) fn can_spare(&self, node: usize) -> bool {
        let Some(control) = &self.control else { return true };
        if self.setup.durable.is_some() {
            return true;
        }
        let without = self.ids[node];
        let lives = |id: MemberId| {
            id != without && self.ids.iter().position(|&other| other == id).is_some_and(|at| self.nodes[at].is_alive())
        };
        // A node that is about to end, or whose store fails, can't be counted on as a copy.
        let stays = |id: MemberId| {
            let at = self.ids.iter().position(|&other| other == id);
            lives(id) && at.is_some_and(|at| !self.nodes[at].fails && !self.nodes[at].stops)
        };
        let chains = control.configs().iter().all(|config| self.keeps_another(node, config, stays));
        // A pending decision may leave this node as the only member.
        let proposes = control.nodes.iter().any(|half| half.decider.proposes());
        let decides = control.group.in_limbo() || control.appends > 0 || proposes;
        !decides && chains && control.group.has_majority_of(lives)
    }

    /// Whether a chain has another member for which `stays` holds. If `node` serves the chain, a member that the newest
    /// leader has fenced is ignored: the leader is about to remove it, which would leave `node` alone in the chain.
    fn keeps_another(&self, node: usize, config: &ChainConfig, stays: impl Fn(MemberId) -> bool) -> bool {
        let serves = config.serving().any(|id| id == self.ids[node]);
        config.serving().any(|id| stays(id) && !(serves && self.is_fenced(id)))
    }

    fn is_fenced(&self, id: MemberId) -> bool {
        let Some(control) = &self.control else { return false };
        let alive = control.nodes.iter().zip(&self.nodes).filter(|(_, node)| node.is_alive());
        let leader = alive.map(|(half, _)| &half.decider).max_by_key(|decider| decider.decides_in());
        leader.is_some_and(|leader| leader.fences(id))
    }

    /// Whether each chain keeps the disk of a serving member, and the log a majority of disks, without this node's
    /// disk. In a world with unsynced stores, each chain must keep the disks of all serving members.
    pub(in super::super) fn can_lose_disk(&self, node: usize) -> bool {
        let Some(control) = &self.control else { return false };
        let is_kept = |id: MemberId| {
            let has_disk = |at: usize| at != node && self.ids[at].shares_store(id);
            (0..self.nodes.len()).any(has_disk) && !self.lacking.has_lost_disk(id)
        };
        // Stores that did not sync can only reopen a chain all together.
        let is_weak = self.setup.durable.is_some_and(|of| of.never > 0);
        let keeps = |config: &ChainConfig| match is_weak {
            true => config.serving().all(is_kept),
            false => config.serving().any(is_kept),
        };
        let chains = control.configs().iter().all(keeps);
        let proposes = control.nodes.iter().any(|half| half.decider.proposes());
        let decides = control.group.in_limbo() || control.appends > 0 || proposes || control.group.changes_voters();
        !decides && chains && control.group.has_majority_of(is_kept)
    }

    pub(in super::super) fn fail_store(&mut self, node: usize) {
        if self.control.is_some() && self.nodes[node].is_alive() && self.can_spare(node) {
            self.nodes[node].fails = true;
            self.failed.insert(self.ids[node]);
            self.nodes[node].failing.fail();
        }
    }

    /// Restarts a node whose store failed. Returns `false` while the chains or the log need the node.
    pub(in super::super) fn replace_store(&mut self, node: usize) -> bool {
        let is_there = self.nodes[node].fails && self.nodes[node].is_alive();
        if is_there && !self.can_spare(node) {
            return false;
        }
        if is_there {
            self.end_life(node);
            self.restart_life(node);
        }
        true
    }

    pub(in super::super) fn restart_life(&mut self, node: usize) {
        if self.nodes[node].down {
            self.queue.push(self.now, super::super::Event::Control(Event::Start(node)));
        }
    }

    pub(super) fn start_again(&mut self, index: usize) -> Result<(), Failure> {
        if !self.nodes[index].down || self.has_gone_over(index) || self.is_closing() {
            return Ok(());
        }
        self.replace_disk(index);
        self.arm_disk(index);
        let before = self.ids[index];
        let Some(control) = &mut self.control else { return Ok(()) };
        if !allows!(self.setup.guards, SameLife) {
            control.lives[index] += 1;
        }
        let (seed, life) = (control.seed, control.lives[index]);
        let id = match self.renew_node(seed, index, life) {
            Ok(id) => id,
            Err(error) => return self.not_opened(index, &error),
        };
        let Some(founding) = self.control.as_ref().map(|control| control.founding.clone()) else { return Ok(()) };
        if !self.keep_founding(index, &founding) {
            return Ok(());
        }
        let Some(control) = &mut self.control else { return Ok(()) };
        let has_disk = self.nodes[index].opened.is_some();
        let loads = has_disk && control.rng.chance(500);
        control.nodes[index] = control.half(index, &self.nodes[index], loads);
        self.counts.disks.starts += u64::from(before.shares_store(id));
        control.group.begins(before, id, allows!(self.setup.guards, LeadAgain));
        self.trace.line(self.now, |out| write!(out, "n{index} starts another incarnation"));
        self.reconnect(index);
        self.begin_half(index);
        if loads {
            self.load(index, id);
        }
        Ok(())
    }

    fn load(&mut self, node: usize, id: MemberId) {
        let Some(control) = &mut self.control else { return };
        let longest =
            if self.now + 4 * SECOND < self.setup.healed && control.rng.chance(400) { 3 * SECOND } else { SECOND / 10 };
        let at = self.now + control.rng.below(longest);
        self.queue.push(at, super::super::Event::Control(Event::Loaded { node, id }));
    }

    pub(super) fn has_loaded(&mut self, node: usize) {
        let holds = self.nodes[node].opened.as_ref().map(|opened| opened.holds.clone()).unwrap_or_default();
        self.hand_in(node, NodeInput::Loaded { holds });
    }

    pub(in super::super) fn pause(&mut self, node: usize, paused: bool) {
        if self.nodes[node].paused == paused || !self.nodes[node].is_alive() {
            return;
        }
        self.nodes[node].paused = paused;
        self.pauses += u64::from(paused);
        if !paused {
            for event in std::mem::take(&mut self.held[node]) {
                self.queue.push(self.now, event);
            }
        }
    }

    /// Returns the event, unless its node is paused. Such an event is kept until the node resumes.
    pub(in super::super) fn unless_paused(&mut self, event: super::super::Event) -> Option<super::super::Event> {
        let Some(node) = event.waits_for().filter(|&node| self.nodes[node].paused) else { return Some(event) };
        self.held[node].push(event);
        None
    }

    /// Whether each chain has as many members as are available, up to the replica count.
    pub(in super::super) fn is_settled(&self) -> bool {
        let Some(control) = &self.control else { return true };
        let lives = |id: MemberId| self.ids.contains(&id);
        control.configs().iter().all(|config| {
            let away = if self.setup.excused { self.kept_away(config.tail()) } else { BTreeSet::new() };
            let may_serve = |at: &usize| {
                let node = &self.nodes[*at];
                let serves = config.serving().any(|id| id == self.ids[*at]);
                node.is_alive() && (serves || !node.drained && !node.fails && !away.contains(&self.ids[*at].node))
            };
            let wanted = control.settings.replicas.min((0..self.nodes.len()).filter(may_serve).count());
            // Reopening stores all become members, even if that exceeds the replica count.
            let count = config.serving().count();
            let is_full = count == wanted || (count > wanted && self.counts.disks.reopened > 0);
            is_full && config.syncing().is_none() && config.serving().all(lives)
        })
    }

    pub(in super::super) fn all_may_return(&self) -> bool {
        self.kept_away(None).is_empty()
    }

    pub(in super::super) fn is_deciding(&self, node: usize) -> bool {
        self.control.as_ref().is_some_and(|control| control.nodes[node].decider.decides_in().is_some())
    }

    pub(in super::super) fn configs_of(&self, node: usize) -> Option<&Configs> {
        self.control.as_ref().map(|control| &**control.nodes[node].decider.configs())
    }

    pub(in super::super) fn unready(&self, node: usize) -> Option<String> {
        self.control.as_ref()?.nodes[node].decider.state().unready.map(|why| format!("n{node}: {why}"))
    }

    /// The leader and all incarnations that renewed within the suspicion time and are not leaving.
    pub(in super::super) fn heard_of(&self, leader: usize) -> BTreeSet<MemberId> {
        let Some(control) = &self.control else { return BTreeSet::new() };
        let suspect = control.founding.timing.suspect.as_nanos() as u64;
        let of = control.heard.iter().filter(|((by, _), _)| *by == leader);
        // The leader's clock may be slow.
        let drift = self.setup.control.map_or(0, |control| u64::from(control.drift));
        let longest = suspect + suspect * drift / (1_000_000 - drift) + suspect / 50;
        let heard = of.filter(|&(_, &(at, leaves))| !leaves && self.now - at <= longest);
        let itself = (!self.nodes[leader].drained).then_some(self.ids[leader]);
        heard.map(|(&(_, id), _)| id).chain(itself).collect()
    }

    /// Whether these nodes hold a majority of the voting stores. Compares stores, since a voter may have restarted.
    pub(in super::super) fn has_majority_among(&self, nodes: &BTreeSet<MemberId>) -> bool {
        let counts = |id: MemberId| nodes.iter().any(|node| node.shares_store(id));
        self.control.as_ref().is_none_or(|control| control.majority_in(counts))
    }

    pub(in super::super) fn highest_reported(&self, chain: ChainId) -> Option<Sequence> {
        let halves = self.control.as_ref()?.nodes.iter().zip(&self.nodes).filter(|(_, node)| node.is_alive());
        halves.filter_map(|(half, node)| half.decider.highest_watermark(chain, node.clock(self.now))).max()
    }

    /// Nodes that a leader keeps out of a chain temporarily because they held it up.
    fn kept_away(&self, tail: Option<MemberId>) -> BTreeSet<NodeId> {
        let Some(control) = &self.control else { return BTreeSet::new() };
        let halves = control.nodes.iter().zip(&self.nodes).filter(|(half, _)| half.decider.decides_in().is_some());
        halves.flat_map(|(half, node)| half.decider.kept_away(node.clock(self.now), tail)).collect()
    }

    pub(in super::super) fn members_now(&self, chain: usize) -> Vec<usize> {
        let Some(control) = &self.control else { return Vec::new() };
        let config = control.configs().get(ChainId(chain as u32));
        let at = |id: MemberId| self.ids.iter().position(|&other| other == id);
        config.map(|config| config.serving().filter_map(at).collect()).unwrap_or_default()
    }

    /// Whether a node serves all chains in the newest configurations. Always true if configurations never change.
    pub(in super::super) fn is_member_now(&self, node: usize) -> bool {
        self.control.is_none() || (0..self.setup.chains).all(|chain| self.members_now(chain).contains(&node))
    }
}
