//! `artillery-sim`: hunts for seeds that break a promise, or shows that it would find one.

use std::{io::Write as _, process::ExitCode};

use artillery_proto::guards::Guards;
use artillery_sim::{
    every_write::Reference,
    hunt::hunt,
    mutants::{HUNTED, Hunted, hunted},
    report::{MutantReport, ScenarioReport, mutant_list, scenario_list},
    runner::{Runner, run},
    scenario::{DURABLE, Scenario, set_disks},
};
use clap::Parser;
use serde_json::json;

/// Runs whole clusters on virtual time, each from one seed, and checks what their clients saw.
#[derive(Parser, Debug)]
#[command(name = "artillery-sim", version)]
struct Arguments {
    /// Seeds of every scenario (200), or at most so many for a mutant (500).
    #[arg(long)]
    seeds: Option<u64>,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    start: u64,
    /// One scenario, `all`, or `list` to see their names.
    #[arg(long, default_value = "all", value_parser = scenario)]
    scenario: Choice<Scenario>,
    /// Takes a guard out and expects to be caught: one mutant, `all`, or `list` to see their names.
    #[arg(long, value_parser = mutant)]
    mutant: Option<Choice<Hunted>>,
    /// In so many of a thousand seeds nodes have disks, in scenarios in which they may restart.
    #[arg(long, default_value_t = DURABLE)]
    disks: u32,
    /// Repeats one run of three nodes with a power cut at every write and sync of their disks, at one node and at all; or at every
    /// STEP-th. `--start` and `--seeds` are the first cut and the most cuts then.
    #[arg(long, value_name = "STEP", num_args = 0..=1, default_missing_value = "1", value_parser = clap::value_parser!(u64).range(1..))]
    every_write: Option<u64>,
    /// Prints one JSON object.
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
    // The reader of the output may close it early.
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
    match arguments.mutant {
        None => scenarios(arguments, &mut out),
        Some(Choice::List) => {
            write!(out, "{}", mutant_list())?;
            Ok(true)
        }
        Some(Choice::One(mutant)) => mutants(arguments, &[mutant], &mut out),
        Some(Choice::All) => mutants(arguments, &HUNTED, &mut out),
    }
}

fn scenarios(arguments: &Arguments, out: &mut impl std::io::Write) -> std::io::Result<bool> {
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
            if let (Some(trace), Ok(())) = (&outcome.trace, &written) {
                written = out.write_all(trace.as_bytes());
            }
            report.add(arguments.start.wrapping_add(n), outcome);
        });
        written?;
        if !arguments.json {
            writeln!(out, "{report}")?;
        }
        reports.push(report);
    }
    if arguments.json {
        let scenarios: Vec<_> = reports.iter().map(ScenarioReport::json).collect();
        writeln!(out, "{}", json!({ "scenarios": scenarios }))?;
    }
    Ok(reports.iter().all(ScenarioReport::passed))
}

fn every_write(arguments: &Arguments, step: u64, out: &mut impl std::io::Write) -> std::io::Result<bool> {
    let guards = match arguments.mutant {
        Some(Choice::One((mutant, _))) => Guards::without(mutant),
        _ => Guards::ALL,
    };
    let reference = match Reference::run(guards) {
        Ok(reference) => reference,
        Err(failure) => {
            writeln!(out, "the run without a power cut fails: {failure}")?;
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

fn mutants(arguments: &Arguments, chosen: &[Hunted], out: &mut impl std::io::Write) -> std::io::Result<bool> {
    let most = arguments.seeds.unwrap_or(500);
    let mut reports = Vec::new();
    for &(mutant, usual) in chosen {
        let scenario = match arguments.scenario {
            Choice::One(scenario) => scenario,
            _ => usual,
        };
        let mut report = hunt(mutant, scenario, arguments.start, most);
        if chosen.len() == 1 {
            report.shrink();
        }
        if arguments.trace {
            let seed = report.caught.as_ref().map_or(arguments.start, |(seed, ..)| *seed);
            let trace = run(scenario, seed, Some(mutant), true).trace;
            out.write_all(trace.unwrap_or_default().as_bytes())?;
        }
        if !arguments.json {
            writeln!(out, "{report}")?;
        }
        reports.push(report);
    }
    if arguments.json {
        let mutants: Vec<_> = reports.iter().map(MutantReport::json).collect();
        writeln!(out, "{}", json!({ "mutants": mutants }))?;
    }
    Ok(reports.iter().all(MutantReport::passed))
}
