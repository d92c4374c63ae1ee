//! Keys with a time to live: each may go by itself, but not before its time.

use bytes::Bytes;

use super::{Run, append, increment, put};
use crate::{
    Sequence, Version,
    api::{Computed, ExpireIf, MultiGetReply, Query, ReadMode, ReadPath, Reply, Step, Ttl, Write, sequential_key},
    rpc::observer::book::{Ask, BookAnswer},
    store::Held,
};

const DONE: Computed = Computed::Nothing;
const RENEWED: Computed = Computed::Changed(true);
const NOT_RENEWED: Computed = Computed::Changed(false);

fn with(ttl: Ttl, mut write: Write) -> Write {
    if let Some(of_write) = write.ttl_mut() {
        *of_write = ttl;
    }
    write
}

fn k() -> Bytes {
    Bytes::from_static(b"k")
}

fn expire(ttl: impl Into<Option<u64>>, when: Option<ExpireIf>) -> Write {
    Write::Expire { key: k(), ttl: ttl.into(), when }
}

/// A put of "a" that expires after a second.
fn second() -> Run {
    Run::default().done(with(Ttl::Set(1000), put("a")), 1, DONE)
}

/// Whether the key may be gone after this time, by the chain time of a clock that may be fast by 1 %.
fn goes_after(millis: u64, run: impl Fn() -> Run) -> bool {
    assert!(!run().wait(millis * 99 / 100 - 1).read(None).fits(), "too early");
    run().wait(millis * 99 / 100).read(None).fits()
}

fn stays(run: Run) -> bool {
    !run.wait(1_000_000).read(None).fits()
}

#[test]
fn a_key_goes_after_its_time_and_not_before() {
    assert!(goes_after(1000, second));
    assert!(second().wait(5000).read(Some((1, "a"))).wait(5000).read(None).fits(), "it may stay longer");
    assert!(second().wait(980).read(None).why().contains("not linearizable"));
    assert!(second().wait(1000).read(None).read(Some((1, "a"))).why().contains("linearizable"), "it came back");
    assert!(stays(Run::default().done(put("a"), 1, DONE)));
}

#[test]
fn other_calls_notice_that_a_key_is_gone() {
    let create = || Write::compare_and_swap(k(), Version::NONE, Some("b".into()));
    assert!(second().wait(1000).done(create(), 3, DONE).read(Some((3, "b"))).fits());
    assert!(second().wait(900).done(create(), 3, DONE).why().contains("succeeded over"));
    let take = || Write::GetDelete { key: k() };
    assert!(second().wait(1000).done(take(), 3, Computed::Took(None)).fits());
    assert!(second().wait(900).done(take(), 3, Computed::Took(None)).why().contains("returned"));
    let swap = || Ask::Write(Write::compare_and_swap(k(), Version::new(1, 1), Some("b".into())));
    let (at, version) = (Version::new(1, 3), Version::NONE);
    let conflict = || BookAnswer::Reply(Reply::Conflict { at, step: 0, version, value: None, replayed: false });
    assert!(second().wait(1000).add(swap(), conflict()).fits());
    assert!(second().wait(900).add(swap(), conflict()).why().contains("failed over"));
    assert!(second().wait(1000).done(append("x"), 3, Computed::Length(1)).read(Some((3, "x"))).fits());
    assert!(second().wait(900).done(append("x"), 3, Computed::Length(1)).why().contains("returned"));
}

#[test]
fn writes_keep_clear_or_replace_an_expiry() {
    let then = |ttl, value| move || second().wait(500).done(with(ttl, put(value)), 2, DONE);
    assert!(stays(then(Ttl::Usual, "b")()), "a put clears it");
    assert!(goes_after(1000, then(Ttl::Set(1000), "b")));
    assert!(then(Ttl::Keep, "b")().wait(500).read(None).fits());
    assert!(!then(Ttl::Keep, "b")().wait(400).read(None).fits());
    assert!(then(Ttl::IfNew(60_000), "b")().wait(500).read(None).fits(), "it wasn't new");
    let appended = || second().wait(500).done(append("b"), 2, Computed::Length(2));
    assert!(appended().wait(500).read(None).fits());
    assert!(!appended().wait(400).read(None).fits());
    let swap = with(Ttl::Keep, Write::compare_and_swap(k(), Version::new(1, 1), Some("b".into())));
    assert!(second().done(swap, 2, DONE).wait(1000).read(None).fits());
    let old = || Run::default().done(put("a"), 1, DONE);
    assert!(stays(old().done(with(Ttl::IfNew(100), put("b")), 2, DONE)), "it wasn't new");
    assert!(stays(old().done(with(Ttl::Keep, put("b")), 2, DONE)));
    assert!(goes_after(1000, || Run::default().done(with(Ttl::IfNew(1000), put("a")), 1, DONE)));
}

#[test]
fn a_count_begins_again_after_its_time() {
    let count = || with(Ttl::IfNew(1000), increment(1));
    let run = || Run::default().done(count(), 1, Computed::Number(1)).wait(600).done(count(), 2, Computed::Number(2));
    assert!(run().wait(600).done(count(), 4, Computed::Number(1)).fits());
    assert!(run().wait(600).done(count(), 3, Computed::Number(3)).fits(), "it isn't removed yet");
    assert!(run().wait(300).done(count(), 4, Computed::Number(1)).why().contains("returned"));
    let again = || run().wait(600).done(count(), 4, Computed::Number(1));
    assert!(again().wait(900).done(count(), 6, Computed::Number(1)).why().contains("returned"));
    assert!(again().wait(1000).done(count(), 6, Computed::Number(1)).fits());
}

#[test]
fn a_renewal_keeps_the_value_and_replaces_the_expiry() {
    let renewed = || second().wait(900).done(expire(5000, None), 2, RENEWED);
    assert!(renewed().read(Some((2, "a"))).fits());
    assert!(renewed().read(Some((2, "b"))).why().contains("was seen after"));
    assert!(!renewed().read(Some((1, "a"))).fits(), "a renewal makes a version");
    assert!(goes_after(5000, renewed));
    assert!(goes_after(100, || Run::default().done(put("a"), 1, DONE).done(expire(100, None), 2, RENEWED)));
    let lasting = || second().done(expire(None, None), 2, RENEWED);
    assert!(stays(lasting()));
    assert!(lasting().wait(2000).read(Some((2, "a"))).fits());
    assert!(!second().done(expire(5000, None), 2, NOT_RENEWED).fits(), "the key was there");
    assert!(second().wait(1000).done(expire(5000, None), 3, NOT_RENEWED).read(None).fits());
    assert!(!second().wait(1000).done(expire(5000, None), 3, NOT_RENEWED).read(Some((1, "a"))).fits(), "it was absent");
    let gone = second().wait(1000).read(None).done(expire(5000, None), 3, RENEWED);
    assert!(!gone.fits(), "a renewal creates no key");
}

#[test]
fn conditions_of_renewals_are_checked() {
    let old = |when, result| Run::default().done(put("a"), 1, DONE).done(expire(100, Some(when)), 2, result);
    assert!(old(ExpireIf::Unset, RENEWED).fits() && old(ExpireIf::Sooner, RENEWED).fits());
    assert!(!old(ExpireIf::Unset, NOT_RENEWED).fits() && !old(ExpireIf::Sooner, NOT_RENEWED).fits());
    assert!(old(ExpireIf::Set, NOT_RENEWED).fits() && old(ExpireIf::Later, NOT_RENEWED).fits());
    assert!(!old(ExpireIf::Set, RENEWED).fits() && !old(ExpireIf::Later, RENEWED).fits());
    assert!(Run::default().done(put("a"), 1, DONE).done(expire(None, None), 2, NOT_RENEWED).fits(), "it had none");
    assert!(goes_after(1000, || second().done(expire(9000, Some(ExpireIf::Sooner)), 2, NOT_RENEWED)));
}

#[test]
fn a_write_of_unknown_outcome_may_let_the_key_go() {
    let old = || Run::default().done(put("a"), 1, DONE);
    assert!(goes_after(1000, || old().unknown(with(Ttl::Set(1000), put("b")))));
    assert!(goes_after(1000, || old().unknown(with(Ttl::Set(1000), put("b"))).read(Some((2, "b")))));
    assert!(goes_after(1000, || old().unknown(expire(1000, None))));
    assert!(goes_after(1000, || old().unknown(expire(1000, None)).read(Some((2, "a")))));
    assert!(!old().unknown(expire(1000, None)).read(Some((2, "b"))).fits());
    assert!(goes_after(1000, || second().unknown(put("b"))), "the put may not be applied");
    assert!(stays(second().unknown(put("b")).read(Some((2, "b")))));
    assert!(goes_after(1000, || second().unknown(expire(None, None))));
    assert!(stays(second().unknown(expire(None, None)).read(Some((2, "a")))));
    // The unknown put may have been applied in between, and the append has kept its expiry.
    let between = || old().unknown(with(Ttl::Set(1000), put("b"))).done(append("x"), 3, Computed::Length(2));
    assert!(goes_after(1000, between));
    let twice = old().unknown(with(Ttl::Set(1000), put("b"))).wait(1000).read(None);
    assert!(!twice.done(put("c"), 4, DONE).read(None).fits(), "it goes once");
}

/// Two unknown writes look alike; only one of them has a time to live.
#[test]
fn similar_unknown_writes_may_be_either() {
    let (short, long) = (|| with(Ttl::Set(1000), put("b")), || put("b"));
    assert!(goes_after(1000, || Run::default().unknown(short()).unknown(long()).read(Some((2, "b")))));
    assert!(goes_after(1000, || Run::default().unknown(long()).unknown(short()).read(Some((2, "b")))));
}

#[test]
fn batches_renew_keys_that_are_there() {
    let other = || Step::put("l".into(), "x".into());
    let renew = |ttl| Write::Batch(vec![other(), Step::Expire { key: k(), ttl, when: None }]);
    assert!(Run::default().done(renew(Some(100)), 1, DONE).read(None).fits(), "nothing to renew");
    assert!(!Run::default().done(renew(Some(100)), 1, DONE).read(Some((1, ""))).fits());
    let old = || Run::default().done(put("a"), 1, DONE);
    let renewed = || old().done(renew(Some(1000)), 2, DONE);
    assert!(renewed().read(Some((2, "a"))).fits());
    assert!(goes_after(1000, renewed) && goes_after(1000, || renewed().read(Some((2, "a")))));
    assert!(stays(second().done(renew(None), 2, DONE).read(Some((2, "a")))));
    assert!(goes_after(1000, || old().unknown(renew(Some(1000)))));
    assert!(old().unknown(renew(Some(1000))).read_of("l", Some((2, "x"))).read(Some((2, "a"))).fits());
    let swap = |sequence| Write::compare_and_swap(k(), Version::new(1, sequence), Some("b".into()));
    assert!(renewed().done(swap(2), 3, DONE).read(Some((3, "b"))).fits());
    assert!(!renewed().done(swap(1), 3, DONE).fits());
    let both = vec![Step::put(k(), "b".into()), Step::Expire { key: k(), ttl: Some(1000), when: None }];
    assert!(goes_after(1000, || old().done(Write::Batch(both.clone()), 2, DONE)));
}

#[test]
fn a_sequential_put_makes_the_key_of_its_version() {
    let put = |ttl| Write::PutSequential { prefix: k(), value: "a".into(), ttl };
    let seen = |run: Run, key: u64, found: Option<(u64, &'static str)>| {
        let key = sequential_key(b"k", Version::new(1, key));
        let held = |(sequence, value): (u64, &'static str)| Held::new(Version::new(1, sequence), Some(value.into()));
        let query = Query::Keys(vec![key]);
        let found = vec![found.map(held)];
        let cut = MultiGetReply { found, clean: true, way: ReadPath::Local, as_of: Sequence(9), chain_time: 0 };
        run.add(Ask::Read { query, mode: ReadMode::Strong, floor: None }, BookAnswer::Reply(Reply::Cut(cut)))
    };
    let run = || Run::default().done(put(Ttl::Usual), 5, DONE);
    assert!(seen(run(), 5, Some((5, "a"))).fits());
    assert!(!seen(run(), 5, Some((5, "b"))).fits());
    assert!(!seen(run(), 5, None).fits(), "it is lost");
    assert!(!seen(run(), 4, Some((4, "a"))).fits(), "another key");
    assert!(run().read(None).fits(), "the prefix is not the key");
    let run = || Run::default().unknown(put(Ttl::Usual));
    assert!(seen(run(), 5, Some((5, "a"))).fits());
    assert!(!seen(run(), 5, Some((6, "a"))).fits(), "not the version in the key");
    assert!(!seen(seen(run(), 5, Some((5, "a"))), 6, Some((6, "a"))).fits(), "it was applied twice");
    let run = || seen(Run::default().unknown(put(Ttl::Set(1000))), 5, Some((5, "a")));
    assert!(seen(run().wait(990), 5, None).fits());
    assert!(!seen(run().wait(980), 5, None).fits());
}
