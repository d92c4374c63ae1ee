# Short names for common commands; `.ci/run --list` has all the checks.

default:
    @just --list

# Three nodes in one process find each other and form a chain.
quickstart *ARGS:
    cargo run --release --bin quickstart -- {{ARGS}}

test *ARGS:
    cargo test --workspace {{ARGS}}

# Format, lint, and check that the pure half is pure: cheap enough for every commit.
check:
    .ci/run fmt clippy pure-tree

# All checks.
ci *PHASES:
    .ci/run {{PHASES}}

# Every order of events in a small chain.
model *ARGS:
    cargo run --release -p artillery-model -- {{ARGS}}

# Seeds of every scenario through the simulator.
sim *ARGS:
    cargo run --release -p artillery-sim -- {{ARGS}}

# Take guards out, one after the other: each must be caught.
mutants *ARGS:
    cargo run --release -p artillery-sim -- --mutant all {{ARGS}}

# All benches in one run, beside their raw limits; ARGS go to criterion. Wants a quiet machine.
bench *ARGS:
    benches/run {{ARGS}}

# CR, CRAQ and bare sockets by number of callers: measures for ten minutes, and draws. ARGS: FOLDER, then --quick and others.
graphs *ARGS:
    benches/graph {{ARGS}}

# Every figure that has a goal, beside the goal: measures for fifty minutes; --stored prints the stored figures.
goals *ARGS:
    cargo build --profile tuned -p artillery-node -p artillery-ctl -p artillery-benches --bins
    benches/goals {{ARGS}}

# Only measures, into benches/results/throughput.json.
throughput *ARGS:
    cargo build --release --bin node
    cargo run --release -p artillery-benches --bin throughput -- {{ARGS}}

# Only draws stored results: --from FILE.
draw *ARGS:
    cargo run --release -p artillery-benches --bin graphs -- {{ARGS}}

# The CRAQ paper's evaluation on links of 100 Mbit/s: measures eight minutes, and draws. ARGS: FOLDER, then --quick, --only and others. Wants root.
paper *ARGS:
    benches/paper {{ARGS}}

# Writes of one handle over a link with a round trip of 156 ms.
long-link *ARGS:
    cargo build --release --bin node
    cargo run --release -p artillery-benches --bin long_link -- {{ARGS}}

# All nodes are killed and started again with ten million records, beside a bare read and a bare insert: ten minutes, 17 GiB of memory.
cold-start *ARGS:
    benches/durable cold_start {{ARGS}}

# What syncs cost a write, beside nodes in memory and bare loops of syncs.
group-commit *ARGS:
    benches/durable group_commit {{ARGS}}

# `node --resp` beside redis-server, in one run: needs redis-server and redis-benchmark.
redis *ARGS:
    benches/redis {{ARGS}}

# An operator's orders beside crashes, with real nodes, N times each.
operators N="20":
    cargo build --release --bin node --bin ctl
    .ci/leaving target/release {{N}}

# The costs of one operation in allocations, system calls and bytes.
per-operation *ARGS:
    cargo run --release -p artillery-benches --bin per_operation -- {{ARGS}}

# Check that these costs are within benches/budget.json.
budget: (per-operation "--check" "benches/budget.json")

# How long one step of a chain's task keeps other requests waiting, with a million keys: each figure beside its bound.
steps *ARGS:
    cargo run --release -p artillery-benches --bin steps -- {{ARGS}}

# Ten times too many callers for half a minute: memory, latency, and whether anything is lost.
overload:
    OVERLOAD_STRICT=1 .ci/run overload

# Real nodes under real faults; needs root and iproute2.
chaos *ARGS:
    cargo build --release --bin node --bin ctl
    cargo run --release --bin chaos -- {{ARGS}}

# Every decoder, SECONDS each; needs a C++ compiler, nightly and cargo-fuzz.
fuzz SECONDS="300":
    FUZZ_SECONDS={{SECONDS}} .ci/run fuzz

doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --open
