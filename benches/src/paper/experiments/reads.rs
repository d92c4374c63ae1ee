//! Reads by length of the chain, CR beside CRAQ.

use std::sync::Arc;

use super::{LARGE, Plan, SMALL, book, callers_per_link, sample, start_all, turns};
use crate::{
    paper::{
        chain::{Chain, Lab},
        crowd::Crowd,
        results::ReadPoint,
        tally::Kind,
    },
    throughput::{Failed, book::Book, results::System},
};

const LENGTHS: [usize; 4] = [1, 3, 5, 7];

/// Measures clean reads of chains, in turns.
///
/// # Errors
/// Any failed operation or wrong value.
pub fn reads(lab: &Lab, plan: &Plan, mbit: u32) -> Result<Vec<ReadPoint>, Failed> {
    let kinds = LENGTHS.into_iter().flat_map(|members| [(System::Cr, members), (System::Craq, members)]);
    let chains = start_all(lab, &kinds.collect::<Vec<_>>())?;
    let crowds = chains.iter().map(|chain| Crowd::gather(lab, chain, plan.clients_per_member));
    let crowds = crowds.collect::<Result<Vec<_>, _>>()?;
    let mut points = Vec::new();
    for value_bytes in [SMALL, LARGE] {
        let books: Vec<_> =
            chains.iter().map(|_| book(&format!("read-{value_bytes}"), plan.keys, value_bytes)).collect();
        crowds.iter().zip(&books).try_for_each(|(crowd, book)| crowd.fill(book))?;
        let mut row: Vec<_> = chains.iter().map(|chain| point(chain, value_bytes, mbit)).collect();
        for round in 0..plan.rounds {
            for at in turns(chains.len(), round) {
                measure(plan, &chains[at], &crowds[at], &books[at], &mut row[at])?;
            }
        }
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

fn measure(plan: &Plan, chain: &Chain, crowd: &Crowd, book: &Arc<Book>, point: &mut ReadPoint) -> Result<(), Failed> {
    let (tally, cores) = sample(plan, chain, crowd, book, &crowd.readers(point.callers))?;
    point.per_second.push(tally.reads_per_second().round());
    point.p50_us.push(tally.latency(Kind::CleanRead).p50_us.round());
    point.cores.push(cores);
    Ok(())
}

fn tell(point: &ReadPoint) {
    let ReadPoint { mbit, value_bytes, system, members, per_second, p50_us, cores, .. } = point;
    eprintln!("  {mbit} Mbit/s, {value_bytes} B, {system}-{members}: {per_second:?} reads/s, {p50_us:?} µs, {cores:?}");
}
