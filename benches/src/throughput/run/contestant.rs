use artillery_core::internal::clock;

use crate::throughput::{
    Failed,
    crew::{Crew, Orders},
    machine::{cpu_of, own_cpu},
    results::{Point, System},
};

/// A measured system, with its callers.
pub(super) struct Contestant {
    pub(super) system: System,
    pub(super) members: u32,
    pub(super) pids: Vec<u32>,
    pub(super) crew: Box<dyn Crew>,
}

impl Contestant {
    /// Takes a sample, and adds it to the point.
    pub(super) fn sample(&mut self, orders: Orders, point: &mut Point) -> Result<(), Failed> {
        let servers = |pids: &[u32]| pids.iter().map(|&pid| cpu_of(pid)).sum::<Result<f64, _>>();
        let (began, client, server) = (clock::now(), own_cpu(), servers(&self.pids)?);
        let tally = self.crew.sample(orders).map_err(|error| format!("{}: {error}", self.system))?;
        let seconds = (clock::now() - began).as_secs_f64();
        let rounded = |number: f64, digits: f64| (number * digits).round() / digits;
        point.per_second.push(tally.per_second(&orders.window).round());
        point.p50_us.push(rounded(tally.micros(0.5), 10.0));
        point.p99_us.push(rounded(tally.micros(0.99), 10.0));
        point.client_cores.push(rounded((own_cpu() - client) / seconds, 100.0));
        point.server_cores.push(rounded((servers(&self.pids)? - server) / seconds, 100.0));
        Ok(())
    }
}
