//! The beginning and end of faults, and the connections that they break.

use super::{Event, World, disks};
use artillery_proto::{MemberId, data_dir::OpenError};

use crate::{
    faults::Fault,
    network::Flight,
    node::Node,
    scenario::{HEALED, LAST, OPERATIONS, SECOND},
};

impl World {
    pub(super) fn planned(&self, index: usize) -> Fault {
        let plan = &self.setup.faults;
        plan.get(index).or(self.setup.crash.as_ref()).map_or(Fault::Loss(0), |planned| planned.fault)
    }

    fn planned_end(&self, index: usize) -> u64 {
        let plan = &self.setup.faults;
        plan.get(index).or(self.setup.crash.as_ref()).map_or(0, |planned| planned.end)
    }

    fn now_at(&self, index: usize) -> Vec<Fault> {
        match self.planned(index) {
            Fault::Play(_) => self.plays[index].clone(),
            fault => vec![fault],
        }
    }

    fn set_faults(&mut self) -> Vec<Fault> {
        let planned = (0..self.active.len()).filter(|&at| self.active[at]).flat_map(|at| self.now_at(at));
        let active: Vec<Fault> = planned.chain(self.strikes.iter().copied()).collect();
        self.network.set_faults(active.iter().copied());
        active
    }

    /// Schedules an unplanned fault from `start` to `end`, aimed at a node in the middle of some activity.
    pub(super) fn strike(&mut self, fault: Fault, start: u64, end: u64) {
        if start < HEALED {
            self.queue.push(start, Event::Strike { fault, begins: true });
            self.queue.push(end.min(HEALED), Event::Strike { fault, begins: false });
        }
    }

    pub(super) fn struck(&mut self, fault: Fault, begins: bool) {
        use std::fmt::Write as _;
        self.trace.line(self.now, |out| write!(out, "{} {fault}, unplanned", if begins { "begin" } else { "end" }));
        if begins {
            self.strikes.push(fault);
        } else if let Some(at) = self.strikes.iter().position(|&other| other == fault) {
            self.strikes.remove(at);
        }
        self.set_faults();
        match fault {
            Fault::Break(a, b) => self.set_connection(a, b, !self.is_broken(a, b)),
            Fault::Isolate(_) => self.isolations += u64::from(begins),
            _ => {}
        }
    }

    pub(super) fn fault(&mut self, index: usize, begins: bool) {
        use std::fmt::Write as _;
        let fault = self.planned(index);
        if matches!(fault, Fault::Crash(_)) && self.counts.operations < OPERATIONS && self.now < LAST / 2 {
            // Postpone the crash until the clients have begun enough operations, or too much time has passed.
            self.queue.push(self.now + SECOND, Event::Fault { index, begins });
            return;
        }
        self.trace.line(self.now, |out| write!(out, "{} {fault}", if begins { "begin" } else { "end" }));
        self.active[index] = begins;
        let mut played = self.plays.get(index).cloned().unwrap_or_default();
        if let Fault::Play(play) = fault {
            self.plays[index] = if begins { self.cast(play) } else { Vec::new() };
            played.extend_from_slice(&self.plays[index]);
        }
        let active = self.set_faults();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            node.cost = active.iter().fold(self.setup.cost, |cost, fault| match fault {
                Fault::Slow(slow, nanos) if *slow == index => cost.max(*nanos),
                _ => cost,
            });
        }
        match fault {
            Fault::Break(a, b) if a != b => {
                self.set_connection(a, b, !self.is_broken(a, b));
            }
            Fault::Crash(node) if begins && self.can_spare(node) => self.crash(node),
            Fault::Restart(node) | Fault::Replace(node) if self.control.is_some() && begins => self.stop_life(node),
            Fault::Replace(node) => self.restart_with_empty_disk(node),
            Fault::Restart(node) if self.control.is_some() => self.restart_life(node),
            Fault::Restart(node) if begins => self.stop(node),
            Fault::Restart(node) => self.restart(node),
            Fault::Pause(node) => self.pause(node, begins),
            Fault::Order(number) if begins => self.want_order(number),
            Fault::Drain(node) if begins => self.drain(node, self.planned_end(index)),
            Fault::Drain(node) => self.end_drain(node),
            Fault::Leave(node) if begins => self.leave_for_good(node),
            Fault::Halt(node) if begins => self.fail_store(node),
            // Retry later while the chains or the log can't do without the node.
            Fault::Halt(node) if !self.replace_store(node) => {
                self.queue.push(self.now + SECOND / 10, Event::Fault { index, begins });
            }
            Fault::Outage(number) if begins => self.power_fails(number),
            Fault::Outage(_) => self.power_is_back(),
            Fault::Isolate(_) => self.isolations += u64::from(begins),
            Fault::Undialable(node) => self.dial_anew(node, begins),
            Fault::Young(node) if begins => self.live_young(node),
            Fault::Play(_) => {
                let isolates = self.plays[index].iter().any(|fault| matches!(fault, Fault::Isolate(_)));
                self.isolations += u64::from(isolates);
                for fault in played {
                    if let Fault::Undialable(node) = fault {
                        self.dial_anew(node, begins);
                    }
                }
            }
            _ => {}
        }
    }

    /// Breaks all connections of a node and restores them where they can be dialled.
    fn dial_anew(&mut self, node: usize, begins: bool) {
        self.undialable += u64::from(begins);
        for peer in (0..self.nodes.len()).filter(|&peer| peer != node) {
            self.set_connection(node, peer, false);
            self.set_connection(node, peer, !self.is_broken(node, peer));
        }
    }

    /// Advances the crash loop of a node without a name: it ends shortly after each start, and starts as another node.
    /// While its chains could not continue without it, it stays up.
    pub(super) fn live_young(&mut self, node: usize) {
        let is_looping = (0..self.active.len()).any(|at| self.active[at] && self.planned(at) == Fault::Young(node));
        let again = if self.nodes[node].down {
            self.restart_life(node);
            self.notices.between(SECOND * 3 / 10, 3 * SECOND)
        } else if !is_looping {
            return;
        } else if self.nodes[node].is_alive() && self.chains_can_spare(node) {
            self.young += 1;
            self.end_life(node);
            match self.notices.chance(500) {
                true => self.notices.between(SECOND * 4 / 10, SECOND * 6 / 10),
                false => self.notices.between(SECOND * 4 / 10, SECOND * 16 / 10),
            }
        } else {
            SECOND / 10
        };
        self.queue.push(self.now + again, Event::Young(node));
    }

    /// Whether a fault keeps the connection of `a` and `b` down.
    pub(super) fn is_broken(&self, a: usize, b: usize) -> bool {
        let pair = |fault: Fault| matches!(fault, Fault::Break(c, d) if (c, d) == (a, b) || (d, c) == (a, b));
        let planned = (0..self.active.len()).any(|at| self.active[at] && pair(self.planned(at)));
        planned || self.strikes.iter().any(|&fault| pair(fault))
    }

    pub(super) fn crash(&mut self, node: usize) {
        self.crashes += 1;
        self.nodes[node].crashed = true;
        self.disconnect(node);
    }

    pub(super) fn disconnect(&mut self, node: usize) {
        self.nodes[node].inbox.clear();
        for peer in 0..self.nodes.len() {
            if peer != node {
                self.set_connection(node, peer, false);
            }
        }
    }

    /// Breaks or restores a connection. Each side notices after its own delay.
    pub(super) fn set_connection(&mut self, a: usize, b: usize, up: bool) {
        let up = up && self.nodes[a].is_alive() && self.nodes[b].is_alive();
        let Some(generation) = self.network.set_up(a, b, up) else { return };
        for (node, peer) in [(a, b), (b, a)] {
            let late = self.notices.chance(200);
            let after = self.notices.below(if late { 400_000_000 } else { 30_000_000 });
            // A node notices only the connection that it dials itself.
            let connected = up && !self.network.is_undialable(peer);
            self.queue.push(self.now + after, Event::Notice { node, peer, generation, connected });
        }
    }

    /// Replaces a node by its next incarnation, with the same speed and clock rate.
    pub(super) fn renew_node(&mut self, seed: u64, index: usize, life: u64) -> Result<MemberId, OpenError> {
        let (cost, fast) = (self.nodes[index].cost, self.nodes[index].fast);
        let generations: Vec<u64> = self.nodes[index].peers.iter().map(|view| view.generation).collect();
        let mode = disks::draw_mode(&mut self.disk_rng, &self.setup);
        let disk = self.disks.get(index).map(|disk| (disk, mode));
        self.nodes[index] = Node::new(seed, index, life, &self.setup, disk)?;
        (self.nodes[index].cost, self.nodes[index].fast) = (cost, fast);
        for (view, generation) in self.nodes[index].peers.iter_mut().zip(generations) {
            view.generation = generation;
        }
        self.ids[index] = self.nodes[index].id;
        self.note_life(index);
        Ok(self.ids[index])
    }

    pub(super) fn reconnect(&mut self, index: usize) {
        for peer in 0..self.nodes.len() {
            if peer != index && self.nodes[peer].is_alive() {
                self.set_connection(index, peer, !self.is_broken(index, peer));
            }
        }
    }

    /// Sends a message outside of the chain's streams, which occupies no capacity of the link. Returns the copies that
    /// arrive. An answer travels on the connection that its receiver dialled.
    pub(super) fn beside(&mut self, from: usize, to: usize, answers: bool) -> impl Iterator<Item = Flight> + use<> {
        let (up, generation) = self.network.connection(from, to);
        let sent = up.then(|| match answers {
            true => self.network.answer(self.now, from, to, generation),
            false => self.network.send(self.now, from, to, generation, 0),
        });
        sent.into_iter().flat_map(|(first, copy)| std::iter::once(first).chain(copy)).filter(|flight| !flight.lost)
    }
}
