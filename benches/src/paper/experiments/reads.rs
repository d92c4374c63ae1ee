//! Reads by chain length, CR and CRAQ.

use super::{Contestant, LARGE, Plan, SMALL, callers_per_link, fill_all, sample, start_all, take_turns};
use crate::{
    paper::{
        chain::{Chain, Lab},
        results::ReadPoint,
        tally::Kind,
    },
    throughput::{Failed, results::System},
};

const LENGTHS: [usize; 4] = [1, 3, 5, 7];

/// Measures clean reads of chains, in turns.
pub fn reads(lab: &Lab, plan: &Plan, mbit: u32) -> Result<Vec<ReadPoint>, Failed> {
    let kinds = LENGTHS.into_iter().flat_map(|members| [(System::Cr, members), (System::Craq, members)]);
    let mut contestants = start_all(lab, plan, &kinds.collect::<Vec<_>>())?;
    let mut points = Vec::new();
    for value_bytes in [SMALL, LARGE] {
        fill_all(&mut contestants, &format!("read-{value_bytes}"), plan.keys, value_bytes)?;
        let mut row = take_turns(plan, &contestants, |chain| point(chain, value_bytes, mbit), measure)?;
        row.iter().for_each(tell);
        points.append(&mut row);
    }
    Ok(points)
}

fn point(chain: &Chain, value_bytes: usize, mbit: u32) -> ReadPoint {
    let callers = callers_per_link(value_bytes) * chain.readable_members();
    let (system, members) = (chain.system, chain.members());
    let (per_second, p50_us, cores) = (Vec::new(), Vec::new(), Vec::new());
    ReadPoint { mbit, value_bytes, system, members, callers, per_second, p50_us, cores }
}

fn measure(plan: &Plan, one: &Contestant, point: &mut ReadPoint) -> Result<(), Failed> {
    let (tally, cores) = sample(plan, one, &one.crowd.readers(point.callers))?;
    point.per_second.push(tally.reads_per_second().round());
    point.p50_us.push(tally.latency(Kind::CleanRead).p50_us.round());
    point.cores.push(cores);
    Ok(())
}

fn tell(point: &ReadPoint) {
    let ReadPoint { mbit, value_bytes, system, members, per_second, p50_us, cores, .. } = point;
    eprintln!("  {mbit} Mbit/s, {value_bytes} B, {system}-{members}: {per_second:?} reads/s, {p50_us:?} µs, {cores:?}");
}
