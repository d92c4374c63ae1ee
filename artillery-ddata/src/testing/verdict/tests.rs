//! Hand-written runs: correct ones, and ones with contradictions.

use std::time::Duration;

use bytes::Bytes;

mod expiry;
mod scripts;

use super::judge;
use crate::{
    Sequence, Timestamp, Version,
    api::{Computed, Query, ReadMode, ReadPath, ReadReply, Reply, Step, Write, WriteReply},
    rpc::observer::book::{Ask, BookAnswer, BookEntry, NEVER},
    store::Held,
};

/// Sequential calls, and the present time. A call of unknown outcome never returns.
#[derive(Default)]
struct Run(Vec<BookEntry>, Timestamp);

impl Run {
    fn add(mut self, ask: Ask, told: BookAnswer) -> Self {
        let called = 2 * self.0.len() as u64 + 1;
        let returned = if told == BookAnswer::Unknown { NEVER } else { called + 1 };
        let (began, ended) = (self.1, self.1);
        self.0.push(BookEntry { client: 1, called, returned, began, ended, ask, told, id: None, chain: None });
        self
    }

    fn wait(self, millis: u64) -> Self {
        Self(self.0, self.1 + Duration::from_millis(millis))
    }

    fn done(self, write: Write, sequence: u64, result: Computed) -> Self {
        let version = Version::new(1, sequence);
        let done = WriteReply { version, copies: 3, replayed: false, result };
        self.add(Ask::Write(write), BookAnswer::Reply(Reply::Committed(done)))
    }

    fn unknown(self, write: Write) -> Self {
        self.add(Ask::Write(write), BookAnswer::Unknown)
    }

    fn read(self, found: Option<(u64, &str)>) -> Self {
        self.read_of("k", found)
    }

    fn read_of(self, key: &'static str, found: Option<(u64, &str)>) -> Self {
        let held = found.map(|(sequence, value)| {
            Held::new(Version::new(1, sequence), Some(Bytes::copy_from_slice(value.as_bytes())))
        });
        let query = Query::Key(Bytes::from_static(key.as_bytes()));
        let read = ReadReply { held, clean: true, way: ReadPath::Local, as_of: Sequence(1), chain_time: 0 };
        self.add(Ask::Read { query, mode: ReadMode::Strong, floor: None }, BookAnswer::Reply(Reply::Read(read)))
    }

    fn fits(&self) -> bool {
        judge(&self.0, 1).is_ok()
    }

    fn why(&self) -> String {
        judge(&self.0, 1).expect_err("the run should contradict itself")
    }
}

fn put(value: &'static str) -> Write {
    Write::put(Bytes::from_static(b"k"), Bytes::from_static(value.as_bytes()))
}

fn append(value: &'static str) -> Write {
    Write::append(Bytes::from_static(b"k"), Bytes::from_static(value.as_bytes()))
}

fn increment(by: i64) -> Write {
    Write::increment(Bytes::from_static(b"k"), by)
}

#[test]
fn reads_must_show_what_was_written() {
    let run = || Run::default().done(put("a"), 1, Computed::Nothing);
    assert!(run().read(Some((1, "a"))).fits());
    assert!(run().read(Some((1, "b"))).why().contains("was seen after"));
    assert!(run().read(None).why().contains("linearizable"));
    let newer = || run().done(put("b"), 2, Computed::Nothing);
    assert!(newer().read(Some((2, "b"))).fits());
    assert!(newer().read(Some((1, "a"))).why().contains("after a newer write"));
    assert!(newer().read(Some((3, "c"))).why().contains("nobody wrote"));
}

#[test]
fn an_acknowledged_increment_counts_once() {
    let run = || Run::default().done(increment(2), 1, Computed::Number(2));
    assert!(run().done(increment(3), 2, Computed::Number(5)).read(Some((2, "5"))).fits());
    assert!(run().done(increment(3), 2, Computed::Number(7)).why().contains("returned"), "the first one counted twice");
    assert!(
        run().done(increment(3), 2, Computed::Number(3)).why().contains("returned"),
        "the first increment was lost"
    );
    assert!(run().read(Some((3, "4"))).why().contains("nobody wrote"), "the increment was applied again");
}

#[test]
fn an_unknown_increment_counts_at_most_once_and_after_its_call() {
    let run = || Run::default().done(increment(2), 1, Computed::Number(2)).unknown(increment(10));
    assert!(run().read(Some((1, "2"))).fits());
    assert!(run().read(Some((2, "12"))).fits());
    assert!(run().done(increment(1), 3, Computed::Number(13)).fits(), "no answer showed its version");
    assert!(run().done(increment(1), 2, Computed::Number(3)).fits());
    assert!(run().done(increment(1), 4, Computed::Number(23)).why().contains("returned"));
    let before = Run::default().done(increment(1), 2, Computed::Number(11)).unknown(increment(10));
    assert!(before.why().contains("returned"));
}

#[test]
fn similar_unknown_writes_are_told_apart_by_later_calls() {
    let run = Run::default().unknown(append("x")).unknown(append("xy"));
    let run = run.read(Some((1, "xy"))).done(append("z"), 3, Computed::Length(4)).read(Some((3, "xyxz")));
    assert!(run.fits());
    let run = Run::default().unknown(append("x")).read(Some((1, "x"))).done(append("z"), 3, Computed::Length(3));
    assert!(run.why().contains("returned"), "the append was applied twice");
}

#[test]
fn conditions_are_checked() {
    let swap = |expected| Write::compare_and_swap(Bytes::from_static(b"k"), expected, Some(Bytes::from_static(b"new")));
    let run = || Run::default().done(put("a"), 1, Computed::Nothing);
    let conflict = |version| {
        BookAnswer::Reply(Reply::Conflict { at: Version::new(1, 2), step: 0, version, value: None, replayed: false })
    };
    assert!(run().done(swap(Version::new(1, 1)), 2, Computed::Nothing).fits());
    assert!(run().done(swap(Version::NONE), 2, Computed::Nothing).why().contains("succeeded"));
    assert!(run().add(Ask::Write(swap(Version::NONE)), conflict(Version::new(1, 1))).fits());
    let wrong = run().add(Ask::Write(swap(Version::new(1, 1))), conflict(Version::new(1, 1)));
    assert!(wrong.why().contains("found the expected version"));
    let absent = run().add(Ask::Write(swap(Version::new(1, 1))), conflict(Version::NONE));
    assert!(absent.why().contains("failed over"));
}

#[test]
fn a_batch_is_applied_as_a_whole() {
    let key = |name: &'static str| Bytes::from_static(name.as_bytes());
    let steps = || vec![Step::increment(key("k"), 1), Step::increment(key("l"), 1)];
    let run = || Run::default().unknown(Write::Batch(steps())).read(Some((1, "1")));
    let other = |run: Run, held: Option<Held>| {
        let read = ReadReply { held, clean: true, way: ReadPath::Local, as_of: Sequence(1), chain_time: 0 };
        let ask = Ask::Read { query: Query::Key(key("l")), mode: ReadMode::Strong, floor: None };
        run.add(ask, BookAnswer::Reply(Reply::Read(read)))
    };
    let whole = other(run(), Some(Held::new(Version::new(1, 1), Some(key("1")))));
    assert!(whole.fits());
    assert!(other(run(), None).why().contains("linearizable"), "half of the batch");
    let twin = vec![Step::put(key("k"), key("x")), Step::increment(key("l"), 1)];
    let twins = Run::default().unknown(Write::Batch(twin)).unknown(put("x")).read(Some((1, "x")));
    assert!(other(twins, None).fits(), "the other write of the same value was applied");
}

#[test]
fn long_runs_are_judged() {
    let mut run = Run::default();
    for n in 1..=20_000 {
        run = run.done(increment(1), n, Computed::Number(n as i64));
    }
    assert!(run.fits());
}

/// Two writes look alike in one key; another key determines which of them was first.
#[test]
fn keys_are_explained_together() {
    let both = |alike: &'static str, own: &'static str| {
        let put = |key: &'static str, value: &'static str| Step::put(key.into(), value.into());
        Write::Batch(vec![put("a", alike), put("k", own)])
    };
    let run = |one, other| Run::default().unknown(both(one, "1")).unknown(both(other, "2"));
    for (first, second) in [("1", "2"), ("2", "1")] {
        let seen = run("x", "x").read_of("a", Some((1, "x"))).read(Some((1, first)));
        let seen = seen.read_of("a", Some((2, "x"))).read(Some((2, second)));
        assert!(seen.fits(), "{first} {second}");
    }
    // Each key alone has an explanation; both together have none.
    let seen = run("x", "y").read_of("a", Some((1, "x"))).read(Some((1, "2")));
    assert!(seen.why().contains("no order of the writes"), "{}", seen.why());
}
