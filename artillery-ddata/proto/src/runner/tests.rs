//! The order and the clock reading of inputs received together.

mod slices;

use std::cell::Cell;

use super::*;
use crate::{
    ChainMember, Incarnation, NodeId, ReadMode, Role, Sequence,
    api::{Query, ReadPath, ReadReply, WatchQuery, Write},
    control::log::LogIndex,
    fixtures,
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

struct Rig {
    runner: ChainRunner<u64>,
    turn: Received,
    now: Cell<u64>,
    /// The clock at each reading after the first one of a turn, if that is later.
    later: Cell<u64>,
    replies: Vec<(u64, Reply)>,
    words: Vec<Word>,
}

impl Rig {
    fn new() -> Self {
        let (chain, store) = (ChainId(0), Arc::new(MemoryStore::with_seed(7)));
        let runner = ChainRunner::new(me(), chain, ReplicaSettings::default(), store, Arc::new(Gate::new(chain)));
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
        let config = fixtures::chain(epoch, [ChainMember { id: me(), role: Role::Serving }]);
        let upto = LogIndex(epoch);
        self.turn.orders.push(ChainOrder::Enter { config: Arc::new(config), history, upto });
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
        let write = Write::put("k".into(), "v".into());
        self.turn.writes.push(WriteRequest { request: None, history, write, deadline: at(1 << 40), caller });
    }

    /// Runs a turn at this time, in milliseconds.
    fn take(&mut self, now: u64) {
        self.now.set(now);
        let (clock, later) = (self.now.clone(), self.later.get());
        let clock = || at(clock.replace(now.max(later)));
        self.runner.take(clock, &mut self.turn, |_| None);
        self.runner.settle(|| at(now));
        while let Some(output) = self.runner.poll_output() {
            match output {
                RunnerOutput::Reply(caller, reply) => self.replies.push((caller, reply)),
                RunnerOutput::Event(_) => {}
            }
        }
        self.words.extend(std::iter::from_fn(|| self.runner.poll_word()));
    }

    fn way(&mut self, caller: u64) -> Option<ReadPath> {
        let place = self.replies.iter().position(|(to, _)| *to == caller)?;
        match self.replies.remove(place).1 {
            Reply::Read(ReadReply { way, .. }) => Some(way),
            other => panic!("{other:?}"),
        }
    }
}

/// The path of a strong read that is received after the end of the lease. The previous turn began within the lease.
fn served_after_the_lease(mut rig: Rig) -> Option<ReadPath> {
    rig.lease(100, 0);
    rig.later.set(120);
    rig.take(90);
    rig.ask(1, None);
    rig.take(130);
    rig.way(1)
}

#[test]
fn an_input_received_after_a_reading_is_decided_by_a_later_one() {
    assert_eq!(served_after_the_lease(Rig::new()), Some(ReadPath::Chain));
}

#[test]
fn a_lease_is_taken_however_many_requests_come() {
    let mut rig = Rig::new();
    for caller in 0..10 {
        rig.lease(1_000 + caller, 0);
        rig.ask(caller, None);
        rig.take(10 + caller);
        assert_eq!(rig.way(caller), Some(ReadPath::Local));
    }
}

#[test]
fn orders_come_before_the_requests_that_they_decide_about() {
    let mut rig = Rig::new();
    rig.lease(1_000, 0);
    rig.take(5);
    rig.turn.orders.push(ChainOrder::Resign);
    rig.ask(1, None);
    rig.take(6);
    assert_eq!((rig.way(1), rig.words.pop()), (Some(ReadPath::Chain), Some(Word::Resigned)));
}

/// Whether a chain that has resigned and resumed serves with a lease from before the resume.
fn acts_by_an_old_lease(mut rig: Rig) -> bool {
    rig.turn.orders.push(ChainOrder::Resign);
    rig.take(5);
    rig.lease(1_000, 0);
    rig.take(6);
    rig.turn.orders.push(ChainOrder::Resume { stretch: 1 });
    rig.ask(1, None);
    rig.take(7);
    rig.way(1) == Some(ReadPath::Local)
}

#[test]
fn a_lease_from_before_a_resignation_is_ignored() {
    assert!(!acts_by_an_old_lease(Rig::new()));
}

#[test]
fn a_lease_that_came_before_the_resume_counts_from_it_on() {
    let mut rig = Rig::new();
    rig.turn.orders.push(ChainOrder::Resign);
    rig.lease(1_000, 1);
    rig.take(5);
    rig.turn.orders.push(ChainOrder::Resume { stretch: 1 });
    rig.ask(1, None);
    rig.take(6);
    assert_eq!(rig.way(1), Some(ReadPath::Local));
}

#[test]
fn a_chain_that_yields_refuses_and_keeps_its_data_until_it_proceeds() {
    let refusal = Refusal::Succeeded { by: ClusterId(9) };
    let mut rig = Rig::new();
    rig.lease(1_000, 0);
    rig.put(0, None);
    rig.take(5);
    rig.replies.clear();
    rig.turn.orders.push(ChainOrder::Yield { refusal });
    rig.take(6);
    rig.lease(2_000, 0);
    for caller in 1..=3 {
        match caller {
            1 => rig.put(caller, None),
            _ => rig.ask(caller, None),
        }
        if caller == 3 {
            rig.turn.reads.last_mut().unwrap().mode = ReadMode::Eventual;
        }
        rig.take(7);
        assert_eq!(rig.reply(), Reply::Refused(refusal));
    }
    assert_eq!(rig.runner.replica().status().last.sequence, Sequence(1), "nothing was ordered, and no data dropped");
    rig.turn.orders.push(ChainOrder::Proceed);
    rig.ask(4, None);
    rig.take(8);
    assert_eq!(rig.way(4), Some(ReadPath::Local), "by the lease received while it yielded");
}

impl Rig {
    /// Enters a new history that keeps one write, and writes three more, so that the last one has sequence 4.
    fn recover_and_write(&mut self) {
        self.enter(1 << 20, RECOVERED);
        (0..3).for_each(|_| self.put(0, None));
        self.take(1 << 22);
        self.replies.retain(|(caller, _)| *caller != 0);
    }

    fn reply(&mut self) -> Reply {
        assert_eq!(self.replies.len(), 1, "{:?}", self.replies);
        self.replies.remove(0).1
    }
}

fn written_in_another_history(mut rig: Rig) -> Reply {
    rig.recover_and_write();
    rig.put(1, Some(FIRST));
    rig.take(1 << 23);
    rig.reply()
}

#[test]
fn a_session_of_another_history_writes_nothing() {
    assert_eq!(written_in_another_history(Rig::new()), Reply::Refused(Refusal::OtherHistory));
    let mut rig = Rig::new();
    rig.recover_and_write();
    rig.put(1, Some(RECOVERED));
    rig.take(1 << 23);
    assert!(matches!(rig.reply(), Reply::Committed(_)));
}

/// The reply to a read in a session that has seen sequence 4 of an earlier history.
fn read_behind_the_fourth_change(mut rig: Rig, before: bool) -> Reply {
    let ask = |rig: &mut Rig| {
        rig.ask(1, Some(FIRST));
        let read = rig.turn.reads.last_mut().unwrap();
        (read.mode, read.floor) = (ReadMode::Eventual, Some(Sequence(4)));
    };
    rig.put(0, None);
    rig.take(5);
    if before {
        ask(&mut rig);
        rig.take(6);
    }
    rig.recover_and_write();
    if !before {
        ask(&mut rig);
        rig.take(1 << 23);
    }
    rig.reply()
}

#[test]
fn a_session_of_another_history_reads_nothing() {
    for before in [false, true] {
        let reply = read_behind_the_fourth_change(Rig::new(), before);
        assert_eq!(reply, Reply::Refused(Refusal::OtherHistory), "received before the recovery: {before}");
    }
}

#[test]
fn a_member_that_was_removed_in_another_history_knows_that_history() {
    let mut rig = Rig::new();
    rig.put(0, None);
    rig.take(5);
    rig.replies.clear();
    let upto = LogIndex(2);
    rig.turn.orders.push(ChainOrder::Expelled { epoch: Epoch(2), history: RECOVERED, upto });
    rig.take(6);
    for mode in [ReadMode::Strong, ReadMode::Eventual] {
        for (history, refusal) in [(FIRST, Refusal::OtherHistory), (RECOVERED, Refusal::NoChain)] {
            rig.ask(1, Some(history));
            rig.turn.reads.last_mut().unwrap().mode = mode;
            rig.take(7);
            assert_eq!(rig.reply(), Reply::Refused(refusal), "{mode:?} {history:?}");
        }
    }
    rig.put(1, Some(RECOVERED));
    rig.take(8);
    assert_eq!(rig.reply(), Reply::Refused(Refusal::NoChain), "the session continues at the members");
}

/// The reply to a watch that waits after sequence 3 of one history, while the next history starts from sequence 1.
fn heard_of_the_fourth_change(mut rig: Rig) -> Reply {
    rig.put(0, None);
    rig.take(5);
    rig.ask(1, Some(FIRST));
    let watch = rig.turn.reads.last_mut().unwrap();
    watch.query = Query::Changes(WatchQuery { prefix: "".into(), after: Some(Sequence(3)), shown: 0 });
    watch.mode = ReadMode::Eventual;
    rig.take(6);
    rig.recover_and_write();
    rig.reply()
}

#[test]
fn a_watch_that_waits_while_another_history_begins_is_refused() {
    assert_eq!(heard_of_the_fourth_change(Rig::new()), Reply::Refused(Refusal::OtherHistory));
}

mod without {
    use super::*;
    use crate::{api::WatchReply, guards::Mutant};

    fn without(mutant: Mutant) -> Rig {
        let mut rig = Rig::new();
        rig.runner.guards = Guards::without(mutant);
        rig
    }

    #[test]
    fn a_reading_that_is_kept_serves_a_read_behind_the_lease() {
        assert_eq!(served_after_the_lease(without(Mutant::KeepReading)), Some(ReadPath::Local));
    }

    #[test]
    fn a_lease_that_comes_last_is_not_taken() {
        let mut rig = without(Mutant::LeaseLast);
        rig.lease(1_000, 0);
        rig.ask(1, None);
        rig.take(10);
        assert_ne!(rig.way(1), Some(ReadPath::Local));
    }

    #[test]
    fn an_old_lease_that_counts_again_serves() {
        assert!(acts_by_an_old_lease(without(Mutant::TakeAnyStretch)));
    }

    #[test]
    fn mixed_histories_serve_requests_of_another_history() {
        assert!(matches!(written_in_another_history(without(Mutant::MixHistories)), Reply::Committed(_)));
        for before in [false, true] {
            let shown = read_behind_the_fourth_change(without(Mutant::MixHistories), before);
            assert!(matches!(shown, Reply::Read(_)), "{shown:?}");
        }
        let passed_over = heard_of_the_fourth_change(without(Mutant::MixHistories));
        assert!(
            matches!(&passed_over, Reply::Changes(WatchReply { records, .. }) if records.len() == 1),
            "{passed_over:?}"
        );
    }
}

#[test]
fn small_writes_pass_large_ones_that_never_end() {
    let mut rig = Rig::new();
    let write = |caller, write| WriteRequest { request: None, history: None, write, deadline: at(1 << 40), caller };
    rig.turn.writes.push(write(1, Write::put("long".into(), vec![0; 9 << 20].into())));
    rig.take(10);
    let small = std::cell::Cell::new(0);
    let large = std::cell::Cell::new(0);
    for n in 0..60 {
        let more = |line| {
            Some(match line {
                WriteLine::Large => {
                    large.set(large.get() + 1);
                    write(2, Write::append("long".into(), "x".into()))
                }
                WriteLine::Small => {
                    small.set(small.get() + 1);
                    write(3, Write::put("k".into(), "v".into()))
                }
            })
        };
        rig.runner.take(|| at(20 + n), &mut rig.turn, more);
        while rig.runner.is_behind() {
            rig.runner.settle(|| at(20 + n));
        }
        while rig.runner.poll_output().is_some() {}
    }
    assert!(small.get() > 60 && large.get() > 0, "{} large writes, {} small writes", large.get(), small.get());
}
