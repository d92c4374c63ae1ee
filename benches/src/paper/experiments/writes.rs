//! Writes and compare-and-swaps by chain length.

use super::{Contestant, LARGE, Plan, SMALL, callers_per_link, fill_all, sample, start_all, take_turns, verify_all};
use crate::{
    paper::{
        chain::{Chain, Lab},
        load::{Caller, Work},
        results::{Change, WritePoint},
        tally::Kind,
    },
    throughput::{Failed, results::System},
};

const LENGTHS: [usize; 3] = [3, 5, 7];
const SERIES: [(Change, usize); 3] = [(Change::Put, SMALL), (Change::Put, LARGE), (Change::Swap, SMALL)];

/// Measures writes to chains, in turns.
pub fn writes(lab: &Lab, plan: &Plan, mbit: u32) -> Result<Vec<WritePoint>, Failed> {
    let mut contestants = start_all(lab, plan, &LENGTHS.map(|members| (System::Craq, members)))?;
    let mut points = Vec::new();
    for (number, (change, value_bytes)) in SERIES.into_iter().enumerate() {
        fill_all(&mut contestants, &format!("write-{number}"), plan.keys, value_bytes)?;
        let mut row = take_turns(plan, &contestants, |chain| point(chain, change, value_bytes, mbit), measure)?;
        verify_all(&contestants)?;
        row.iter().for_each(tell);
        points.append(&mut row);
    }
    Ok(points)
}

fn point(chain: &Chain, change: Change, value_bytes: usize, mbit: u32) -> WritePoint {
    let callers = if change == Change::Put { callers_per_link(value_bytes) } else { 1 };
    let (members, per_second, p50_us, cores) = (chain.members(), Vec::new(), Vec::new(), Vec::new());
    WritePoint { mbit, change, value_bytes, members, callers, per_second, p50_us, cores }
}

fn measure(plan: &Plan, one: &Contestant, point: &mut WritePoint) -> Result<(), Failed> {
    let jobs = match point.change {
        Change::Put => one.crowd.writers(point.callers, None),
        Change::Swap => vec![(0, Caller { work: Work::Swap, number: 0, writers: 1 })],
    };
    let (tally, cores) = sample(plan, one, &jobs)?;
    point.per_second.push(tally.per_second(Kind::Write).round());
    point.p50_us.push(tally.latency(Kind::Write).p50_us.round());
    point.cores.push(cores);
    Ok(())
}

fn tell(point: &WritePoint) {
    let WritePoint { mbit, change, value_bytes, members, per_second, p50_us, cores, .. } = point;
    eprintln!(
        "  {mbit} Mbit/s, {change:?}, {value_bytes} B, CRAQ-{members}: {per_second:?} writes/s, {p50_us:?} µs, {cores:?}"
    );
}
