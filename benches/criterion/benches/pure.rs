//! Costs of the I/O-free core: local clean reads, steps of the replica, the codec.
#![allow(missing_docs, reason = "criterion's macros make public items")]

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use artillery_benches::{BareChain, VALUE, holds, key, value};
use artillery_core::internal::clock;
use artillery_proto::{
    ChainId, Sequence, Version,
    store::{Held, MemoryStore, Store, StoreBatch, StoreOp},
    wire,
};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

const KEYS: [usize; 2] = [10_000, 100_000];

/// The complete guarded path, compared with the bare lookup without its guards.
fn local_read(c: &mut Criterion) {
    let mut group = c.benchmark_group("local_read");
    group.throughput(Throughput::Elements(1));
    for keys in KEYS {
        let mut chain = BareChain::new(3);
        for n in 0..keys {
            chain.put(key(n), value(n as u64, VALUE));
            if n % 1000 == 0 {
                chain.settle();
            }
        }
        chain.settle();
        let names: Vec<_> = (0..keys).map(key).collect();
        let (gate, store) = (chain.gates[1].clone(), chain.stores[1].clone());
        let mut at = 0;
        // A stride that is wide in memory, and coprime with the numbers of keys.
        let mut next = move || {
            at = (at + 7919) % keys;
            at
        };
        group.bench_function(format!("lookup/{keys}"), |b| {
            b.iter(|| {
                let n = next();
                let held = store.read(ChainId(0), &names[n], Sequence::MAX).expect("a store in memory");
                assert_holds(held, n);
            });
        });
        group.bench_function(format!("guarded/{keys}"), |b| {
            b.iter(|| {
                let n = next();
                assert_holds(gate.read(&*store, &names[n], clock::now).expect("a clean key"), n);
            });
        });
    }
    group.finish();
}

fn assert_holds(held: Option<Held>, n: usize) {
    let value = held.and_then(|held| held.value);
    assert!(value.is_some_and(|value| holds(&value, n as u64, VALUE)), "a read found something else");
}

/// Two threads read concurrently, the same key or one each, alone or while a third thread keeps writing both keys.
fn shared_read(c: &mut Criterion) {
    let mut group = c.benchmark_group("shared_read");
    group.throughput(Throughput::Elements(2));
    for (name, keys) in [("same_key", [0, 0]), ("own_keys", [0, 1])] {
        for (beside, writes) in [("alone", false), ("beside_a_writer", true)] {
            let store = MemoryStore::with_seed(1);
            (1..=2).for_each(|sequence| put(&store, sequence));
            group.bench_function(format!("{name}/{beside}"), |b| {
                b.iter_custom(|times| read_at_once(&store, keys, times, writes));
            });
        }
    }
    group.finish();
}

/// The time until both threads have read their keys `times` times.
#[expect(clippy::disallowed_methods, reason = "it measures time")]
fn read_at_once(store: &MemoryStore, keys: [usize; 2], times: u64, writes: bool) -> Duration {
    let done = AtomicBool::new(!writes);
    let write = || {
        let mut sequence = newest(store);
        while !done.load(Ordering::Relaxed) {
            sequence += 1;
            put(store, sequence);
        }
    };
    let read = |n| {
        let key = key(n);
        (0..times)
            .for_each(|_| assert_holds(store.read(ChainId(0), &key, Sequence::MAX).expect("a store in memory"), n));
    };
    thread::scope(|scope| {
        scope.spawn(write);
        let begun = Instant::now();
        let read = &read;
        for reader in keys.map(|n| scope.spawn(move || read(n))) {
            reader.join().expect("a reader");
        }
        let took = begun.elapsed();
        done.store(true, Ordering::Relaxed);
        took
    })
}

fn newest(store: &MemoryStore) -> u64 {
    let of = |n| store.read(ChainId(0), &key(n), Sequence::MAX).expect("a store in memory");
    (0..2).filter_map(of).map(|held| held.version.sequence.0).max().unwrap_or_default()
}

/// Puts one of the two keys, alternately.
fn put(store: &MemoryStore, sequence: u64) {
    let n = (sequence % 2) as usize;
    let held = Held::new(Version::new(1, sequence), Some(value(n as u64, VALUE)));
    let ops = std::iter::once(StoreOp::Put { key: key(n), held }).collect();
    store.apply(&StoreBatch { chain: ChainId(0), keep_from: Sequence(sequence), ops }).expect("a store in memory");
}

/// Writes through a chain whose members share one thread: divide by the number of members for the cost at each.
fn replica_step(c: &mut Criterion) {
    let mut group = c.benchmark_group("replica_step");
    const BATCH: usize = 100;
    group.throughput(Throughput::Elements(BATCH as u64));
    for members in [1, 3, 5] {
        let mut chain = BareChain::new(members);
        let writes: Vec<_> = (0..10_000).map(|n| (key(n), value(n as u64, VALUE))).collect();
        let mut at = 0;
        group.bench_function(format!("put/{members}"), |b| {
            b.iter(|| {
                for _ in 0..BATCH {
                    at += 1;
                    let (key, value) = writes[at % writes.len()].clone();
                    chain.put(key, value);
                }
                chain.settle();
                assert_eq!(chain.commits, at as u64, "a write was not committed");
            });
        });
    }
    group.finish();
}

fn codec(c: &mut Criterion) {
    use artillery_proto::{
        Epoch, Version,
        message::{ChainFrame, ChainMessage, Updates},
        types::update::{KeyChange, RequestOutcome, Update, UpdateKind},
    };
    let update = |n: usize| Update {
        version: Version::new(1, n as u64 + 1),
        kind: UpdateKind::WRITE,
        request: None,
        outcome: RequestOutcome::Done,
        chain_time: 1_700_000_000_000,
        changes: std::iter::once(KeyChange::new(key(n), Some(value(n as u64, VALUE)))).collect(),
    };
    let updates: Vec<_> = (0..100).map(update).collect();
    let bytes: usize = updates.iter().map(Update::cost).sum();
    let message = ChainMessage::Updates(Updates { watermark: Sequence(7), after: Version::NONE, updates });
    let frame = ChainFrame { chain: ChainId(0), epoch: Epoch(1), index: 1, message };
    let mut group = c.benchmark_group("codec");
    group.throughput(Throughput::Bytes(bytes as u64));
    group.bench_function("encode/100x1000", |b| b.iter(|| wire::chain::encode(&frame)));
    let encoded = wire::chain::encode(&frame).expect("a frame");
    let received = encoded.to_frame();
    group.bench_function("decode/100x1000", |b| {
        b.iter_batched(
            || received.clone(),
            |frame| wire::chain::decode(&frame).expect("a frame"),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(benches, local_read, shared_read, replica_step, codec);
criterion_main!(benches);
