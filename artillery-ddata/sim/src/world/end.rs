//! The end of a run: every key is read once more, members are compared, and histories are checked.

use artillery_proto::{
    ChainId, Sequence,
    api::ReadMode,
    replica::Status,
    store::{ScanRecord, Store, StoreError},
};

use super::{Counts, DiskEvents, Event, Outcome, World};
use crate::{
    checker::{self, Budget, Violation},
    faults::Kind,
    node::Caller,
    oracle::{Failure, Oracle, check_content},
    scenario::BACK,
};

/// Bytes by which the session table may exceed its bound at the end.
const TABLE_SLACK: usize = 1024;

impl World {
    /// Makes the clients read every key at every live node that serves all chains, in strong and in eventual mode.
    pub(super) fn write_script(&mut self) {
        let mut client = 0;
        for node in 0..self.nodes.len() {
            if !self.nodes[node].is_alive() || !self.is_member_now(node) {
                continue;
            }
            for key in 0..self.setup.keys.len() as u32 {
                for mode in [ReadMode::Strong, ReadMode::Eventual] {
                    self.clients[client].script.push_back((node, key, mode));
                    client = (client + 1) % self.clients.len();
                }
            }
        }
        for client in 0..self.clients.len() {
            self.queue.push(self.now, Event::Think(client));
        }
    }

    pub(super) fn script_done(&self) -> bool {
        self.clients.iter().all(|client| client.script.is_empty() && client.pending.is_none())
    }

    pub(super) fn check_end(&mut self) -> Result<(), Failure> {
        for index in 0..self.nodes.len() {
            self.catch_up(index)?;
        }
        self.check_progress()?;
        self.check_contenders()?;
        for chain in 0..self.setup.chains {
            self.check_chain(chain)?;
        }
        self.check_watchers()?;
        self.check_followers()?;
        self.check_nothing_due()?;
        self.check_all_ready()
    }

    /// Checks that no key has stayed for a second after it was due: the heads have led for long enough.
    fn check_nothing_due(&self) -> Result<(), Failure> {
        if self.setup.longest_ttl.is_none() && self.setup.locks.is_none() {
            return Ok(());
        }
        for chain in 0..self.setup.chains {
            for index in self.members_now(chain) {
                let node = &self.nodes[index];
                let now = node.slots[chain].gate.chain_time(node.clock(self.now));
                let next = node.store.next_expiry(ChainId(chain as u32));
                if let Some(next) = next.filter(|next| next.is_due(now.saturating_sub(1000))) {
                    let what = format!("n{index} of chain {chain} has a key that was due at {next:?}, and it is {now}");
                    return Err(Failure::new(Oracle::Expiry, what));
                }
            }
        }
        Ok(())
    }

    fn check_progress(&self) -> Result<(), Failure> {
        let fail = |what: String| Err(Failure::new(Oracle::Progress, what));
        let Counts { operations, healed, healed_refused, .. } = self.counts;
        if operations < self.setup.fewest {
            return fail(format!("only {operations} operations in {} virtual seconds", self.now / 1_000_000_000));
        }
        if healed_refused * 5 > healed {
            return fail(format!("{healed_refused} of {healed} operations were not served after healing"));
        }
        self.check_gray()?;
        if !self.script_done() {
            return fail("the final reads did not complete".into());
        }
        Ok(())
    }

    /// Checks that the write rate recovers although a live member holds up its chain.
    fn check_gray(&self) -> Result<(), Failure> {
        let Some(gray) = self.setup.gray else { return Ok(()) };
        let quiet = self.counts.writes_between(gray.quiet, gray.start);
        let back = self.counts.writes_between(gray.start + BACK, gray.end);
        if back * 10.0 < quiet * 8.0 {
            let what = format!("{back:.1} writes per second while a member held up its chain, {quiet:.1} before");
            return Err(Failure::new(Oracle::Stalled, what));
        }
        Ok(())
    }

    fn check_chain(&self, chain: usize) -> Result<(), Failure> {
        if self.control.is_some() {
            return self.check_moving_chain(chain);
        }
        let oracle = &self.oracles[chain];
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| !node.crashed) {
            self.check_answered(index)?;
            let status = node.slots[chain].runner.replica().status();
            let Some(place) = self.place(index, chain) else { continue };
            let name = format!("n{index} of chain {chain}");
            check_content(&name, &oracle.content(oracle.last(place).sequence), self.records(index, chain)?)?;
            if self.crashes > 0 {
                continue;
            }
            let newest = oracle.last(0);
            if status.last != newest || status.watermark != newest.sequence {
                let what =
                    format!("{name} holds {} and committed {}, the head {newest}", status.last, status.watermark);
                return Err(Failure::new(Oracle::Convergence, what));
            }
            self.check_settled(chain, &name, &status)?;
        }
        self.check_acknowledged(chain)
    }

    /// Checks that each member of the last configuration holds exactly the committed updates.
    fn check_moving_chain(&self, chain: usize) -> Result<(), Failure> {
        let fail = |oracle: Oracle, what: String| Err(Failure::new(oracle, what));
        if !self.is_settled() {
            return fail(Oracle::Progress, "a chain didn't get its members back after healing".into());
        }
        let oracle = &self.oracles[chain];
        let committed = oracle.committed_up_to();
        let expected = oracle.content(committed);
        for index in self.members_now(chain) {
            let name = format!("n{index} of chain {chain}");
            self.check_answered(index)?;
            let status = self.nodes[index].slots[chain].runner.replica().status();
            if status.last.sequence != committed || status.watermark != committed {
                let what = format!("{name} holds {}, committed {} of {committed}", status.last, status.watermark);
                return fail(Oracle::Convergence, what);
            }
            check_content(&name, &expected, self.records(index, chain)?)?;
            self.check_settled(chain, &name, &status)?;
        }
        match self.newest_acknowledged(chain) {
            Some(newest) if newest.sequence > committed => {
                fail(Oracle::Convergence, format!("{newest} was acknowledged, but only {committed} is committed"))
            }
            _ => Ok(()),
        }
    }

    fn check_answered(&self, index: usize) -> Result<(), Failure> {
        let callers = self.nodes[index].slots.iter().flat_map(|slot| slot.runner.callers());
        let mut clients = callers.filter_map(|caller| match caller {
            Caller::Client(origin) => Some(origin),
            Caller::Watcher(..) | Caller::Contender(..) | Caller::Follower(..) => None,
        });
        match clients.next() {
            Some(origin) => {
                let what = format!("n{index} never answered op {} of client {}", origin.number, origin.client);
                Err(Failure::new(Oracle::Answers, what))
            }
            None => Ok(()),
        }
    }

    fn records(&self, index: usize, chain: usize) -> Result<impl Iterator<Item = ScanRecord> + use<>, Failure> {
        let records = self.nodes[index].store.scan(ChainId(chain as u32), b"", Sequence::MAX);
        let records: Vec<_> = records.collect::<Result<_, StoreError>>().map_err(|error| {
            Failure::new(Oracle::Convergence, format!("n{index} of chain {chain} could not be read: {error}"))
        })?;
        Ok(records.into_iter())
    }

    fn check_settled(&self, chain: usize, name: &str, status: &Status) -> Result<(), Failure> {
        self.check_table(chain, name, status)?;
        if status.parked_reads + status.waiting_writes + status.in_flight > 0 || status.rereplication.left > 0 {
            return Err(Failure::new(Oracle::Convergence, format!("{name} still has work pending: {status:?}")));
        }
        Ok(())
    }

    /// Checks that a member has as many sessions as the log, and that its session table is within its bound.
    fn check_table(&self, chain: usize, name: &str, status: &Status) -> Result<(), Failure> {
        let open = self.oracles[chain].sessions();
        // The last update may have been applied while no session could be evicted.
        let limit = self.setup.session_bytes + TABLE_SLACK;
        if status.sessions.count != open || status.sessions.count > 1 && status.sessions.bytes > limit {
            let (sessions, bytes) = (status.sessions.count, status.sessions.bytes);
            let what = format!("{name} has {sessions} sessions in {bytes} bytes, not {open} in {limit} or less");
            return Err(Failure::new(Oracle::Convergence, what));
        }
        Ok(())
    }

    fn check_acknowledged(&self, chain: usize) -> Result<(), Failure> {
        let newest = self.newest_acknowledged(chain);
        let Some(newest) = newest else { return Ok(()) };
        for (index, _) in self.nodes.iter().enumerate().filter(|(_, node)| !node.crashed) {
            let Some(place) = self.place(index, chain) else { continue };
            let last = self.oracles[chain].last(place);
            if last < newest {
                let what = format!("n{index} holds chain {chain} only up to {last}, but {newest} was acknowledged");
                return Err(Failure::new(Oracle::Convergence, what));
            }
        }
        Ok(())
    }

    /// Makes the result. A violation in a client history takes precedence over a failure that was kept until the end,
    /// and this one over the failure that ended the run.
    pub(super) fn finish(mut self, failure: Option<Failure>) -> Outcome {
        self.count();
        let seen = self.check_histories();
        let failure = seen.or(self.claim.take()).or(failure);
        self.trace.line(self.now, |out| {
            use std::fmt::Write as _;
            write!(out, "end: {:?}", self.counts)
        });
        Outcome { counts: self.counts, failure, served: self.audit, trace: self.trace.take() }
    }

    /// Checks the history of each chain separately, since sequences are numbered per chain.
    fn check_histories(&mut self) -> Option<Failure> {
        self.give_up_all();
        let mut histories = std::mem::take(&mut self.histories);
        histories.extend(self.history_before_loss().cloned());
        histories.iter().find_map(|history| {
            let seen = |what: String, history| Some(Failure { oracle: Oracle::History, what, history });
            if let Err(violation) = checker::check(history, Budget::default()) {
                let shortest = checker::shortest(history, &violation);
                let stuck = violation.operation().copied();
                let operations = shortest.operations.clone();
                let stuck = operations.iter().position(|operation| Some(*operation) == stuck);
                let what = Violation { stuck, operations, ..violation }.to_string();
                return seen(what, Some(Box::new(shortest)));
            }
            checker::check_more(history).err().and_then(|broken| seen(broken.to_string(), None))
        })
    }

    fn count(&mut self) {
        self.count_contenders();
        let effects = self.network.effects;
        let counts = &mut self.counts;
        counts.virtual_nanos = self.now;
        for (at, kind) in Kind::ALL.iter().enumerate() {
            counts.faults[at] = match kind {
                Kind::Loss => effects.lost,
                Kind::Duplication => effects.duplicated,
                Kind::Reorder => effects.reordered,
                Kind::Delay => effects.delayed,
                Kind::Break => effects.broken,
                Kind::Cut => effects.cut,
                Kind::Slow => self.slow_steps,
                Kind::SlowDisk => self.slow_syncs,
                Kind::Crash => self.crashes,
                Kind::Restart => self.restarts,
                Kind::Pause => self.pauses,
                Kind::Isolate => self.isolations,
                Kind::Far => effects.far,
                Kind::Order => self.orders_done,
                Kind::Drain => self.drains,
                Kind::Leave => self.leaves,
                Kind::Roll => self.rolls,
                Kind::Halt => self.halts,
                Kind::Found => self.foundings,
                Kind::Meet => self.meetings,
                Kind::Recover => self.recoveries,
                Kind::Outage => self.outages,
                Kind::Accept => self.accepted,
                Kind::Undialable => self.undialable,
                Kind::Young => self.young,
            };
        }
        for disk in &self.disks {
            let of = disk.counts();
            counts.disks.add(DiskEvents { cuts: of.cuts, lossy: of.lossy_cuts, ..DiskEvents::default() });
        }
        for slot in self.nodes.iter().flat_map(|node| &node.slots) {
            let reads = slot.runner.replica().status().reads;
            counts.dirty_reads += reads.dirty;
            counts.shared_queries += reads.shared_queries;
            counts.version_queries += reads.version_queries;
        }
    }
}
