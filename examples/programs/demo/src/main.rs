//! `demo`: three durable nodes in processes of their own and a small load, to look at and to kill.

mod child;
mod load;
mod place;
mod site;
mod text;

use std::{env, ops::RangeInclusive, process::ExitCode, time::Duration};

use artillery_ddata::{Client, client::Spread};
use artillery_programs::{
    args::LogArgs,
    command,
    exit::{self, Failure},
    log, secret,
    signals::Signals,
};
use clap::Parser;

use self::{place::Place, site::Site, text::print};

/// The names of the nodes.
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Each node has a port of its own, from this one on.
const PORTS: RangeInclusive<i64> = 1..=65_535 - NAMES.len() as i64 + 1;

/// Run three durable nodes with a small load, to look at and to kill
///
/// Each node is a process with a directory, a page to look at and a port for redis-cli. A node that is killed is
/// restarted after some seconds. SIGINT (Ctrl-C) or SIGTERM ends all processes and deletes all directories. Everything
/// listens on loopback only.
#[derive(Debug, Parser)]
#[command(name = "demo", version)]
struct DemoArgs {
    /// Restart a node this many seconds after its end
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(..=3600))]
    restart_after: u64,
    /// First of three ports for the pages (default: any free ports)
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(PORTS))]
    http: Option<u16>,
    /// First of three ports for redis-cli (default: any free ports)
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(PORTS))]
    resp: Option<u16>,
    #[command(flatten)]
    log: LogArgs,
}

fn main() -> ExitCode {
    let args: Vec<_> = env::args_os().collect();
    if args.get(1).is_some_and(|first| first == child::COMMAND) {
        return child::main(args);
    }
    let args: DemoArgs = command::parse(&command::name("demo"), args);
    log::begin("demo", args.log.level);
    exit::run_on_one_thread(run(args))
}

async fn run(args: DemoArgs) -> Result<u8, Failure> {
    let mut signals = Signals::listen().map_err(Failure::failed)?;
    signals.listen_to_all().map_err(Failure::failed)?;
    let place = Place::new()?;
    let played = play(&args, &place, &mut signals).await;
    if let Err(End { failure, is_evidence: true }) = played {
        print(&format!("All processes have ended. Their directories remain: {}", place.dir.display()));
        return Err(failure);
    }
    place.remove()?;
    print("All processes have ended, and their directories are deleted.");
    played.map(|()| exit::DONE).map_err(|end| end.failure)
}

/// Why the demo ends without a signal.
struct End {
    failure: Failure,
    /// Whether the directories help to find its cause.
    is_evidence: bool,
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        Self { failure, is_evidence: false }
    }
}

/// Runs the nodes until a signal arrives or something fails, and ends them.
async fn play(args: &DemoArgs, place: &Place, signals: &mut Signals) -> Result<(), End> {
    let mut sites = site::plan(place, [args.http, args.resp])?;
    let shown = tokio::select! {
        shown = show(args, place, &mut sites) => shown,
        _ = signals.next() => Ok(()),
    };
    for site in &mut sites {
        site.kill().await;
    }
    shown
}

/// Shows the nodes until something fails.
async fn show(args: &DemoArgs, place: &Place, sites: &mut [Site; 3]) -> Result<(), End> {
    print("Starting three nodes…");
    for site in &mut *sites {
        site.start()?;
    }
    let [a, b, c] = &mut *sites;
    // The first ones wait for the others: the failure of any node must end the wait for all.
    tokio::try_join!(a.ready(), b.ready(), c.ready())?;
    let restart_after = Duration::from_secs(args.restart_after);
    print(&text::introduction(place, sites, restart_after));
    let seeds = sites.iter().map(|site| site.listen);
    let client = Client::builder().cluster(&place.cluster).secret(secret::without_flags()).spread(Spread::Sticky);
    let client = client.seeds(seeds).connect().await.map_err(Failure::failed)?;
    let (kv, [a, b, c]) = (client.kv(), sites);
    tokio::select! {
        failure = a.keep(restart_after) => Err(failure.into()),
        failure = b.keep(restart_after) => Err(failure.into()),
        failure = c.keep(restart_after) => Err(failure.into()),
        failure = load::write(&kv) => Err(End { failure, is_evidence: true }),
        failure = load::read(&kv) => Err(End { failure, is_evidence: true }),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        DemoArgs::command().debug_assert();
        let parsed = |port: &str| DemoArgs::try_parse_from(["demo", "--http", port]).is_ok();
        assert_eq!(["0", "1", "65533", "65534"].map(parsed), [false, true, true, false]);
    }
}
