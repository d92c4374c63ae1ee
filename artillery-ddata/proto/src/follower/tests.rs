//! A follower and its copy next to a model of a chain, whose members are behind each other, split their answers, drop
//! old changes, and lose the end of their history.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{api::ReadPath, guards::Mutant, store::Held};

type State = BTreeMap<Bytes, Bytes>;

const KEYS: [&str; 6] = ["p/a", "p/b", "p/c", "p/d", "q", "o"];

#[derive(Clone, Debug)]
enum Event {
    /// An update of these keys: with a value, or deleted.
    Update(Vec<(usize, bool)>),
    /// A member that is this many updates behind answers, with at most this many records.
    Answer { behind: usize, size: usize },
    /// The members drop all but the last updates of their history.
    Compact { kept: usize },
    /// The cluster loses its last updates, and continues in another history.
    Recover { lost: usize },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => prop::collection::vec((0..KEYS.len(), prop::bool::weighted(0.7)), 1..4).prop_map(Event::Update),
        8 => (0..4_usize, 1..4_usize).prop_map(|(behind, size)| Event::Answer { behind, size }),
        1 => (0..4_usize).prop_map(|kept| Event::Compact { kept }),
        1 => (0..3_usize).prop_map(|lost| Event::Recover { lost }),
    ]
}

/// A key, and its new value or none.
type KeyUpdate = (Bytes, Option<Bytes>);

struct Chain {
    epoch: u64,
    updates: Vec<(Version, Vec<KeyUpdate>)>,
    first: usize,
}

impl Chain {
    fn update(&mut self, keys: &[(usize, bool)]) {
        let version = Version::new(self.epoch, self.updates.len() as u64 + 1);
        let changes: BTreeMap<_, _> = keys.iter().copied().collect();
        let value = Bytes::from(version.to_string());
        let changes = changes.into_iter().map(|(key, puts)| (KEYS[key].into(), puts.then(|| value.clone())));
        self.updates.push((version, changes.collect()));
    }

    /// The keys of the prefix at this point.
    fn state(&self, at: usize) -> BTreeMap<Bytes, (Version, Bytes)> {
        let mut state = BTreeMap::new();
        for (version, changes) in &self.updates[..at] {
            for (key, value) in changes.iter().filter(|(key, _)| key.starts_with(b"p/")) {
                match value {
                    Some(value) => drop(state.insert(key.clone(), (*version, value.clone()))),
                    None => drop(state.remove(key)),
                }
            }
        }
        state
    }

    /// The answer of a member with this watermark; `None`: it refuses.
    fn answer(&self, asked: FollowerQuery, watermark: usize, size: usize) -> Option<Reply> {
        if asked.floor.is_some_and(|floor| floor.0 > watermark as u64) {
            return None;
        }
        let as_of = Sequence(watermark as u64);
        match asked.query {
            Query::Scan(scan) => {
                let all = self.state(watermark).into_iter().filter(|(key, _)| scan.after.as_ref() < Some(key));
                let mut records: Vec<_> =
                    all.map(|(key, (version, value))| record(key, version, Some(value))).collect();
                let is_last = records.len() <= size;
                records.truncate(size);
                let next = records.last().filter(|_| !is_last).map(|record| record.key.clone());
                let (clean, way) = (true, ReadPath::Local);
                Some(Reply::Page(ScanReply { records, next, clean, way, as_of, snapshot: None, chain_time: 0 }))
            }
            Query::Changes(WatchQuery { after: None, .. }) => {
                Some(Reply::Changes(WatchReply { records: Vec::new(), upto: as_of, shown: 0 }))
            }
            Query::Changes(WatchQuery { after: Some(after), shown, .. }) => {
                let mut reply = WatchReply { records: Vec::new(), upto: after, shown };
                for (version, changes) in self.updates.iter().take(watermark).skip(after.0 as usize) {
                    let skipped = std::mem::take(&mut reply.shown) as usize;
                    for (at, (key, value)) in changes.iter().enumerate().skip(skipped) {
                        if reply.records.len() == size {
                            reply.shown = at as u32;
                            return Some(Reply::Changes(reply));
                        }
                        if key.starts_with(b"p/") {
                            reply.records.push(record(key.clone(), *version, value.clone()));
                        }
                    }
                    reply.upto = version.sequence;
                }
                Some(Reply::Changes(reply))
            }
            _ => None,
        }
    }
}

fn record(key: Bytes, version: Version, value: Option<Bytes>) -> ScanRecord {
    ScanRecord { key, held: Held::new(version, value) }
}

struct Run {
    chain: Chain,
    follower: Follower,
    feed: CopyFeed,
    copy: Copy,
    /// The state that follows from the reported changes.
    reported: State,
    /// The newest version of each key that the follower has reported since it last began.
    newest: BTreeMap<Bytes, Version>,
    /// The newest point of this history that the copy has shown.
    reached: Option<Sequence>,
}

impl Run {
    fn new(guards: Guards) -> Self {
        Self {
            chain: Chain { epoch: 1, updates: Vec::new(), first: 0 },
            follower: Follower::new("p/".into(), guards),
            feed: CopyFeed::default(),
            copy: Copy::new(guards),
            reported: State::new(),
            newest: BTreeMap::new(),
            reached: None,
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Update(keys) => self.chain.update(&keys),
            Event::Answer { behind, size } => {
                let end = self.chain.updates.len();
                let watermark = end.saturating_sub(behind).max(self.chain.first);
                return self.answer(watermark, size);
            }
            Event::Compact { kept } => {
                self.chain.first = self.chain.updates.len().saturating_sub(kept).max(self.chain.first)
            }
            Event::Recover { lost } => {
                let left = self.chain.updates.len().saturating_sub(lost);
                self.chain.updates.truncate(left);
                self.chain.first = self.chain.first.min(left);
                self.chain.epoch += 10;
                self.follower.restart();
                self.reached = None;
            }
        }
        Ok(())
    }

    fn answer(&mut self, watermark: usize, size: usize) -> Result<(), String> {
        let asked = self.follower.next();
        if let Query::Changes(WatchQuery { after: Some(after), .. }) = &asked.query
            && (after.0 as usize) < self.chain.first
        {
            self.follower.fell_behind();
            return Ok(());
        }
        let Some(reply) = self.chain.answer(asked, watermark, size) else { return Ok(()) };
        let mut followed = Vec::new();
        self.follower.answer(reply, &mut followed);
        for followed in followed {
            self.rises(&followed)?;
            let mut edits = Vec::new();
            self.feed.edits(followed, |edit| edits.push(edit));
            for edit in edits {
                let changes = self.copy.edit(edit);
                self.report(changes)?;
            }
        }
        if let Some(at) = self.follower.level() {
            if Some(at) < self.reached {
                return Err(format!("the copy moved back from {:?} to {at}", self.reached));
            }
            self.reached = Some(at);
            self.is_state(at.0 as usize)?;
        }
        Ok(())
    }

    /// Checks that what the follower reports of a key only moves forward.
    fn rises(&mut self, followed: &Followed) -> Result<(), String> {
        let records = match followed {
            Followed::Restarted => {
                self.newest.clear();
                return Ok(());
            }
            Followed::Page(records) => records,
            Followed::Update { changes, .. } => changes,
            Followed::Level(_) => return Ok(()),
        };
        for ScanRecord { key, held } in records {
            if self.newest.insert(key.clone(), held.version).is_some_and(|former| former >= held.version) {
                return Err(format!("{key:?} was reported again at {}", held.version));
            }
        }
        Ok(())
    }

    fn report(&mut self, changes: Vec<CopyChange>) -> Result<(), String> {
        for CopyChange { key, before, after, .. } in changes {
            let before = before.map(|entry| entry.value);
            if self.reported.get(&key) != before.as_ref() {
                return Err(format!("{key:?} was reported to be {before:?} before"));
            }
            if before == after.as_ref().map(|entry| entry.value.clone()) {
                return Err(format!("{key:?} was reported again"));
            }
            match after {
                Some(entry) => drop(self.reported.insert(key, entry.value)),
                None => drop(self.reported.remove(&key)),
            }
        }
        Ok(())
    }

    fn is_state(&self, at: usize) -> Result<(), String> {
        let state = self.chain.state(at);
        let copied: BTreeMap<_, _> =
            self.copy.iter().map(|(key, entry)| (key.clone(), (entry.version, entry.value.clone()))).collect();
        if copied != state {
            return Err(format!("the copy is {copied:?}, and the chain at {at} was {state:?}"));
        }
        let values: State = state.into_iter().map(|(key, (_, value))| (key, value)).collect();
        if self.reported != values {
            return Err(format!("{:?} was reported, and the chain at {at} was {values:?}", self.reported));
        }
        Ok(())
    }

    /// Runs the events, then lets the follower reach the end.
    fn check(mut self, events: Vec<Event>) -> Result<(), String> {
        for event in events {
            self.happen(event)?;
        }
        let end = self.chain.updates.len();
        for _ in 0..4 * (end + KEYS.len()) + 20 {
            self.answer(end, 2)?;
        }
        if self.follower.level() != Some(Sequence(end as u64)) {
            return Err(format!("{:?} is not level at {end}", self.follower));
        }
        self.is_state(end)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn a_copy_shows_committed_states_and_reports_each_change_once(events in prop::collection::vec(event(), 0..60)) {
        Run::new(Guards::ALL).check(events).map_err(TestCaseError::fail)?;
    }
}

/// Without one of these guards some history gives a wrong copy.
#[test]
fn each_guard_is_needed() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};

    let mutants =
        [Mutant::PositionLate, Mutant::ReadPagesBehind, Mutant::KeepMissing, Mutant::ReportAgain, Mutant::RepeatChange];
    for mutant in mutants {
        let mut runner = TestRunner::deterministic();
        let histories = prop::collection::vec(event(), 0..60);
        let is_caught = (0..2000).any(|_| {
            let events = histories.new_tree(&mut runner).unwrap().current();
            Run::new(Guards::without(mutant)).check(events).is_err()
        });
        assert!(is_caught, "{mutant:?}");
    }
}

#[test]
fn a_follower_that_fell_behind_never_moves_back() {
    let mut follower = Follower::new("p/".into(), Guards::ALL);
    let mut out = Vec::new();
    let position = |upto| Reply::Changes(WatchReply { records: Vec::new(), upto: Sequence(upto), shown: 0 });
    let page = |as_of| {
        let (records, next, clean, way, as_of) = (Vec::new(), None, true, ReadPath::Local, Sequence(as_of));
        Reply::Page(ScanReply { records, next, clean, way, as_of, snapshot: None, chain_time: 0 })
    };
    assert_eq!(follower.next().floor, None);
    follower.answer(position(50), &mut out);
    follower.answer(page(50), &mut out);
    assert_eq!(follower.level(), Some(Sequence(50)));
    follower.fell_behind();
    assert_eq!(follower.next().floor, Some(Sequence(50)));
    // A member that has just restarted with nothing.
    follower.answer(position(0), &mut out);
    follower.answer(page(0), &mut out);
    assert_eq!(follower.level(), None);
    follower.restart();
    assert_eq!(follower.next().floor, None);
    follower.answer(position(0), &mut out);
    follower.answer(page(0), &mut out);
    assert_eq!(follower.level(), Some(Sequence::ZERO), "the other history begins");
}
