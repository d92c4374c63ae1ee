//! Explores a small chain: every order of its messages, crashes, cuts and steps of the clock, within bounds.

#![allow(clippy::print_stdout, reason = "output for the user")]

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use artillery_model::{
    bounds::{Bounds, WRITES},
    explore::{Explored, explore},
    same::compare,
};
use artillery_proto::guards::{Guards, Mutant};
use clap::{Parser, ValueEnum};

/// Each step creates and drops copies of parts of the world, which is slower with the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Explores a small chain exhaustively. Exit code 1: a property is broken, or not everything was explored.
#[derive(Parser, Debug)]
#[command(version, about)]
struct Arguments {
    /// Number of writes, 0 to 2 [default: 2, or 1 with --mutant]
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=WRITES as i64))]
    writes: Option<u8>,
    /// Leave out the read
    #[arg(long)]
    no_read: bool,
    /// Steps of the clock, of a quarter of a lease each. A lost member is removed at the fifth
    #[arg(long, default_value_t = 6)]
    ticks: u64,
    /// Maximum number of nodes that crash or are cut off
    #[arg(long, default_value_t = 1)]
    faults: u32,
    /// Instead of crashes and cuts, nodes or the leader become undialable; they can still dial others
    #[arg(long)]
    undialable: bool,
    /// Maximum number of reorders of the chain, to any other order
    #[arg(long, default_value_t = 0)]
    reorders: u32,
    /// Maximum number of entries that the configuration log accepts
    #[arg(long, default_value_t = 1)]
    changes: u32,
    /// Maximum number of elections of the coordinator [default: 0, or 1 if the mutant needs one]
    #[arg(long)]
    elections: Option<u32>,
    /// Maximum number of frames in flight on each ordered link
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    in_flight: u8,
    /// Allow late renewals and answers: many more states
    #[arg(long)]
    late_renewals: bool,
    /// Remove this guard, and expect a failing run
    #[arg(long)]
    mutant: Option<Guard>,
    /// With --mutant, look for any failing run instead of the shortest one: needs little memory
    #[arg(long)]
    depth_first: bool,
    /// Verify that worlds of equal fingerprint lead to the same worlds: on one thread, with more memory
    #[arg(long)]
    compare: bool,
    /// Number of threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    threads: u8,
    /// Stop after this many seconds. Needs at least two threads: a single one never checks the time
    #[arg(long, default_value_t = 1800)]
    seconds: u64,
}

/// A guard that can be removed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Guard {
    /// A member is removed while its lease may still be valid (trap 4).
    RemoveAtOnce,
    /// A new leader doesn't wait for the leases that earlier leaders granted (trap 4).
    NewLeaderDoesNotWait,
    /// Local reads continue after the lease has expired (trap 1).
    IgnoreLease,
    /// A successor is followed before its predecessor is known to be a prefix (trap 52).
    FollowTooSoon,
}

impl Arguments {
    fn bounds(&self) -> Bounds {
        let by_default = if self.mutant.is_some() { 1 } else { WRITES };
        let elections = u32::from(matches!(self.mutant, Some(Guard::NewLeaderDoesNotWait)));
        let mut bounds = Bounds {
            writes: self.writes.map_or(by_default, usize::from),
            reads: !self.no_read,
            ticks: self.ticks,
            faults: self.faults,
            undialable: self.undialable,
            reorders: self.reorders,
            changes: self.changes,
            elections: self.elections.unwrap_or(elections),
            in_flight: self.in_flight.into(),
            late_renewals: self.late_renewals,
            coordinator: (self.reorders > 0).then_some(Mutant::ReorderOpen).into(),
            replica: Guards::default(),
        };
        match self.mutant {
            None => {}
            Some(Guard::RemoveAtOnce) => bounds.coordinator = Guards::without(Mutant::RemoveAtOnce),
            Some(Guard::NewLeaderDoesNotWait) => bounds.coordinator = Guards::without(Mutant::NewLeaderDoesNotWait),
            Some(Guard::IgnoreLease) => bounds.replica = Guards::without(Mutant::IgnoreLease),
            Some(Guard::FollowTooSoon) => bounds.replica = Guards::without(Mutant::FollowTooSoon),
        }
        bounds
    }

    /// Depth first needs little memory; breadth first finds the shortest failing run.
    fn explore(&self, breadth: bool) -> Explored {
        explore(self.bounds(), self.threads.into(), breadth, Duration::from_secs(self.seconds))
    }
}

#[allow(clippy::disallowed_methods, reason = "prints the duration")]
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    println!("bounds: {}", arguments.bounds());
    if arguments.compare {
        return say_compared(arguments.bounds());
    }
    let began = Instant::now();
    let mut explored = arguments.explore(arguments.mutant.is_some() && !arguments.depth_first);
    if explored.failure.is_some() && arguments.mutant.is_none() {
        println!("a property is broken: looking for the shortest run that breaks it");
        explored = arguments.explore(true);
    }
    let Explored { states, steps, depth, .. } = &explored;
    println!("{states} states, {steps} steps, at most {depth} of them in a row, in {:.1?}", began.elapsed());
    if let Some(most) = peak_memory() {
        println!("peak memory: {most}");
    }
    say(&explored, arguments.mutant)
}

fn say_compared(bounds: Bounds) -> ExitCode {
    match compare(bounds) {
        Ok(compared) => {
            println!(
                "{} states, reached {} times more: each time they led to the same states",
                compared.states, compared.again
            );
            ExitCode::SUCCESS
        }
        Err((last, state)) => {
            println!("after {last:?} a world has the fingerprint {state:016x} of another one, but differs from it");
            ExitCode::FAILURE
        }
    }
}

fn say(explored: &Explored, mutant: Option<Guard>) -> ExitCode {
    if let Some((what, actions)) = &explored.failure {
        println!("broken property: {what}");
        actions.iter().enumerate().for_each(|(at, action)| println!("{:4}. {action:?}", at + 1));
    }
    let right = match mutant {
        Some(guard) if explored.failure.is_some() => {
            println!("removing {guard:?} was caught");
            true
        }
        Some(guard) => {
            println!("removing {guard:?} was not caught within these bounds");
            false
        }
        None => {
            explored.missing.iter().for_each(|what| println!("no run reached: {what}"));
            explored.failure.is_none() && explored.missing.is_empty()
        }
    };
    if mutant.is_none() && explored.failure.is_none() {
        println!(
            "{}",
            if explored.complete { "everything was explored" } else { "not everything was explored in that time" }
        );
    }
    if right && (mutant.is_some() || explored.complete) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The peak memory of this process, as reported by the system.
fn peak_memory() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(most.trim().to_owned())
}
