//! Relays UDP datagrams to one target with delay, loss and a limited rate.

use std::{net::SocketAddr, time::Duration};

use artillery_benches::{
    relay::{Counts, Relay, pipe::Shape},
    throughput::Failed,
};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

/// Relays UDP datagrams between clients and one target: a long link on one machine.
///
/// Prints the address on which it listens. At SIGINT or SIGTERM it exits and prints how many datagrams were forwarded,
/// lost and dropped.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// Address for the clients
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Address to which datagrams are forwarded
    #[arg(long, value_name = "ADDR")]
    target: SocketAddr,
    /// Delay of each datagram, in each direction
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 0.0, value_parser = delay)]
    delay_ms: f64,
    /// Lost datagrams per thousand, in each direction
    #[arg(long, value_name = "N", default_value_t = 0.0, value_parser = per_mille)]
    loss_per_mille: f64,
    /// Longer datagrams are dropped
    #[arg(long, value_name = "BYTES", default_value_t = 65_535)]
    max_datagram: usize,
    /// Rate in each direction, in bytes per second (default: unlimited)
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
    /// Capacity of the queue with --rate; datagrams beyond it are dropped
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    queue_bytes: u64,
    /// Seed of the random losses: the same datagrams are lost in each run
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

fn delay(text: &str) -> Result<f64, String> {
    within(text, 60_000.0)
}

fn per_mille(text: &str) -> Result<f64, String> {
    within(text, 1000.0)
}

fn within(text: &str, most: f64) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if (0.0..=most).contains(&number) { Ok(number) } else { Err(format!("must be between 0 and {most}")) }
}

impl Options {
    fn shape(&self) -> Shape {
        Shape {
            delay: Duration::from_secs_f64(self.delay_ms / 1000.0),
            loss_ppm: (self.loss_per_mille * 1000.0).round() as u32,
            max_datagram: self.max_datagram,
            rate: self.rate,
            queue_bytes: self.queue_bytes,
            seed: self.seed,
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failed> {
    let options = Options::parse();
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let bound = Relay::bind(options.listen).map_err(|error| format!("{}: {error}", options.listen))?;
    println!("{}", bound.addr);
    let relay = bound.start(options.target, &options.shape());
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    for (way, Counts { passed, lost, dropped, refused }) in ["there", "back"].into_iter().zip(relay.counts()) {
        eprintln!(
            "{way}: {passed} datagrams forwarded, {lost} lost, {dropped} dropped, {refused} refused by the system"
        );
    }
    Ok(())
}
