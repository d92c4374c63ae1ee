//! `artillery-sim`: runs seeds to find broken promises, and hunts mutants to show that the checks would find one.

use std::{
    io::Write as _,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use artillery_proto::guards::Guards;
use artillery_sim::{
    every_write::Reference,
    hunt::{Baselines, hunt},
    mutants::{HUNTED, Hunted, MAX_SEEDS, expected_seeds, hunted},
    report::{MutantReport, ScenarioReport, mutant_list, scenario_list},
    runner::{Runner, run},
    scenario::{DURABLE, Scenario, set_disks},
};
use clap::Parser;
use serde_json::{Map, json};

/// Runs whole clusters on virtual time, one per seed, and checks what their clients observed.
#[derive(Parser, Debug)]
#[command(name = "artillery-sim", version)]
struct Arguments {
    /// Number of seeds per scenario (default 200), or the maximum per mutant (default 500; with `--mutant all` 60, or
    /// 500 for rare mutants).
    #[arg(long)]
    seeds: Option<u64>,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    start: u64,
    /// One scenario, `all`, or `list` to print their names.
    #[arg(long, default_value = "all", value_parser = scenario)]
    scenario: Choice<Scenario>,
    /// Disables one safeguard and expects a check to fail: one mutant, `all`, or `list` to print their names.
    #[arg(long, value_parser = mutant)]
    mutant: Option<Choice<Hunted>>,
    /// After the scenarios, hunts their mutants as `--mutant all` does, ignoring `--seeds`. Runs whose results are
    /// already known are not repeated.
    #[arg(long, conflicts_with_all = ["mutant", "every_write"])]
    then_mutants: bool,
    /// Seeds per thousand in which nodes have disks, in scenarios with restarts.
    #[arg(long, default_value_t = DURABLE)]
    disks: u32,
    /// Repeats one run of three nodes with a power cut at every write and sync of their disks (or every STEP-th), at
    /// one node and at all nodes. `--start` and `--seeds` then select the first cut and the maximum number of cuts.
    #[arg(long, value_name = "STEP", num_args = 0..=1, default_missing_value = "1", value_parser = clap::value_parser!(u64).range(1..))]
    every_write: Option<u64>,
    /// Prints the results as one JSON object.
    #[arg(long)]
    json: bool,
    /// Prints every event of every run.
    #[arg(long)]
    trace: bool,
}

#[derive(Clone, Copy, Debug)]
enum Choice<T> {
    One(T),
    All,
    List,
}

impl<T> Choice<T> {
    fn one(self) -> Option<T> {
        match self {
            Self::One(one) => Some(one),
            Self::All | Self::List => None,
        }
    }
}

fn choose<T>(name: &str, named: impl Fn(&str) -> Option<T>) -> Result<Choice<T>, String> {
    match name {
        "all" => Ok(Choice::All),
        "list" => Ok(Choice::List),
        name => named(name).map(Choice::One).ok_or_else(|| "unknown; `list` shows the names".to_owned()),
    }
}

fn scenario(name: &str) -> Result<Choice<Scenario>, String> {
    choose(name, Scenario::named)
}

fn mutant(name: &str) -> Result<Choice<Hunted>, String> {
    choose(name, hunted)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    set_disks(arguments.disks);
    // A closed stdout (a pipe whose reader has exited) is an error like any other, not a panic.
    match work(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("artillery-sim: {error}");
            ExitCode::FAILURE
        }
    }
}

fn work(arguments: &Arguments) -> std::io::Result<bool> {
    let mut out = std::io::stdout().lock();
    if matches!(arguments.scenario, Choice::List) {
        write!(out, "{}", scenario_list())?;
        return Ok(true);
    }
    if let Some(step) = arguments.every_write {
        return every_write(arguments, step, &mut out);
    }
    if matches!(arguments.mutant, Some(Choice::List)) {
        write!(out, "{}", mutant_list())?;
        return Ok(true);
    }
    let (baselines, mut json, mut passed) = (Baselines::default(), Map::new(), true);
    if arguments.mutant.is_none() {
        let reports = scenarios(arguments, &baselines, &mut out)?;
        passed &= reports.iter().all(ScenarioReport::passed);
        json.insert("scenarios".to_owned(), reports.iter().map(|report| json!(report.json())).collect());
    }
    if arguments.mutant.is_some() || arguments.then_mutants {
        let reports = mutants(arguments, &baselines, &mut out)?;
        passed &= reports.iter().all(MutantReport::passed);
        json.insert("mutants".to_owned(), reports.iter().map(|report| json!(report.json())).collect());
    }
    if arguments.json {
        writeln!(out, "{}", json!(json))?;
    }
    Ok(passed)
}

fn scenarios(
    arguments: &Arguments,
    baselines: &Baselines,
    out: &mut impl std::io::Write,
) -> std::io::Result<Vec<ScenarioReport>> {
    let chosen: &[Scenario] = match &arguments.scenario {
        Choice::One(scenario) => std::slice::from_ref(scenario),
        _ => &Scenario::ALL,
    };
    let seeds = arguments.seeds.unwrap_or(200);
    let mut reports = Vec::new();
    for &scenario in chosen {
        let mut report = ScenarioReport::new(scenario);
        let mut written = Ok(());
        let work = |n| run(scenario, arguments.start.wrapping_add(n), None, arguments.trace);
        Runner::default().each(seeds, work, |n, outcome| {
            let seed = arguments.start.wrapping_add(n);
            if let (Some(trace), Ok(())) = (&outcome.trace, &written) {
                written = out.write_all(trace.as_bytes());
            }
            if arguments.then_mutants {
                baselines.add(scenario, seed, outcome.failure.clone());
            }
            report.add(seed, outcome);
        });
        written?;
        if !arguments.json {
            writeln!(out, "{report}")?;
        }
        reports.push(report);
    }
    Ok(reports)
}

fn every_write(arguments: &Arguments, step: u64, out: &mut impl std::io::Write) -> std::io::Result<bool> {
    let guards = match arguments.mutant {
        Some(Choice::One((mutant, _))) => Guards::without(mutant),
        _ => Guards::ALL,
    };
    let reference = match Reference::run(guards) {
        Ok(reference) => reference,
        Err(failure) => {
            writeln!(out, "the run without a power cut failed: {failure}")?;
            return Ok(false);
        }
    };
    if let Some(cut) = reference.cut(arguments.start).filter(|_| arguments.trace) {
        out.write_all(reference.repeat(cut, true).trace.unwrap_or_default().as_bytes())?;
    }
    let report = reference.report(arguments.start, step, arguments.seeds.unwrap_or(u64::MAX));
    match arguments.json {
        true => writeln!(out, "{}", json!(report))?,
        false => writeln!(out, "{report}")?,
    }
    Ok(report.violations == 0)
}

fn hunts(arguments: &Arguments) -> Vec<(Hunted, u64)> {
    let seeds = arguments.seeds.filter(|_| !arguments.then_mutants);
    match (arguments.mutant, arguments.scenario) {
        (Some(Choice::One((mutant, usual))), scenario) => {
            vec![((mutant, scenario.one().unwrap_or(usual)), seeds.unwrap_or(MAX_SEEDS))]
        }
        // Outside its own scenario a mutant may need more seeds.
        (Some(_), Choice::One(scenario)) => {
            HUNTED.map(|(mutant, _)| ((mutant, scenario), seeds.unwrap_or(MAX_SEEDS))).to_vec()
        }
        (_, scenario) => {
            let hunted = HUNTED.into_iter().filter(|(_, usual)| scenario.one().is_none_or(|one| one == *usual));
            hunted.map(|hunted| (hunted, seeds.unwrap_or_else(|| expected_seeds(hunted.0)))).collect()
        }
    }
}

/// Hunts one mutant per thread, because a hunt ends at the first seed that convicts. A single mutant gets all threads.
fn mutants(
    arguments: &Arguments,
    baselines: &Baselines,
    out: &mut impl std::io::Write,
) -> std::io::Result<Vec<MutantReport>> {
    let hunts = hunts(arguments);
    let is_alone = matches!(arguments.mutant, Some(Choice::One(_)));
    let runner = if is_alone { Runner::default() } else { Runner::new(1) };
    let (mut reports, mut written, closed) = (Vec::new(), Ok(()), AtomicBool::new(false));
    let work = |n| {
        // Once the output has failed, start no further hunt.
        if closed.load(Relaxed) {
            return None;
        }
        let (hunted, most) = hunts[n as usize];
        let mut report = hunt(runner, baselines, hunted, arguments.start, most);
        if is_alone {
            report.shrink();
        }
        Some(report)
    };
    Runner::default().each(hunts.len() as u64, work, |_, report| {
        if let (Some(report), Ok(())) = (&report, &written) {
            written = show(arguments, report, out);
            closed.store(written.is_err(), Relaxed);
        }
        reports.extend(report);
    });
    written?;
    Ok(reports)
}

/// Prints the report of a hunt, after the trace of the convicting run if traces were requested.
fn show(arguments: &Arguments, report: &MutantReport, out: &mut impl std::io::Write) -> std::io::Result<()> {
    if arguments.trace {
        let seed = report.caught.as_ref().map_or(arguments.start, |(seed, ..)| *seed);
        let trace = run(report.scenario, seed, Some(report.mutant), true).trace;
        out.write_all(trace.unwrap_or_default().as_bytes())?;
    }
    if !arguments.json {
        writeln!(out, "{report}")?;
    }
    Ok(())
}
