//! The raw limits: echoes over TCP and QUIC, with the sizes of a read and of a write.
#![allow(missing_docs, reason = "criterion's macros make public items")]

use std::io;

use artillery_benches::raw::{BlockingTcp, Quic, Shape, Tcp};
use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use tokio::runtime::{Builder, Runtime};

const OPERATIONS: u64 = 16_384;
const SHAPES: [(&str, Shape); 2] = [("read", Shape::READ), ("write", Shape::WRITE)];

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// One request after the other. A blocked thread waits for each.
fn one_at_a_time(c: &mut Criterion) {
    let mut group = c.benchmark_group("raw_one_at_a_time");
    group.throughput(Throughput::Elements(1));
    for (name, shape) in SHAPES {
        let mut tcp = BlockingTcp::connect(shape).expect("a connection");
        group.bench_function(format!("tcp_std/{name}"), |b| b.iter(|| tcp.ask().expect("an answer")));
        let runtime = runtime();
        let mut tcp = runtime.block_on(Tcp::connect(shape)).expect("a connection");
        group.bench_function(format!("tcp/{name}"), |b| b.iter(|| done(runtime.block_on(tcp.run(1, 1)))));
        let mut quic = runtime.block_on(Quic::connect(shape)).expect("a connection");
        group.bench_function(format!("quic/{name}"), |b| b.iter(|| done(runtime.block_on(quic.pipe.run(1, 1)))));
    }
    group.finish();
}

fn pipelined(c: &mut Criterion) {
    let mut group = c.benchmark_group("raw_pipelined");
    group.throughput(Throughput::Elements(OPERATIONS)).sampling_mode(SamplingMode::Flat).sample_size(20);
    for (name, shape) in SHAPES {
        for in_flight in [64, 1024] {
            let runtime = runtime();
            let mut tcp = runtime.block_on(Tcp::connect(shape)).expect("a connection");
            group.bench_function(format!("tcp/{name}/{in_flight}"), |b| {
                b.iter(|| done(runtime.block_on(tcp.run(OPERATIONS, in_flight))));
            });
            let mut quic = runtime.block_on(Quic::connect(shape)).expect("a connection");
            group.bench_function(format!("quic/{name}/{in_flight}"), |b| {
                b.iter(|| done(runtime.block_on(quic.pipe.run(OPERATIONS, in_flight))));
            });
        }
    }
    group.finish();
}

fn done(answered: io::Result<()>) {
    answered.expect("an answer");
}

criterion_group!(benches, one_at_a_time, pipelined);
criterion_main!(benches);
