//! A cluster at one moment as plain values, to be drawn and to be compared with the previous moment.

use std::time::Duration;

use artillery_ddata::status::ReadsStatus;

use super::gather::{ChainSeat, ClusterReport};

#[derive(Debug, Clone, Default)]
pub(super) struct Snapshot {
    /// Time since watching began.
    pub(super) at: Duration,
    pub(super) chains: Vec<Chain>,
    pub(super) nodes: Vec<Node>,
}

#[derive(Debug, Clone)]
pub(super) struct Chain {
    pub(super) number: u32,
    pub(super) epoch: u64,
    /// The number of live members that hold each committed update.
    pub(super) copies: u32,
    /// Head first; syncing members follow the tail.
    pub(super) members: Vec<Member>,
}

#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) role: String,
    /// The error is the reason why the state is unknown.
    pub(super) state: Result<MemberReport, String>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct MemberReport {
    pub(super) last: u64,
    pub(super) watermark: u64,
    /// Updates that it is behind the head, where both are known.
    pub(super) lag: Option<u64>,
    /// Updates not known to be committed.
    pub(super) dirty: u64,
    /// Unreplicated records that its last start found in its directory, not settled yet.
    pub(super) unreplicated: u64,
    /// Remaining milliseconds of its lease; `None` if the lease never ends.
    pub(super) lease: Option<u64>,
    pub(super) open: bool,
    pub(super) halted: Option<String>,
}

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) role: String,
    /// `None` if the node didn't answer.
    pub(super) reads: Option<ReadsStatus>,
}

impl Snapshot {
    pub(super) fn of(whole: &ClusterReport, at: Duration) -> Self {
        let chain = |chain: &artillery_ddata::ChainConfig| Chain {
            number: chain.chain.0,
            epoch: chain.epoch.0,
            copies: whole.copies(chain),
            members: whole.seats(chain).iter().map(member).collect(),
        };
        let node = |told: &super::gather::NodeReport| Node {
            name: told.name.clone(),
            role: whole.role(&told.name),
            reads: told.status.as_ref().ok().map(|status| status.reads),
        };
        let chains = whole.routing.chains.iter().map(chain).collect();
        Self { at, chains, nodes: whole.nodes.values().map(node).collect() }
    }

    pub(super) fn line(chain: &Chain) -> String {
        let members: Vec<_> = chain.members.iter().map(|member| format!("{} ({})", member.name, member.role)).collect();
        format!("chain {}, epoch {}, {} copies: {}", chain.number, chain.epoch, chain.copies, members.join(" → "))
    }
}

fn member(seat: &ChainSeat<'_>) -> Member {
    let state = seat.view.map_err(str::to_owned).map(|view| MemberReport {
        last: view.last.sequence.0,
        watermark: view.watermark,
        lag: seat.lag,
        dirty: view.dirty_updates,
        unreplicated: view.unreplicated_records,
        lease: view.lease_ms,
        open: view.open,
        halted: view.halted.clone(),
    });
    Member { name: seat.name.clone(), role: seat.role.clone(), state }
}

/// The growth of a counter per second; `None` if the counter was reset.
fn rate(before: u64, now: u64, seconds: f64) -> Option<u64> {
    now.checked_sub(before).map(|grown| (grown as f64 / seconds).round() as u64)
}

/// A node's reads per second, by kind in the order of [`KINDS`]; `None` where unknown.
pub(super) fn reads_per_second(before: Option<&Snapshot>, now: &Snapshot, node: &Node) -> [Option<u64>; KINDS.len()] {
    let nothing = [None; KINDS.len()];
    let Some(before) = before else { return nothing };
    let seconds = now.at.saturating_sub(before.at).as_secs_f64();
    let then = before.nodes.iter().find(|then| then.name == node.name).and_then(|then| then.reads);
    match (then, node.reads) {
        (Some(then), Some(reads)) if seconds > 0.0 => {
            let (then, reads) = (kinds(&then), kinds(&reads));
            std::array::from_fn(|at| rate(then[at], reads[at], seconds))
        }
        _ => nothing,
    }
}

pub(super) const KINDS: [&str; 6] =
    ["local clean", "dirty", "version query", "shared query", "forwarded", "through chain"];

pub(super) fn kinds(reads: &ReadsStatus) -> [u64; KINDS.len()] {
    [reads.local_clean, reads.dirty, reads.version_query, reads.shared_query, reads.forwarded, reads.through_chain]
}

/// Updates that a chain commits per second.
pub(super) fn writes_per_second(before: Option<&Snapshot>, now: &Snapshot, chain: &Chain) -> Option<u64> {
    let watermark = |chain: &Chain| {
        chain.members.iter().filter_map(|member| member.state.as_ref().ok()).map(|state| state.watermark).max()
    };
    let before = before?;
    let then = before.chains.iter().find(|then| then.number == chain.number)?;
    let seconds = now.at.saturating_sub(before.at).as_secs_f64();
    if seconds > 0.0 { rate(watermark(then)?, watermark(chain)?, seconds) } else { None }
}
