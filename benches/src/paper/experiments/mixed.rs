//! Reads during writes to the same few keys.

use super::{Contestant, Plan, SMALL, callers_per_link, fill_all, sample, start_all, take_turns, verify_all};
use crate::{
    paper::{
        chain::{Chain, Lab},
        results::MixedPoint,
        tally::Kind,
    },
    throughput::{Failed, results::System},
};

const MEMBERS: usize = 3;

/// Writes per second, to all keys together. `None`: as many as possible.
const RATES: [Option<f64>; 7] = [Some(0.0), Some(50.0), Some(100.0), Some(250.0), Some(500.0), Some(1000.0), None];
const QUICK_RATES: [Option<f64>; 3] = [Some(0.0), Some(250.0), None];

/// Measures reads of CR and CRAQ, in turns, at increasing write rates.
pub fn mixed(lab: &Lab, plan: &Plan, mbit: u32) -> Result<Vec<MixedPoint>, Failed> {
    let mut contestants = start_all(lab, plan, &[(System::Cr, MEMBERS), (System::Craq, MEMBERS)])?;
    fill_all(&mut contestants, "hot", plan.hot_keys, SMALL)?;
    let rates = if plan.quick { &QUICK_RATES[..] } else { &RATES[..] };
    let mut points = Vec::new();
    for &wanted in rates {
        let mut row = take_turns(plan, &contestants, |chain| point(chain, wanted, mbit), measure)?;
        row.iter().for_each(tell);
        points.append(&mut row);
    }
    verify_all(&contestants)?;
    Ok(points)
}

fn point(chain: &Chain, wanted: Option<f64>, mbit: u32) -> MixedPoint {
    let (system, members) = (chain.system, chain.members());
    let (writes, clean, dirty, cores) = Default::default();
    MixedPoint { mbit, system, members, wanted, writes, clean, dirty, cores }
}

fn measure(plan: &Plan, one: &Contestant, point: &mut MixedPoint) -> Result<(), Failed> {
    let mut jobs = one.crowd.readers(callers_per_link(SMALL) * one.chain.readable_members());
    if point.wanted != Some(0.0) {
        jobs.extend(one.crowd.writers(plan.hot_keys, point.wanted));
    }
    let (tally, cores) = sample(plan, one, &jobs)?;
    point.clean.push(tally.per_second(Kind::CleanRead).round());
    point.dirty.push(tally.per_second(Kind::DirtyRead).round());
    point.writes.push(tally.per_second(Kind::Write).round());
    point.cores.push(cores);
    Ok(())
}

fn tell(point: &MixedPoint) {
    let MixedPoint { mbit, system, members, wanted, writes, clean, dirty, .. } = point;
    eprintln!(
        "  {mbit} Mbit/s, {system}-{members}, {wanted:?} writes/s wanted: {writes:?} made, {clean:?} clean and {dirty:?} dirty reads/s"
    );
}
