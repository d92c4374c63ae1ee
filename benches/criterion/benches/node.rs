//! Whole nodes on loopback: reads on a member, and reads and writes of a remote client.
#![allow(missing_docs, reason = "criterion's macros make public items")]

use std::sync::{Arc, RwLock};

use artillery_benches::{Load, Loopback, VALUE, holds};
use artillery_core::internal::clock;
use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};

const KEYS: usize = 10_000;
const CHAINS: [u32; 2] = [1, 3];
const IN_FLIGHT: [usize; 2] = [64, 1024];
/// Operations of one iteration: enough to make starting and ending `IN_FLIGHT` operations negligible.
const OPERATIONS: usize = 16_384;

/// A chain whose keys all hold a value and are clean at all members.
fn filled(members: u32) -> (Loopback, Arc<Load>) {
    let (chain, load) = Loopback::filled(members, KEYS);
    for node in &chain.nodes {
        let (kv, load) = (node.kv(), load.clone());
        chain.run(async move { load.verify(&kv).await });
    }
    (chain, load)
}

/// Reads on the member itself, where a clean read is a lookup.
fn local(c: &mut Criterion) {
    let (chain, load) = filled(3);
    let kv = chain.nodes[1].kv();
    let mut group = c.benchmark_group("member_read");
    group.throughput(Throughput::Elements(1));
    let mut n = 0;
    group.bench_function("get_local", |b| {
        b.iter(|| {
            n += 1;
            let (key, number) = load.nth(n);
            let found = kv.get_local(key).expect("a clean key").expect("a value");
            assert!(holds(&found.value, number, VALUE));
        });
    });
    group.bench_function("get", |b| {
        b.iter_custom(|reads| {
            let (kv, load) = (kv.clone(), load.clone());
            chain.run(async move {
                let begin = clock::now();
                for n in 0..reads as usize {
                    load.read_one(&kv, n).await;
                }
                clock::now() - begin
            })
        });
    });
    group.finish();
}

/// Look-ups in a view, and in a locked map, which a program would keep without views.
fn view(c: &mut Criterion) {
    let (chain, load) = filled(1);
    let kv = chain.nodes[0].kv();
    let view = chain.run(async move { kv.view("").await }).expect("a view");
    #[expect(clippy::disallowed_types, reason = "the usual map of a program")]
    let map: RwLock<std::collections::HashMap<_, _>> =
        RwLock::new(view.iter().map(|entry| (entry.key, entry.value)).collect());
    let mut group = c.benchmark_group("view_get");
    group.throughput(Throughput::Elements(1));
    let mut n = 0;
    group.bench_function("view", |b| {
        b.iter(|| {
            n += 1;
            view.get(load.nth(n).0).expect("a value")
        });
    });
    let mut n = 0;
    group.bench_function("map", |b| {
        b.iter(|| {
            n += 1;
            map.read().expect("no panic").get(load.nth(n).0).expect("a value").clone()
        });
    });
    group.finish();
}

/// One operation after the other. A blocked thread waits for each.
fn one_at_a_time(c: &mut Criterion) {
    let mut group = c.benchmark_group("remote_one_at_a_time");
    group.throughput(Throughput::Elements(1));
    for members in CHAINS {
        let (chain, load) = filled(members);
        let remote = chain.client();
        let kv = remote.kv();
        let mut n = 0;
        group.bench_function(format!("read/{members}"), |b| {
            b.iter(|| {
                n += 1;
                remote.run(load.read_one(&kv, n));
            });
        });
        let remote = chain.client();
        let kv = remote.kv();
        group.bench_function(format!("write/{members}"), |b| {
            b.iter(|| remote.run(load.write_one(&kv, members)));
        });
        remote.run(load.verify(&kv));
    }
    group.finish();
}

fn pipelined(c: &mut Criterion) {
    let mut group = c.benchmark_group("remote_pipelined");
    group.throughput(Throughput::Elements(OPERATIONS as u64)).sampling_mode(SamplingMode::Flat).sample_size(20);
    for members in CHAINS {
        let (chain, load) = filled(members);
        for in_flight in IN_FLIGHT {
            let remote = chain.client();
            let kv = remote.kv();
            group.bench_function(format!("read/{members}/{in_flight}"), |b| {
                b.iter(|| remote.run(load.read(&kv, OPERATIONS, in_flight)));
            });
            let remote = chain.client();
            let kv = remote.kv();
            group.bench_function(format!("write/{members}/{in_flight}"), |b| {
                b.iter(|| remote.run(load.write(&kv, members, OPERATIONS, in_flight)));
            });
            remote.run(load.verify(&kv));
        }
    }
    group.finish();
}

criterion_group!(benches, local, view, one_at_a_time, pipelined);
criterion_main!(benches);
