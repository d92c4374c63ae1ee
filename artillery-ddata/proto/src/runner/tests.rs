//! What decides about what is received together.

use std::cell::Cell;

use super::*;
use crate::{
    ChainConfig, ChainMember, Incarnation, Mode, NodeId, ReadMode, Role,
    replica::{Query, Read, Way, Write},
    store::MemoryStore,
};

const FIRST: ClusterId = ClusterId(1);
const RECOVERED: ClusterId = ClusterId(2);

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

fn me() -> MemberId {
    MemberId { node: NodeId::from_name("alone"), incarnation: Incarnation { store: 1, starts: 1 } }
}

type Received = Turn<ReadRequest<u64>, WriteRequest<u64>>;

/// A chain of one.
struct Rig {
    runner: ChainRunner<u64>,
    turn: Received,
    now: Cell<u64>,
    /// What the clock shows at each reading after the first one of a turn.
    later: Cell<u64>,
    replies: Vec<(u64, Reply)>,
    words: Vec<Word>,
}

impl Rig {
    fn new() -> Self {
        let (chain, store) = (ChainId(0), Arc::new(MemoryStore::with_seed(7)));
        let runner = ChainRunner::new(me(), chain, Settings::default(), store, Arc::new(Gate::new(chain)));
        let mut rig = Self {
            runner,
            turn: Turn::default(),
            now: Cell::new(1),
            later: Cell::new(0),
            replies: Vec::new(),
            words: Vec::new(),
        };
        rig.enter(1, FIRST);
        rig
    }

    fn enter(&mut self, epoch: u64, history: ClusterId) {
        let members = vec![ChainMember { id: me(), role: Role::Serving }];
        let (chain, epoch_id) = (ChainId(0), Epoch(epoch));
        let config = ChainConfig { chain, epoch: epoch_id, index: epoch, mode: Mode::Craq, min_members: 1, members };
        let upto = LogIndex(epoch);
        self.turn.orders.push(Order::Enter { config: Arc::new(config), history, upto });
        self.take(2 * epoch);
        assert_eq!(self.words.pop(), Some(Word::ActsBy(upto)));
    }

    fn lease(&mut self, until: u64, stretch: u64) {
        self.turn.lease = Some(Lease { until: at(until), asked: at(1), stretch });
    }

    fn ask(&mut self, caller: u64, history: Option<ClusterId>) {
        let query = Query::Key("k".into());
        let (mode, deadline) = (ReadMode::Strong, at(1 << 40));
        self.turn.reads.push(ReadRequest { query, mode, floor: None, history, deadline, caller });
    }

    fn put(&mut self, caller: u64, history: Option<ClusterId>) {
        let write = Write::Put { key: "k".into(), value: "v".into() };
        self.turn.writes.push(WriteRequest { request: None, history, write, deadline: at(1 << 40), caller });
    }

    /// Takes in what was received until this moment.
    fn take(&mut self, now: u64) {
        self.now.set(now);
        let (clock, later) = (self.now.clone(), self.later.get());
        let clock = || at(clock.replace(now.max(later)));
        self.runner.take(clock, || 0, &mut self.turn, || None);
        self.runner.settle();
        while let Some(output) = self.runner.poll_output() {
            match output {
                Output::Reply(caller, reply) => self.replies.push((caller, reply)),
                Output::Event(_) => {}
            }
        }
        self.words.extend(std::iter::from_fn(|| self.runner.poll_word()));
    }

    fn way(&mut self, caller: u64) -> Option<Way> {
        let place = self.replies.iter().position(|(to, _)| *to == caller)?;
        match self.replies.remove(place).1 {
            Reply::Read(Read { way, .. }) => Some(way),
            other => panic!("{other:?}"),
        }
    }
}

/// How a strong read is served that is received when the lease is over, in the turn after one that began before.
fn served_after_the_lease(mut rig: Rig) -> Option<Way> {
    rig.lease(100, 0);
    rig.later.set(120);
    rig.take(90);
    rig.ask(1, None);
    rig.take(130);
    rig.way(1)
}

#[test]
fn an_input_received_after_a_reading_is_decided_by_a_later_one() {
    assert_eq!(served_after_the_lease(Rig::new()), Some(Way::Chain));
}

#[test]
fn a_lease_is_taken_however_many_requests_come() {
    let mut rig = Rig::new();
    for caller in 0..10 {
        rig.lease(1_000 + caller, 0);
        rig.ask(caller, None);
        rig.take(10 + caller);
        assert_eq!(rig.way(caller), Some(Way::Local));
    }
}

#[test]
fn orders_come_before_the_requests_that_they_decide_about() {
    let mut rig = Rig::new();
    rig.lease(1_000, 0);
    rig.take(5);
    rig.turn.orders.push(Order::Resign);
    rig.ask(1, None);
    rig.take(6);
    assert_eq!((rig.way(1), rig.words.pop()), (Some(Way::Chain), Some(Word::Resigned)));
}

/// Whether a chain that has resigned and resumed acts by a lease of before.
fn acts_by_an_old_lease(mut rig: Rig) -> bool {
    rig.turn.orders.push(Order::Resign);
    rig.take(5);
    rig.lease(1_000, 0);
    rig.take(6);
    rig.turn.orders.push(Order::Resume { stretch: 1 });
    rig.ask(1, None);
    rig.take(7);
    rig.way(1) == Some(Way::Local)
}

#[test]
fn a_lease_of_before_a_resignation_counts_no_more() {
    assert!(!acts_by_an_old_lease(Rig::new()));
}

#[test]
fn a_lease_that_came_before_the_order_to_take_it_counts_from_then_on() {
    let mut rig = Rig::new();
    rig.turn.orders.push(Order::Resign);
    rig.lease(1_000, 1);
    rig.take(5);
    rig.turn.orders.push(Order::Resume { stretch: 1 });
    rig.ask(1, None);
    rig.take(6);
    assert_eq!(rig.way(1), Some(Way::Local));
}

/// Writes in a session of a history when another one has begun.
fn written_in_another_history(mut rig: Rig) -> Reply {
    rig.enter(1 << 20, RECOVERED);
    rig.put(1, Some(FIRST));
    rig.take(1 << 22);
    rig.replies.pop().unwrap().1
}

#[test]
fn a_session_of_another_history_is_refused() {
    assert_eq!(written_in_another_history(Rig::new()), Reply::Refused(Refusal::OtherHistory));
    let mut rig = Rig::new();
    rig.put(1, Some(FIRST));
    rig.take(5);
    assert!(matches!(rig.replies.pop(), Some((1, Reply::Committed(_)))));
}

#[cfg(feature = "mutants")]
mod without {
    use super::*;

    fn without(mutant: Mutant) -> Rig {
        let mut rig = Rig::new();
        rig.runner = rig.runner.with_mutant(Some(mutant));
        rig
    }

    #[test]
    fn a_reading_that_is_kept_serves_a_read_behind_the_lease() {
        assert_eq!(served_after_the_lease(without(Mutant::KeepReading)), Some(Way::Local));
    }

    #[test]
    fn a_lease_that_comes_last_is_not_taken() {
        let mut rig = without(Mutant::LeaseLast);
        rig.lease(1_000, 0);
        rig.ask(1, None);
        rig.take(10);
        assert_ne!(rig.way(1), Some(Way::Local));
    }

    #[test]
    fn an_old_lease_that_counts_again_serves() {
        assert!(acts_by_an_old_lease(without(Mutant::TakeAnyStretch)));
    }

    #[test]
    fn histories_that_are_mixed_take_a_write_of_another_one() {
        assert!(matches!(written_in_another_history(without(Mutant::MixHistories)), Reply::Committed(_)));
    }
}
