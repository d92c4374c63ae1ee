//! Upper bounds on the countable costs of each operation. They reveal an additional copy, allocation or system call
//! even on a noisy machine.

use std::{collections::BTreeMap, error::Error, fs, io, path::Path};

use serde::{Deserialize, Serialize};

use super::Row;

/// Tolerated excess, as a fraction of the budget. The batching of calls differs from run to run, and with it the growth
/// of buffers. An additional copy also shows as an allocation.
const TOLERANCE: Costs =
    Costs { allocations: 0.04, allocated_bytes: 0.15, udp_calls: 0.05, frames: 0.03, frame_bytes: 0.03 };

/// Number of measurements after which a cost that is always over its budget fails the check.
const TRIES: usize = 3;

/// The minimum tolerated excess of each cost.
const LEAST: Costs =
    Costs { allocations: 0.25, allocated_bytes: 100.0, udp_calls: 0.1, frames: 0.02, frame_bytes: 2.0 };

/// The costs of one operation, or bounds on them.
#[derive(Serialize, Deserialize, Clone, Copy)]
struct Costs {
    allocations: f64,
    allocated_bytes: f64,
    /// System calls that send or receive.
    udp_calls: f64,
    frames: f64,
    frame_bytes: f64,
}

impl Costs {
    /// The costs in a row. `None` if the row is not an operation, or only for comparison.
    fn of(row: &Row) -> Option<Self> {
        let packets = row.packets.as_ref().filter(|_| row.in_flight > 0)?;
        Some(Self {
            allocations: row.allocations,
            allocated_bytes: row.allocated_bytes,
            udp_calls: packets.udp_sends + packets.udp_receives,
            frames: packets.frames,
            frame_bytes: packets.frame_bytes,
        })
    }

    fn named(self) -> [(&'static str, f64); 5] {
        let Self { allocations, allocated_bytes, udp_calls, frames, frame_bytes } = self;
        [
            ("allocations", allocations),
            ("allocated bytes", allocated_bytes),
            ("calls that send or receive", udp_calls),
            ("frames", frames),
            ("bytes of frames", frame_bytes),
        ]
    }
}

type Budget = BTreeMap<String, Costs>;

fn costs(rows: &[Row]) -> Budget {
    let name = |row: &Row| format!("{}, {} in flight", row.operation, row.in_flight);
    rows.iter().filter_map(|row| Some((name(row), Costs::of(row)?))).collect()
}

pub(crate) fn write(file: &Path, rows: &[Row]) -> Result<(), Box<dyn Error>> {
    let mut costs = costs(rows);
    let round = |of: &mut f64, by: f64| *of = (*of * by).round() / by;
    for Costs { allocations, allocated_bytes, udp_calls, frames, frame_bytes } in costs.values_mut() {
        for (of, by) in
            [(allocations, 100.0), (allocated_bytes, 1.0), (udp_calls, 100.0), (frames, 100.0), (frame_bytes, 1.0)]
        {
            round(of, by);
        }
    }
    fs::write(file, serde_json::to_string_pretty(&costs)? + "\n")?;
    Ok(())
}

/// Compares the costs with the budget. While any cost exceeds it, measures again, up to `TRIES` times in total. A cost
/// that exceeds its budget each time fails the check.
pub(crate) fn check(
    file: &Path,
    mut rows: Vec<Row>,
    again: impl Fn() -> io::Result<Vec<Row>>,
) -> Result<(), Box<dyn Error>> {
    let budget: Budget = serde_json::from_str(&fs::read_to_string(file)?)?;
    let mut exceeded = exceeds(&budget, &costs(&rows));
    for _ in 1..TRIES {
        if exceeded.is_empty() {
            break;
        }
        rows = again()?;
        let now = exceeds(&budget, &costs(&rows));
        exceeded = now.into_iter().filter(|(what, _)| exceeded.contains_key(what)).collect();
    }
    if exceeded.is_empty() {
        println!("{} operations are within the budget of {}", budget.len(), file.display());
        return Ok(());
    }
    exceeded.values().for_each(|said| eprintln!("{said}"));
    Err(format!("{} costs are above what {} allows", exceeded.len(), file.display()).into())
}

/// The costs that exceed their budget, each with a description.
fn exceeds(budget: &Budget, now: &Budget) -> BTreeMap<(String, &'static str), String> {
    let mut exceeded = BTreeMap::new();
    for (operation, allowed) in budget {
        let Some(now) = now.get(operation) else {
            exceeded.insert((operation.clone(), ""), format!("{operation}: not measured"));
            continue;
        };
        let slack = LEAST.named().into_iter().zip(TOLERANCE.named());
        for (((what, allowed), (_, now)), ((_, least), (_, part))) in
            allowed.named().into_iter().zip(now.named()).zip(slack)
        {
            if now > allowed + f64::max(least, allowed * part) {
                let said = format!("{operation}: {now:.2} {what}, {allowed:.2} are allowed");
                exceeded.insert((operation.clone(), what), said);
            }
        }
    }
    exceeded
}
