//! The status as tables, for people.

use std::fmt::Write;

use artillery_ddata::status::{ChainStatus, GossipState};
use comfy_table::Table;

use super::{
    gather::{ChainSeat, ClusterReport},
    histories,
    snapshot::{KINDS, kinds},
    verdict::Verdict,
};
use crate::output::plain_table;

pub(super) fn text(whole: &ClusterReport) -> String {
    let mut text = format!("{}\ncluster {}\n", Verdict::of(whole).line(), whole.routing.cluster);
    if let Some(parted) = histories::text(whole.routing.cluster, &whole.standings) {
        let _ = write!(text, "\n{parted}");
    }
    for chain in &whole.routing.chains {
        let (number, epoch, copies) = (chain.chain.0, chain.epoch, whole.copies(chain));
        let members = chain.serving().count();
        let lacking =
            if copies as usize == members { String::new() } else { format!(" ({members} members configured)") };
        // Writing to a string can't fail.
        let _ = writeln!(text, "\nchain {number}, epoch {epoch}, {copies} copies of each committed update{lacking}");
        let mut table =
            plain_table(&["node", "role", "epoch", "last", "watermark", "lag", "dirty", "in flight", "lease", ""]);
        for seat in whole.seats(chain) {
            table.add_row(seat_row(&seat));
        }
        let _ = writeln!(text, "{table}");
    }
    let _ = writeln!(text, "\nreads\n{}", reads(whole));
    let _ = write!(text, "\nmembers\n{}", members(whole));
    for told in whole.nodes.values() {
        let Some(loading) = told.status.as_ref().ok().and_then(|status| status.loading.as_ref()) else { continue };
        let left = loading.left_ms.map_or_else(String::new, |left| format!(", {} s left", left.div_ceil(1000)));
        let (records, rate) = (loading.records, loading.records_per_second);
        let _ = write!(text, "\n\n{} loads its directory: {records} records, {rate} a second{left}", told.name);
    }
    text
}

fn seat_row(seat: &ChainSeat<'_>) -> Vec<String> {
    let mut row = vec![seat.name.clone(), seat.role.clone()];
    match seat.view {
        Ok(view) => {
            let lease = view.lease_ms.map_or_else(|| "endless".to_owned(), |left| format!("{left} ms"));
            row.extend([view.epoch.to_string(), view.last.to_string(), view.watermark.to_string()]);
            row.push(seat.lag.map_or_else(|| "?".to_owned(), |lag| lag.to_string()));
            row.extend([view.dirty_updates.to_string(), format!("{} bytes", view.in_flight_bytes), lease, note(view)]);
        }
        Err(why) => {
            row.extend(["?"; 7].map(str::to_owned));
            row.push(why.to_owned());
        }
    }
    row
}

fn note(view: &ChainStatus) -> String {
    if let Some(why) = &view.halted {
        return format!("halted: {why}");
    }
    let left = view.unreplicated_records;
    let notes = [
        (!view.open).then(|| "not open".to_owned()),
        (left > 0).then(|| format!("{left} unreplicated records")),
        view.full.as_ref().map(|what| format!("{what} full")),
    ];
    notes.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn reads(whole: &ClusterReport) -> Table {
    let mut table = plain_table(&[&["node"], &KINDS[..], &[""]].concat());
    let members = whole.members();
    let has_left = |name: &str| members.iter().any(|member| member.node == name && *member.state == GossipState::Left);
    for told in whole.nodes.values().filter(|told| told.status.is_ok() || !has_left(&told.name)) {
        let mut row = vec![told.name.clone()];
        match &told.status {
            Ok(status) => {
                row.extend(kinds(&status.reads).iter().map(u64::to_string));
            }
            Err(why) => {
                row.extend(KINDS.map(|_| "?".to_owned()));
                row.push(why.clone());
            }
        }
        table.add_row(row);
    }
    table
}

fn members(whole: &ClusterReport) -> Table {
    let mut table = plain_table(&["node", "addr", "state", "role"]);
    for member in whole.members().into_iter().filter(|member| *member.state != GossipState::Left) {
        table.add_row([member.node, &member.addr(), member.state.as_str(), &whole.role(member.node)]);
    }
    table
}
