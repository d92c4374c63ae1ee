//! Latency of single operations by chain length, on idle links and on links loaded by readers.

use std::sync::Arc;

use artillery_ddata::Place;

use super::{Plan, SMALL, book, callers_per_link};
use crate::{
    paper::{
        chain::{Chain, Lab},
        crowd::Crowd,
        load::{Caller, Work},
        results::LatencyPoint,
        tally::{Kind, Latency},
    },
    throughput::{Failed, book::Book, results::System},
};

const QUICK_LENGTHS: [usize; 2] = [1, 3];

/// On loaded links, divisor of the number of callers that would saturate the link of a member.
const LOADED_DIVISOR: usize = 4;

/// Measures one chain after the other.
pub fn latency(lab: &Lab, plan: &Plan, mbit: u32) -> Result<Vec<LatencyPoint>, Failed> {
    let lengths = if plan.quick { QUICK_LENGTHS.to_vec() } else { (1..=Plan::MAX_MEMBERS).collect() };
    let mut points = Vec::new();
    for members in lengths {
        let mut chain = Chain::begin(lab, System::Craq, members)?;
        chain.ready()?;
        let crowd = Crowd::gather(lab, &chain, plan.clients_per_member)?;
        let bench = Bench::new(plan, &chain, &crowd)?;
        for loaded in [false, true] {
            let point = bench.measure(mbit, loaded)?;
            tell(&point);
            points.push(point);
        }
        crowd.verify(&bench.written)?;
    }
    Ok(points)
}

/// One chain, a client at its head, and keys with and without a writer.
struct Bench<'a> {
    plan: &'a Plan,
    chain: &'a Chain,
    crowd: &'a Crowd,
    at_head: usize,
    /// Keys without a writer.
    clean: Arc<Book>,
    /// One key, which is constantly written.
    written: Arc<Book>,
}

impl<'a> Bench<'a> {
    fn new(plan: &'a Plan, chain: &'a Chain, crowd: &'a Crowd) -> Result<Self, Failed> {
        let at_head = crowd.at(Place::Head).ok_or("no client reads at the head")?;
        let (clean, written) = (book("clean", plan.keys, SMALL), book("written", 1, SMALL));
        crowd.fill(&clean)?;
        crowd.fill(&written)?;
        Ok(Self { plan, chain, crowd, at_head, clean, written })
    }

    fn measure(&self, mbit: u32, loaded: bool) -> Result<LatencyPoint, Failed> {
        let caller = |work| (self.at_head, Caller { work, number: 0, writers: 1 });
        let (read, write) = (caller(Work::Read), caller(Work::Write { per_second: None }));
        let clean = self.run(loaded, &self.clean, &[read])?[0];
        let dirty = self.run(loaded, &self.written, &[read, write])?[1];
        let write = self.run(loaded, &self.written, &[write])?[2];
        Ok(LatencyPoint { mbit, members: self.chain.members(), loaded, clean, dirty, write })
    }

    /// Latencies of clean reads, dirty reads and writes.
    fn run(&self, loaded: bool, book: &Arc<Book>, jobs: &[(usize, Caller)]) -> Result<[Latency; 3], Failed> {
        let callers = if loaded { callers_per_link(SMALL) * self.chain.members() / LOADED_DIVISOR } else { 0 };
        let others = self.crowd.readers(callers);
        let tally = self.crowd.run_beside(book, self.plan.window(), jobs, (&self.clean, &others))?;
        Ok([Kind::CleanRead, Kind::DirtyRead, Kind::Write].map(|kind| tally.latency(kind)))
    }
}

fn tell(point: &LatencyPoint) {
    let LatencyPoint { mbit, members, loaded, clean, dirty, write } = point;
    let load = if *loaded { "loaded" } else { "idle" };
    eprintln!(
        "  {mbit} Mbit/s, CRAQ-{members}, {load}: clean {:.0} µs ({}), dirty {:.0} µs ({}), write {:.0} µs ({})",
        clean.p50_us, clean.count, dirty.p50_us, dirty.count, write.p50_us, write.count
    );
}
