# Short names for common commands; `.ci/run --list` lists all checks.

default:
    @just --list

# Three nodes in one process discover each other and form a chain.
quickstart *ARGS:
    cargo run --release --bin quickstart -- {{ARGS}}

# Three durable nodes under a small load, with a page to look at, to be killed. Ctrl-C ends them and deletes their data.
demo *ARGS:
    cargo run --release --bin demo -- {{ARGS}}

test *ARGS:
    cargo test --workspace {{ARGS}}

# Check format, lints and the purity of the I/O-free crates: cheap enough for every commit.
check:
    .ci/run fmt clippy pure-tree

# All checks.
ci *PHASES:
    .ci/run {{PHASES}}

# Explore every order of events in a small chain.
model *ARGS:
    cargo run --release -p artillery-model -- {{ARGS}}

# Run seeds of every scenario through the simulator.
sim *ARGS:
    cargo run --release -p artillery-sim -- {{ARGS}}

# Remove safeguards, one at a time: the checker must catch each.
mutants *ARGS:
    cargo run --release -p artillery-sim -- --mutant all {{ARGS}}

# All benches and their raw limits in one run; ARGS go to criterion. Needs a quiet machine.
bench *ARGS:
    benches/run {{ARGS}}

# Measure CR, CRAQ and bare sockets by number of callers for ten minutes, and draw. ARGS: FOLDER, then --quick and others.
graphs *ARGS:
    benches/graph {{ARGS}}

# Measure every figure that has a goal, for fifty minutes, and compare; --stored prints the stored figures.
goals *ARGS:
    cargo build --profile tuned -p artillery-short -p artillery-benches --bins
    benches/goals {{ARGS}}

# Measure only, into benches/results/throughput.json.
throughput *ARGS:
    cargo build --release --bin node
    cargo run --release -p artillery-benches --bin throughput -- {{ARGS}}

# Draw stored results only: --from FILE.
draw *ARGS:
    cargo run --release -p artillery-benches --bin graphs -- {{ARGS}}

# Measure the CRAQ paper's evaluation on links of 100 Mbit/s for eleven minutes, and draw. ARGS: FOLDER, then --quick, --only and others. Needs root.
paper *ARGS:
    benches/paper {{ARGS}}

# Measure writes of one handle over a link with a round trip of 156 ms.
long-link *ARGS:
    cargo build --release --bin node
    cargo run --release -p artillery-benches --bin long_link -- {{ARGS}}

# Kill and restart all nodes with ten million records, and compare with a bare read and a bare insert: ten minutes, 17 GiB of memory.
cold-start *ARGS:
    benches/durable cold_start {{ARGS}}

# Measure the cost of syncs for a write, compared with nodes in memory and bare loops of syncs.
group-commit *ARGS:
    benches/durable group_commit {{ARGS}}

# Compare `node --resp` with redis-server in one run: needs redis-server and redis-benchmark.
redis *ARGS:
    benches/redis {{ARGS}}

# An operator's orders during crashes, with real nodes, N times each.
operators N="20":
    cargo build --release --bin node --bin ctl
    .ci/leaving target/release {{N}}

# Run the programs and the commands of README, GUARANTEES.md and the guide.
guide:
    cargo test -p artillery-guide
    .ci/run guide

# Count allocations, system calls and bytes of one operation.
per-operation *ARGS:
    cargo run --release -p artillery-benches --bin per_operation -- {{ARGS}}

# Check that these counts are within benches/budget.json.
budget: (per-operation "--check" "benches/budget.json")

# Measure how long one step of a chain's task delays other requests, with a million keys, and compare with the bounds.
steps *ARGS:
    cargo run --release -p artillery-benches --bin steps -- {{ARGS}}

# Overload with ten times too many callers for half a minute: checks memory, latency, and that nothing is lost.
overload:
    OVERLOAD_STRICT=1 .ci/run overload

# Inject faults into real nodes; needs root and iproute2.
chaos *ARGS:
    cargo build --release --bin node --bin ctl
    cargo run --release --bin chaos -- {{ARGS}}

# Fuzz every decoder, SECONDS each; needs a C++ compiler, nightly and cargo-fuzz.
fuzz SECONDS="300":
    FUZZ_SECONDS={{SECONDS}} .ci/run fuzz

doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --open
