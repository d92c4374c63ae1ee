//! `ctl status`: the whole cluster, from what each node says of itself.

mod gather;
mod table;

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use artillery_ddata::Client;

use super::output::Output;
use crate::exit::{self, Failure};

/// How often `--watch` looks again.
const PERIOD: Duration = Duration::from_secs(1);

pub(super) async fn run(client: &Client, timeout: Duration, output: Output, watch: bool) -> Result<u8, Failure> {
    let mut ticks = tokio::time::interval(PERIOD);
    loop {
        ticks.tick().await;
        let is_written = match gather::gather(client, timeout).await {
            Ok(whole) if output.json => output.object(&gather::object(&whole)),
            Ok(whole) => {
                if watch && io::stdout().is_terminal() {
                    // Home, and clear what is below.
                    print!("\x1b[H\x1b[J");
                }
                output.bytes(table::text(&whole).as_bytes())
            }
            Err(failure) if watch => {
                eprintln!("{failure}");
                true
            }
            Err(failure) => return Err(failure),
        };
        if !watch || !is_written {
            return Ok(exit::DONE);
        }
    }
}
