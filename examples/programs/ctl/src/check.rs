//! `ctl check`: reads the whole directory of a node that isn't running, without writing to it.

use std::{fmt::Write, path::Path};

use artillery_ddata::{
    admin::{ChainReport, CopyState, DamagePlace, StoreReport, check_directory},
    config::SyncMode,
    node::DataDirError,
};
use artillery_programs::exit::{self, Failure};
use serde_json::{Value, json};

use super::output::{Output, plain_table};

pub(super) async fn run(dir: &Path, output: Output) -> Result<u8, Failure> {
    if !dir.is_dir() {
        return Err(Failure::usage(format!("{}: no such directory or file", dir.display())));
    }
    let reading = dir.to_owned();
    let checked = tokio::task::spawn_blocking(move || check_directory(reading)).await.map_err(Failure::failed)?;
    let code = match checked {
        Ok(Some(report)) => {
            match output.json {
                true => output.object(&object(&report)),
                false => output.bytes(text(&report).trim_end().as_bytes()),
            };
            exit::DONE
        }
        Ok(None) => return Err(Failure::usage(format!("{}: contains no store", dir.display()))),
        Err(error) => {
            let DataDirError::Damaged { place, .. } = &error else { return Err(Failure::failed(error)) };
            match output.json {
                true => output.object(&damage_object(place, &error)),
                false => output.bytes(damage_text(place).trim_end().as_bytes()),
            };
            eprintln!("error: {error}");
            exit::FAILED
        }
    };
    Ok(code)
}

fn text(report: &StoreReport) -> String {
    let StoreReport { node, incarnation, first, proven, end, .. } = report;
    let or_none = |id: Option<String>| id.unwrap_or_else(|| "none".to_owned());
    let mut facts = plain_table(&[]);
    facts.add_row(["node", &node.to_string()]);
    facts.add_row(["store", &format!("{:032x}, start {}", incarnation.store, incarnation.starts)]);
    facts.add_row(["cluster", &or_none(report.cluster.map(|id| id.to_string()))]);
    facts.add_row(["history", &or_none(report.history.map(|id| id.to_string()))]);
    for (name, state) in report.control {
        facts.add_row([name, &copy(state)]);
    }
    let (files, bytes, mode) = (report.segments.len(), report.bytes, mode(report.mode));
    let groups = format!("{files} files, {bytes} bytes, groups {first} to {end}, synced to {proven}, --sync {mode}");
    facts.add_row(["journal", &groups]);
    if let Some(torn) = &report.torn {
        let words = format!("{} from byte {} on, {} bytes: an incomplete write", torn.file, torn.offset, torn.bytes);
        facts.add_row(["torn", &words]);
    }
    if !report.unused.is_empty() {
        facts.add_row(["unused", &report.unused.join(", ")]);
    }
    let heads = ["chain", "records", "updates", "last", "watermark", "above", "", ""];
    let mut chains = plain_table(&heads);
    for chain in &report.chains {
        chains.add_row(chain_row(chain));
    }
    let mut text = String::new();
    // Writing to a string can't fail.
    let _ = write!(text, "{facts}\n\n{chains}");
    text
}

fn chain_row(chain: &ChainReport) -> Vec<String> {
    let ChainReport { holding, records, updates, unreplicated } = chain;
    vec![
        holding.chain.0.to_string(),
        records.to_string(),
        updates.to_string(),
        holding.last.to_string(),
        holding.watermark.to_string(),
        unreplicated.to_string(),
        if holding.whole { "whole" } else { "not whole" }.to_owned(),
        if holding.synced { "synced" } else { "weak" }.to_owned(),
    ]
}

fn copy(state: CopyState) -> String {
    match state {
        CopyState::Whole(number) => format!("whole, writing {number}"),
        CopyState::NotWhole => "not whole: incomplete or damaged; the other copy is whole".to_owned(),
        CopyState::Missing => "missing; the other copy is whole".to_owned(),
    }
}

fn mode(mode: Option<SyncMode>) -> &'static str {
    match mode {
        Some(SyncMode::Batch) => "batch",
        Some(SyncMode::Never) => "never",
        None => "none",
    }
}

fn damage_text(place: &DamagePlace) -> String {
    let mut table = plain_table(&["file", "offset", "kind"]);
    table.add_row([place.file.as_str(), &place.offset.to_string(), place.kind]);
    table.to_string()
}

fn object(report: &StoreReport) -> Value {
    let StoreReport { node, incarnation, torn, .. } = report;
    json!({
        "whole": true,
        "node_id": node.to_string(),
        "store": format!("{:032x}", incarnation.store),
        "starts": incarnation.starts,
        "cluster_id": report.cluster.map(|id| id.to_string()),
        "history": report.history.map(|id| id.to_string()),
        "control": report.control.iter().map(|(file, state)| json!({ "file": file, "state": word(*state) })).collect::<Vec<_>>(),
        "sync": report.mode.map(|of| mode(Some(of))),
        "weak": report.weak,
        "segments": report.segments,
        "journal_bytes": report.bytes,
        "first_group": report.first.0,
        "synced_groups": report.proven.0,
        "groups": report.end.0,
        "torn": torn.as_ref().map(|torn| json!({ "file": torn.file, "offset": torn.offset, "torn_bytes": torn.bytes })),
        "unused": report.unused,
        "chains": report.chains.iter().map(chain_object).collect::<Vec<_>>(),
    })
}

fn chain_object(chain: &ChainReport) -> Value {
    let ChainReport { holding, records, updates, unreplicated } = chain;
    json!({
        "chain": holding.chain.0,
        "records": records,
        "updates": updates,
        "last": holding.last.to_string(),
        "watermark": holding.watermark.0,
        "above_watermark": unreplicated,
        "whole": holding.whole,
        "synced": holding.synced,
    })
}

fn word(state: CopyState) -> &'static str {
    match state {
        CopyState::Whole(_) => "whole",
        CopyState::NotWhole => "not_whole",
        CopyState::Missing => "missing",
    }
}

fn damage_object(place: &DamagePlace, error: &DataDirError) -> Value {
    let DamagePlace { file, offset, kind } = place;
    json!({ "whole": false, "file": file, "offset": offset, "damage": kind, "text": error.to_string() })
}
