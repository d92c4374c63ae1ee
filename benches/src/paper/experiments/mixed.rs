//! Reads beside writes to the same few keys.

use std::sync::Arc;

use super::{Plan, SMALL, book, callers_per_link, sample, start_all, turns};
use crate::{
    paper::{
        chain::{Chain, Lab},
        crowd::Crowd,
        results::MixedPoint,
        tally::Kind,
    },
    throughput::{Failed, book::Book, results::System},
};

const MEMBERS: usize = 3;

/// Writes per second, to all keys together. `None`: as many as possible.
const RATES: [Option<f64>; 7] = [Some(0.0), Some(50.0), Some(100.0), Some(250.0), Some(500.0), Some(1000.0), None];
const QUICK_RATES: [Option<f64>; 3] = [Some(0.0), Some(250.0), None];

/// Measures reads of CR and CRAQ, in turns, under a sweep of write rates.
///
/// # Errors
/// Any failed operation or wrong value.
pub fn mixed(lab: &Lab, plan: &Plan, mbit: u32) -> Result<Vec<MixedPoint>, Failed> {
    let chains = start_all(lab, &[(System::Cr, MEMBERS), (System::Craq, MEMBERS)])?;
    let crowds = chains.iter().map(|chain| Crowd::gather(lab, chain, plan.clients_per_member));
    let crowds = crowds.collect::<Result<Vec<_>, _>>()?;
    let books: Vec<_> = chains.iter().map(|_| book("hot", plan.hot_keys, SMALL)).collect();
    crowds.iter().zip(&books).try_for_each(|(crowd, book)| crowd.fill(book))?;
    let rates = if plan.quick { &QUICK_RATES[..] } else { &RATES[..] };
    let mut points = Vec::new();
    for &wanted in rates {
        let mut row: Vec<_> = chains.iter().map(|chain| point(chain, wanted, mbit)).collect();
        for round in 0..plan.rounds {
            for at in turns(chains.len(), round) {
                measure(plan, &chains[at], &crowds[at], &books[at], &mut row[at])?;
            }
        }
        row.iter().for_each(tell);
        points.append(&mut row);
    }
    crowds.iter().zip(&books).try_for_each(|(crowd, book)| crowd.verify(book))?;
    Ok(points)
}

fn point(chain: &Chain, wanted: Option<f64>, mbit: u32) -> MixedPoint {
    let (system, members) = (chain.system, chain.members());
    let (writes, clean, dirty, cores) = Default::default();
    MixedPoint { mbit, system, members, wanted, writes, clean, dirty, cores }
}

fn measure(plan: &Plan, chain: &Chain, crowd: &Crowd, book: &Arc<Book>, point: &mut MixedPoint) -> Result<(), Failed> {
    let mut jobs = crowd.readers(callers_per_link(SMALL) * chain.readable_members());
    if point.wanted != Some(0.0) {
        jobs.extend(crowd.writers(plan.hot_keys, point.wanted));
    }
    let (tally, cores) = sample(plan, chain, crowd, book, &jobs)?;
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
