//! A process that contends for a lock: its clock, the machine of its queue, and its requests. It also holds the lock,
//! renews its key and releases it.

mod answer;
mod clock;

use std::time::Duration;

use artillery_proto::{
    Timestamp, Version, allows,
    api::{Query, Write},
    guards::Guards,
    recipes::{
        Contender, KeyLease, QueueStep,
        name::{Kind, prefix},
        renewal::{Renewal, RenewedKey, renewal},
    },
};
use bytes::Bytes;

pub use self::clock::ProcessClock;
use super::Request;
use crate::{
    rng::{Concern, Rng},
    scenario::{LockSetup, Setup},
    world::LockCounts,
};

const MILLI: u64 = 1_000_000;

/// The most attempts to delete the key of a released lock. A key that stays expires.
const RELEASES: u32 = 6;

/// Bounds on the time after a refusal until the next attempt, in nanoseconds.
const BACKOFF: (u64, u64) = (MILLI, 40 * MILLI);

/// A process that contends for a lock.
#[derive(Debug)]
pub struct Process {
    /// Its stream of random numbers.
    pub rng: Rng,
    /// The number of the lock.
    pub lock: usize,
    /// The chain of the lock's keys.
    pub chain: usize,
    /// Its clock.
    pub clock: ProcessClock,
    /// Counts its restarts.
    pub incarnation: u32,
    /// Its place in the queue of the lock.
    pub machine: Contender,
    /// It handles no event before this virtual time.
    pub paused_until: u64,
    /// Its requests and their answers are lost before this virtual time.
    pub cut_until: u64,
    /// The number of its newest scheduled event.
    pub wake: u64,
    /// Its events.
    pub counts: LockCounts,
    index: usize,
    lease: KeyLease,
    guards: Guards,
    plan: Plan,
    main: Option<Sent>,
    renewal: Option<Sent>,
    attempts: u64,
    /// The node that it believes to be the head of the chain.
    head: usize,
    /// It sends no main request, and no renewal, before these virtual times.
    not_before: [u64; 2],
}

/// The present occupation of the process, with times in virtual nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Plan {
    Resting { until: u64 },
    Contending,
    Holding { until: u64 },
    Releasing { key: Bytes, tries: u32 },
}

/// A request without an answer.
#[derive(Debug)]
struct Sent {
    attempt: u64,
    kind: SentKind,
    /// When it was sent, by the clock of the process.
    at: Timestamp,
    /// The virtual time at which the process stops waiting.
    until: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SentKind {
    Place,
    Look,
    Watch,
    Delete,
    Renewal(Version),
}

/// An action of a process.
#[derive(Debug)]
pub enum Act {
    /// It sends a request.
    Send {
        /// The number of the attempt, unique within the process.
        attempt: u64,
        /// The node that gets the request.
        node: usize,
        /// The request.
        request: Request,
        /// The virtual time at which the process stops waiting.
        until: u64,
        /// Whether a pause now would fall between a decision and its consequence.
        is_critical: bool,
    },
    /// It begins to hold the lock with the key of this version.
    Holds(Version),
}

impl Process {
    /// The process with this index. It begins to contend soon.
    pub fn new(seed: u64, index: usize, setup: &Setup, locks: &LockSetup) -> Self {
        let mut rng = Rng::new(seed, Concern::Contender(index));
        let drift = i64::from(setup.drift());
        let fast = rng.between(0, 2 * drift as u64) as i64 - drift;
        let clock = ProcessClock::new(rng.between(0, 1 << 50), fast);
        let lock = index % locks.names;
        let ttl = Duration::from_millis(match rng.chance(800) {
            true => rng.between(200, 900),
            false => rng.between(200, locks.longest_ttl),
        });
        let lease = KeyLease::new(ttl, locks.drift_ppm, setup.guards);
        let until = rng.below(500 * MILLI);
        Self {
            lock,
            chain: lock % setup.chains,
            clock,
            incarnation: 0,
            machine: machine(index, 0, lock, lease, setup.guards),
            paused_until: 0,
            cut_until: 0,
            wake: 0,
            counts: LockCounts::default(),
            index,
            lease,
            guards: setup.guards,
            plan: Plan::Resting { until },
            main: None,
            renewal: None,
            attempts: 0,
            head: rng.index(setup.members),
            not_before: [0; 2],
            rng,
        }
    }

    /// Ends the process. It forgets everything, and starts again after `rest` virtual nanoseconds.
    pub fn die(&mut self, now: u64, rest: u64) {
        self.incarnation += 1;
        self.counts.deaths += 1;
        self.main = None;
        self.rest(now + rest);
    }

    /// Pauses the process until this virtual time.
    pub fn pause(&mut self, now: u64, until: u64) {
        self.counts.pauses += 1;
        self.counts.paused_holders += u64::from(self.is_held(now));
        if allows!(self.guards, SuspendClock) {
            self.clock.suspend(now, until);
        }
        self.paused_until = until;
    }

    /// The time to live of its keys, in nanoseconds.
    pub fn ttl(&self) -> u64 {
        self.lease.ttl().as_nanos() as u64
    }

    /// Whether it certainly holds the lock, by its own clock.
    pub fn is_held(&self, now: u64) -> bool {
        self.machine.is_held(self.clock.at(now))
    }

    /// The version of its key, while it waits for the lock or holds it and the key certainly exists.
    pub fn certain(&self, now: u64) -> Option<Version> {
        let version = self.machine.version().filter(|_| self.takes_part())?;
        self.machine.lease().is_held(self.clock.at(now)).then_some(version)
    }

    /// Whether it waits for the lock.
    pub fn waits(&self) -> bool {
        self.plan == Plan::Contending
    }

    /// Whether it waits for the lock or holds it.
    fn takes_part(&self) -> bool {
        matches!(self.plan, Plan::Contending | Plan::Holding { .. })
    }

    /// Performs the due actions. With `retires` it doesn't begin to contend, and releases the lock soon.
    pub fn act(&mut self, now: u64, nodes: usize, retires: bool) -> Vec<Act> {
        let mut acts = Vec::new();
        self.time_out(now, nodes);
        match self.plan {
            Plan::Resting { until } if now < until || retires => return acts,
            Plan::Resting { .. } => {
                self.machine = machine(self.index, self.incarnation, self.lock, self.lease, self.guards);
                self.plan = Plan::Contending;
            }
            Plan::Releasing { .. } | Plan::Contending | Plan::Holding { .. } => {}
        }
        if self.main.is_none() && now >= self.not_before[0] {
            self.proceed(now, nodes, retires, &mut acts);
        }
        self.renew(now, &mut acts);
        acts
    }

    /// The virtual time at which it acts next, if no answer arrives before.
    pub fn next(&self, now: u64) -> u64 {
        let lease = self.machine.lease();
        let main = match (&self.main, &self.plan) {
            (Some(sent), _) => sent.until,
            // It has retired.
            (None, Plan::Resting { until }) if *until <= now => u64::MAX,
            (None, Plan::Resting { until }) => *until,
            (None, Plan::Holding { until }) => self.clock.moment(lease.until()).min(*until),
            // It waits for the answer to a renewal.
            (None, Plan::Contending) if self.not_before[0] <= now => u64::MAX,
            (None, Plan::Contending | Plan::Releasing { .. }) => self.not_before[0],
        };
        let renewal = match &self.renewal {
            Some(sent) => sent.until,
            None if self.takes_part() && self.machine.version().is_some() => {
                self.clock.moment(lease.renew_at()).max(self.not_before[1])
            }
            None => u64::MAX,
        };
        main.min(renewal).max(now + 1)
    }

    /// Abandons the requests whose time is over: their outcome stays unknown.
    fn time_out(&mut self, now: u64, nodes: usize) {
        if self.main.as_ref().is_some_and(|sent| now >= sent.until) {
            self.main = None;
            self.head = self.rng.index(nodes);
        }
        if let Some(sent) = self.renewal.take_if(|sent| now >= sent.until) {
            self.head = self.rng.index(nodes);
            self.renewed(now, &sent, Renewal::Unknown);
        }
    }

    fn renew(&mut self, now: u64, acts: &mut Vec<Act>) {
        let (Some(version), Some(key)) = (self.machine.version(), self.machine.key()) else { return };
        let lease = *self.machine.lease();
        let is_due = self.clock.at(now) >= lease.renew_at() && now >= self.not_before[1];
        if !self.takes_part() || !is_due || self.renewal.is_some() {
            return;
        }
        let write = renewal([&RenewedKey { key, ttl: lease.ttl(), value: None }]);
        let until = self.clock.moment(self.clock.at(now) + lease.renewal_timeout());
        let (sent, act) = self.send(now, SentKind::Renewal(version), Request::Write(write), self.head, until);
        self.renewal = Some(sent);
        acts.push(act);
    }

    fn proceed(&mut self, now: u64, nodes: usize, retires: bool, acts: &mut Vec<Act>) {
        let (kind, request, node) = match &self.plan {
            Plan::Resting { .. } => return,
            Plan::Releasing { tries: RELEASES.., .. } => return self.rest_for(now),
            Plan::Releasing { key, .. } => {
                let write = Write::Delete { key: key.clone() };
                if let Plan::Releasing { tries, .. } = &mut self.plan {
                    *tries += 1;
                }
                (SentKind::Delete, Request::Write(write), self.head)
            }
            Plan::Contending | Plan::Holding { .. } => match self.machine.next(self.clock.at(now)) {
                QueueStep::Place(write) => (SentKind::Place, Request::Write(write), self.head),
                QueueStep::Ask(query, mode) => {
                    let kind = if let Query::Changes(_) = query { SentKind::Watch } else { SentKind::Look };
                    (kind, Request::Read(query, mode), self.rng.index(nodes))
                }
                QueueStep::Confirm => {
                    self.counts.confirms += 1;
                    return;
                }
                QueueStep::Hold(version) => return self.hold(now, version, retires, acts),
                QueueStep::Lost => {
                    self.counts.lost += 1;
                    return self.stop(now, true);
                }
            },
        };
        let until = now + self.rng.between(10, 800) * MILLI;
        let (sent, act) = self.send(now, kind, request, node, until);
        self.main = Some(sent);
        acts.push(act);
    }

    fn hold(&mut self, now: u64, version: Version, retires: bool, acts: &mut Vec<Act>) {
        match self.plan {
            Plan::Holding { until } if now >= until => self.stop(now, false),
            Plan::Holding { .. } => {}
            _ => {
                let length = match self.rng.below(10) {
                    _ if retires => self.rng.below(100 * MILLI),
                    0..4 => self.rng.below(20 * MILLI),
                    4..8 => self.rng.below(self.ttl()),
                    _ => self.rng.below(3 * self.ttl()),
                };
                self.plan = Plan::Holding { until: now + length };
                self.counts.holds += 1;
                acts.push(Act::Holds(version));
            }
        }
    }

    /// Stops holding, and deletes the key. A process that lost the lock may leave its key to expire.
    fn stop(&mut self, now: u64, is_lost: bool) {
        let key = self.machine.key().filter(|_| !is_lost || self.rng.chance(500));
        self.rest_for(now);
        if let Some(key) = key {
            self.plan = Plan::Releasing { key, tries: 0 };
        }
    }

    fn rest_for(&mut self, now: u64) {
        let most = if self.rng.chance(700) { 50 } else { 1500 };
        let rest = self.rng.below(most * MILLI);
        self.rest(now + rest);
    }

    fn rest(&mut self, until: u64) {
        self.machine = machine(self.index, self.incarnation, self.lock, self.lease, self.guards);
        self.renewal = None;
        self.not_before = [0; 2];
        self.plan = Plan::Resting { until };
    }

    fn send(&mut self, now: u64, kind: SentKind, request: Request, node: usize, until: u64) -> (Sent, Act) {
        self.attempts += 1;
        let attempt = self.attempts;
        let is_critical = matches!(kind, SentKind::Look | SentKind::Renewal(_));
        let sent = Sent { attempt, kind, at: self.clock.at(now), until };
        (sent, Act::Send { attempt, node, request, until, is_critical })
    }
}

fn machine(index: usize, incarnation: u32, lock: usize, lease: KeyLease, guards: Guards) -> Contender {
    let prefix = prefix(Kind::Lock, &format!("jobs-{lock}"));
    Contender::new(prefix, format!("p{index}.{incarnation}").into(), lease, guards)
}
