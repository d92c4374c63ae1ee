//! `ctl status`: shows the whole cluster, combined from the reports of all nodes.

mod events;
mod gather;
mod histories;
mod live;
mod picture;
#[cfg(test)]
mod recording;
mod snapshot;
mod table;
mod verdict;

use std::time::Duration;

use artillery_ddata::Client;
use artillery_programs::exit::{self, Failure};

use super::output::Output;

const PERIOD: Duration = Duration::from_secs(1);

pub(super) async fn run(client: &Client, timeout: Duration, output: Output, watch: bool) -> Result<u8, Failure> {
    match (watch, output.json) {
        (true, true) => objects(client, timeout, output).await,
        (true, false) => live::run(client, timeout, output).await,
        (false, true) => {
            let whole = gather::gather_all(client, timeout).await?;
            output.object(&gather::object(&whole));
            Ok(code(&whole))
        }
        (false, false) => {
            let whole = gather::gather_all(client, timeout).await?;
            output.bytes(table::text(&whole).as_bytes());
            Ok(code(&whole))
        }
    }
}

/// The exit code: a cluster that doesn't serve is a failure.
fn code(whole: &gather::ClusterReport) -> u8 {
    if verdict::Verdict::of(whole).serves { exit::DONE } else { exit::FAILED }
}

/// Prints one object per period, until standard output is closed.
async fn objects(client: &Client, timeout: Duration, output: Output) -> Result<u8, Failure> {
    let mut ticks = tokio::time::interval(PERIOD);
    loop {
        ticks.tick().await;
        match gather::gather_all(client, timeout).await {
            Ok(whole) if !output.object(&gather::object(&whole)) => return Ok(exit::DONE),
            Ok(_) => {}
            Err(failure) => eprintln!("{failure}"),
        }
    }
}
