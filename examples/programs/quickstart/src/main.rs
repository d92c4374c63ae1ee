//! `quickstart`: a whole cluster in one process, which explains each step.

mod clean;
mod dirty;
mod failover;
mod form;
mod ledger;
mod restart;
mod summary;
mod verify;
mod write;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use artillery_ddata::Node;
use artillery_programs::{
    args::LogArgs,
    exit::{self, Failure},
    log,
    signals::Signals,
    story::Story,
};
use clap::Parser;
use tokio::time::{Instant, timeout};

use self::{form::Admission, ledger::Ledger, summary::Summary};

/// Run a whole cluster in one process: three nodes find each other and form a chain, one of them is lost and another
/// one joins, and every acknowledged write is checked; with --data also over a restart of all nodes
///
/// The nodes listen on loopback and share only the cluster's name and secret, both random for each run. Exit code 1: a
/// promise was broken, or no peer was found.
#[derive(Debug, Parser)]
#[command(name = "quickstart", version)]
struct QuickstartArgs {
    /// Print a summary in JSON at the end, and everything else on standard error
    #[arg(long)]
    json: bool,
    /// Disable mDNS: then no peer is found, which shows that nothing is faked
    #[arg(long)]
    no_mdns: bool,
    /// Store the data below this directory, and show that it survives a restart of all nodes
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
}

const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let args = QuickstartArgs::parse();
    log::begin("quickstart", args.log.level);
    exit::run(run(args))
}

async fn run(args: QuickstartArgs) -> Result<u8, Failure> {
    let begin = Instant::now();
    let mut signals = Signals::listen().map_err(Failure::failed)?;
    let story = Story { aside: args.json };
    let mut summary = Summary::default();
    let admission = Admission::new(!args.no_mdns, args.data);
    let mut nodes = form::start(&story, &admission).await?;
    let played = tokio::select! {
        played = play(&story, &admission, &mut nodes, &mut summary) => played,
        () = signals.asked_to_stop() => Err(Failure::failed("interrupted by a signal")),
    };
    let _ = timeout(LEAVE_TIMEOUT, restart::stop(&nodes)).await;
    summary.seconds = (begin.elapsed().as_secs_f64() * 100.0).round() / 100.0;
    if args.json {
        summary.print()?;
    }
    played?;
    story.say(&format!("Every promise was kept, in {:.1} s.", summary.seconds));
    Ok(exit::DONE)
}

async fn play(
    story: &Story,
    admission: &Admission,
    nodes: &mut Vec<Node>,
    summary: &mut Summary,
) -> Result<(), Failure> {
    form::chain(story, nodes, admission.mdns).await?;
    summary.found_by = form::found_by(nodes);
    summary.nodes = nodes.len();
    let mut ledger = Ledger::default();
    write::everywhere(story, nodes, &mut ledger).await?;
    summary.acked = ledger.acked();
    summary.clean_reads = clean::everywhere(story, nodes, &ledger).await?;
    let met = dirty::provoke(story, nodes, &mut ledger).await?;
    summary.acked = ledger.acked();
    (summary.dirty_reads, summary.version_queries) = (met.reads, met.queries);
    summary.failovers = failover::provoke(story, nodes, admission, &mut ledger).await?;
    summary.acked = ledger.acked();
    summary.restarted = restart::provoke(story, nodes, admission).await?;
    summary.verified = verify::everywhere(story, nodes, &ledger).await?;
    if summary.found_by.is_none() {
        return Err(Failure::failed("the nodes found each other, but not by mDNS"));
    }
    if summary.verified == summary.acked {
        Ok(())
    } else {
        let lost = summary.acked - summary.verified;
        Err(Failure::failed(format!("{lost} acknowledged writes were not read back at every node")))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        QuickstartArgs::command().debug_assert();
    }
}
