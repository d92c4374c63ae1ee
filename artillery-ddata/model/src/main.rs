//! Explores a small chain: every order of its messages, crashes, cuts and steps of the clock, within bounds.

#![allow(clippy::print_stdout, reason = "a program for people")]

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

/// Each step makes and drops copies of parts of the world: with the system's allocator that takes longer.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Explores a small chain exhaustively. Exit code 1: a property is broken, or not everything was explored.
#[derive(Parser, Debug)]
#[command(version, about)]
struct Arguments {
    /// Writes, 0 to 2; with a guard out, one is enough unless you say otherwise.
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=WRITES as i64))]
    writes: Option<u8>,
    /// Leave the read out.
    #[arg(long)]
    no_read: bool,
    /// Steps of the clock, of a quarter of a lease each. A lost member is removed at the fifth.
    #[arg(long, default_value_t = 6)]
    ticks: u64,
    /// Nodes that crash or are cut off.
    #[arg(long, default_value_t = 1)]
    faults: u32,
    /// The faults are nodes, or the leader, that dial others and can't be dialled.
    #[arg(long)]
    undialable: bool,
    /// Reorders of the chain, to any other order.
    #[arg(long, default_value_t = 0)]
    reorders: u32,
    /// Entries that the configuration log takes.
    #[arg(long, default_value_t = 1)]
    changes: u32,
    /// Elections of the coordinator.
    #[arg(long)]
    elections: Option<u32>,
    /// Frames under way on each ordered link.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    in_flight: u8,
    /// Renewals and their answers may be late: many more states.
    #[arg(long)]
    late_renewals: bool,
    /// Take this guard out, and expect that it is missed.
    #[arg(long)]
    mutant: Option<Guard>,
    /// With a guard out, look for any failing run, not for the shortest: takes little memory.
    #[arg(long)]
    depth_first: bool,
    /// Verify that worlds of equal fingerprint lead to the same worlds: on one thread, with more memory.
    #[arg(long)]
    compare: bool,
    /// Threads.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    threads: u8,
    /// Give up after so many seconds. Works with two threads or more: a single one never looks at the time.
    #[arg(long, default_value_t = 1800)]
    seconds: u64,
}

/// A guard that can be left out.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Guard {
    /// A member is removed while its lease may run (trap 4).
    RemoveAtOnce,
    /// A new leader doesn't wait for the leases that others granted (trap 4).
    NewLeaderDoesNotWait,
    /// Local reads go on after the lease has expired (trap 1).
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

#[allow(clippy::disallowed_methods, reason = "tells how long it took")]
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    println!("bounds: {}", arguments.bounds());
    if arguments.compare {
        return say_compared(arguments.bounds());
    }
    let began = Instant::now();
    let mut explored = arguments.explore(arguments.mutant.is_some() && !arguments.depth_first);
    if explored.failure.is_some() && arguments.mutant.is_none() {
        println!("something is wrong: looking for the shortest run that shows it");
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
                "{} states, come to {} times more: each time they led to the same",
                compared.states, compared.again
            );
            ExitCode::SUCCESS
        }
        Err((last, state)) => {
            println!("behind {last:?} a world is taken for {state:016x}, and isn't like it");
            ExitCode::FAILURE
        }
    }
}

fn say(explored: &Explored, mutant: Option<Guard>) -> ExitCode {
    if let Some((what, actions)) = &explored.failure {
        println!("it is not always so that {what}:");
        actions.iter().enumerate().for_each(|(at, action)| println!("{:4}. {action:?}", at + 1));
    }
    let right = match mutant {
        Some(guard) if explored.failure.is_some() => {
            println!("{guard:?} is missed");
            true
        }
        Some(guard) => {
            println!("{guard:?} is not missed within these bounds");
            false
        }
        None => {
            explored.missing.iter().for_each(|what| println!("no run shows that {what}"));
            explored.failure.is_none() && explored.missing.is_empty()
        }
    };
    if mutant.is_none() && explored.failure.is_none() {
        println!("{}", if explored.complete { "all was explored" } else { "not all was explored in that time" });
    }
    if right && (mutant.is_some() || explored.complete) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The peak memory of this process, as the system reports it.
fn peak_memory() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(most.trim().to_owned())
}
