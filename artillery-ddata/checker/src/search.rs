//! The search for a linearization: exact, and nearly linear in the number of operations.
//!
//! Wing & Gong place the operations one after the other and backtrack from dead ends. The next one must have been
//! called before the earliest answer of all operations that aren't placed yet. Lowe remembers the states (which
//! operations are placed, what the register holds) that led nowhere. Known versions and values leave few choices:
//!
//! 1. *Writes of known version have one order*, that of their versions. So a count states which of them are placed.
//! 2. *Sights and absences are placed as early as possible.* They change nothing, so in any linearization one that
//!    could be placed here can be moved here without effect on the others. Of those that see the same state, the ones
//!    that can be placed are the first by call, so a count states which absences are placed. All sights of a write must
//!    be placed before the register changes again, or the state is dead.
//! 3. *Latent puts and compare-and-swaps are left out.* Let `p` be applied in a linearization. No operation saw its
//!    value, so no sight and no absence (of reads, conflicts, or a compare-and-swap that expected an absent key) is
//!    between it and the next applied write `q`. Unless `q` is a compare-and-swap that expected `p`'s version, it
//!    doesn't depend on what it overwrites: without `p` the order is still a linearization, with the same versions.
//!    Conversely, an order without `p` is already a linearization, since `p` may never be applied. The exception needs
//!    a write that expected a version that no answer reported, an *orphan*; see 5.
//! 4. *Deletes of unknown outcome* can be the cause of absences, so they stay. They differ only in the time of their
//!    call, so they are used in the order of their calls (in any linearization two can be swapped to that end), and a
//!    count states which are used. A delete is tried only on a present key, and only if an absence can be placed
//!    directly after it or the next write expects an absent key: otherwise it could be left out, by the argument of 3.
//!    Its own version must fit between those of its neighbours: it gets the lowest one that no other key's write has.
//! 5. *Before an orphan*, and only there, latent writes are tried, with the versions that are wanted: the one that the
//!    orphan expected, and those that latent compare-and-swaps expect in turn. Puts are again used in the order of
//!    their calls.
//!
//! 6. *Expiries* of a known version are tried where its value is held, like deletes of unknown outcome. They needn't be
//!    counted, because a removed version never returns. An expiry of a version that no answer reported can only
//!    remove a latent write: latent writes are also tried at the one place among the writes where this version fits.
//!
//! So without orphans a state is (writes, absences, deletes placed; absent or not). There are at most as many states as
//! the product of these three numbers, in practice about one per write. With orphans, or expiries of unreported
//! versions, a state also has a set of latent writes, and the budget guards against the number of such sets.

use std::collections::BTreeSet;

use artillery_proto::Version;

use super::form::Versions;
use super::register::{NEVER, Register, Write};
use super::rules::free_after;
use super::violation::{Kind, Violation};

/// Searches for a linearization. Each state uses up one unit of `left`.
pub(super) fn search(register: &Register<'_>, versions: &Versions, left: &mut u64) -> Result<(), Violation> {
    let search = Search::new(register, versions);
    let mut seen = BTreeSet::new();
    let mut furthest = State::default();
    let mut open = vec![State::default()];
    while let Some(state) = open.pop() {
        let Some(rest) = left.checked_sub(1) else { return Err(undecided(register)) };
        *left = rest;
        let Some(state) = search.observed(state) else { continue };
        if (state.writes, state.absences) > (furthest.writes, furthest.absences) {
            furthest = state.clone();
        }
        if state.writes == register.writes.len() && state.absences == register.absences.len() {
            return Ok(());
        }
        if seen.insert(state.clone()) {
            search.go_on(&state, &mut open);
        }
    }
    Err(search.dead_end(&furthest))
}

/// The placed operations, and the state of the register after them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
struct State {
    /// The number of placed writes of known version, from the lowest version.
    writes: usize,
    /// The number of placed absences, from the first call.
    absences: usize,
    /// The number of placed deletes of unknown outcome, from the first call.
    deletes: usize,
    holds: Holds,
    /// The placed latent writes. Always empty without orphans and hidden expiries.
    latent: BTreeSet<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Holds {
    #[default]
    Absent,
    /// The value of the last placed write of known version.
    Written,
    /// The value of a latent write that was assigned this version.
    Latent(Version),
    /// Nothing: the value of a latent write that was assigned this version has expired.
    Gone(Version),
}

struct Search<'a> {
    register: &'a Register<'a>,
    versions: &'a Versions,
    /// For each number of placed writes: the earliest return among the other writes and their sights.
    earliest: Vec<u64>,
    /// For each number of placed writes: whether latent writes matter there, because the next write is an orphan or a
    /// version between the last and the next one expires.
    latent: Vec<bool>,
}

impl<'a> Search<'a> {
    fn new(register: &'a Register<'a>, versions: &'a Versions) -> Self {
        let mut earliest = vec![NEVER; register.writes.len() + 1];
        for (index, write) in register.writes.iter().enumerate().rev() {
            earliest[index] = earliest[index + 1].min(write.returned).min(write.sights.earliest(0));
        }
        let known = |version: &Version| register.writes.binary_search_by_key(version, |write| write.version).is_ok();
        let orphan = register.writes.iter().map(|write| {
            let expected = write.expected.filter(|expected| !expected.is_none());
            expected.is_some_and(|expected| !known(&expected))
        });
        let mut latent: Vec<bool> = orphan.chain([false]).collect();
        for (version, _) in register.hidden_expiries() {
            latent[register.writes.partition_point(|write| write.version < version)] = true;
        }
        Self { register, versions, earliest, latent }
    }

    /// The state after placing every sight or absence that can be placed; `None` if it is dead.
    fn observed(&self, mut state: State) -> Option<State> {
        match state.holds {
            Holds::Written => {
                let sights = &self.last(&state)?.sights;
                let others = self.horizon(&state);
                let late =
                    sights.iter().enumerate().find(|(at, sight)| sight.called > others.min(sights.earliest(*at)));
                late.is_none().then_some(state)
            }
            Holds::Absent | Holds::Gone(_) => {
                while self.can_place_absence(&state) {
                    state.absences += 1;
                }
                Some(state)
            }
            Holds::Latent(_) => Some(state),
        }
    }

    /// Pushes all states with one more write, the likeliest last.
    fn go_on(&self, state: &State, open: &mut Vec<State>) {
        let horizon = self.horizon(state);
        let next = self.register.writes.get(state.writes);
        if self.latent[state.writes] {
            self.try_latent(state, horizon, open);
        }
        if state.holds == Holds::Written
            && self.register.deletes.get(state.deletes).is_some_and(|called| *called <= horizon)
            && self.delete_is_of_use(state)
        {
            open.push(State { deletes: state.deletes + 1, holds: Holds::Absent, ..state.clone() });
        }
        if let Some(holds) = self.expired(state).filter(|_| self.delete_is_of_use(state)) {
            open.push(State { holds, ..state.clone() });
        }
        if let Some(next) = next
            && next.called <= horizon
            && next.version > self.version(state)
            && self.expectation_holds(state, next.expected)
        {
            let holds = if next.present { Holds::Written } else { Holds::Absent };
            open.push(State { writes: state.writes + 1, holds, ..state.clone() });
        }
    }

    /// The content of the key after the expiry of its value, if that may have happened.
    fn expired(&self, state: &State) -> Option<Holds> {
        let (version, holds) = match state.holds {
            Holds::Absent | Holds::Gone(_) => return None,
            Holds::Written => (self.last(state)?.version, Holds::Absent),
            Holds::Latent(version) => (version, Holds::Gone(version)),
        };
        (self.register.expiry(version) <= self.horizon(state)).then_some(holds)
    }

    /// Places latent writes before the orphan that is next, or where their version may expire.
    fn try_latent(&self, state: &State, horizon: u64, open: &mut Vec<State>) {
        let wanted = self.wanted(state, self.register.writes.get(state.writes));
        let mut put = false;
        for (index, latent) in self.register.latent.iter().enumerate() {
            if state.latent.contains(&index) || latent.called > horizon {
                continue;
            }
            let possible = match latent.expected {
                // A put after another latent write adds nothing: it could replace that write.
                None => !put && !matches!(state.holds, Holds::Latent(_)),
                expected => self.expectation_holds(state, expected),
            };
            put |= latent.expected.is_none();
            if possible {
                let mut placed = state.latent.clone();
                placed.insert(index);
                open.extend(wanted.iter().map(|version| State {
                    holds: Holds::Latent(*version),
                    latent: placed.clone(),
                    ..state.clone()
                }));
            }
        }
    }

    /// The unreported versions that the orphan `next`, or a latent write before it, may have expected, and those that
    /// may expire.
    fn wanted(&self, state: &State, next: Option<&Write>) -> BTreeSet<Version> {
        let last = self.version(state);
        let waiting = self.register.latent.iter().enumerate().filter(|(index, _)| !state.latent.contains(index));
        let expected = waiting.filter_map(|(_, latent)| latent.expected).chain(next.and_then(|next| next.expected));
        let expected = expected.chain(self.register.hidden_expiries().map(|(version, _)| version));
        let foreign = |version: &Version| self.versions.is_foreign(*version, self.register.key);
        let between = |version: &Version| last < *version && next.is_none_or(|next| *version < next.version);
        expected.filter(|version| between(version) && !foreign(version)).collect()
    }

    /// Whether an absent key directly after this state would explain any operation.
    fn delete_is_of_use(&self, state: &State) -> bool {
        let next = self.register.writes.get(state.writes);
        self.can_place_absence(state)
            || next.is_some_and(|next| next.expected == Some(Version::NONE))
            || self.latent[state.writes]
    }

    fn can_place_absence(&self, state: &State) -> bool {
        let next = self.register.absences.get(state.absences);
        next.is_some_and(|absence| absence.called <= self.horizon(state))
    }

    /// An operation called after this time can't be next, because an operation that isn't placed had returned before
    /// its call. Sights of the current state of the register are not considered.
    fn horizon(&self, state: &State) -> u64 {
        self.earliest[state.writes].min(self.register.absences.earliest(state.absences))
    }

    fn expectation_holds(&self, state: &State, expected: Option<Version>) -> bool {
        match (expected, state.holds) {
            (None, _) => true,
            (Some(expected), Holds::Absent | Holds::Gone(_)) => expected.is_none(),
            (Some(expected), Holds::Written) => self.last(state).is_some_and(|last| last.version == expected),
            (Some(expected), Holds::Latent(version)) => version == expected,
        }
    }

    /// The newest version in this state, of a value or of a delete.
    fn version(&self, state: &State) -> Version {
        match (state.holds, self.last(state)) {
            (Holds::Latent(version), _) => version,
            (Holds::Gone(version), _) => free_after(version, self.versions, self.register.key),
            (_, None) => Version::NONE,
            (Holds::Absent, Some(last)) if last.present => free_after(last.version, self.versions, self.register.key),
            (_, Some(last)) => last.version,
        }
    }

    fn last(&self, state: &State) -> Option<&Write> {
        self.register.writes.get(state.writes.checked_sub(1)?)
    }

    /// The violation, with the operation that couldn't be placed after the furthest state.
    fn dead_end(&self, furthest: &State) -> Violation {
        let write = self.register.writes.get(furthest.writes).map(|write| write.operation);
        let absence = self.register.absences.get(furthest.absences).map(|absence| absence.operation);
        let stuck = [write, absence].into_iter().flatten();
        let stuck = stuck.min_by_key(|operation| self.register.operations[*operation].returned);
        Violation { kind: Kind::NotLinearizable, stuck, ..undecided(self.register) }
    }
}

fn undecided(register: &Register<'_>) -> Violation {
    Violation { key: register.key, kind: Kind::Undecided, stuck: None, operations: register.operations.to_vec() }
}
