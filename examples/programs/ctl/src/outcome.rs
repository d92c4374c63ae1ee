//! `ctl outcome`: reports the outcome of a write, and settles it permanently.

use artillery_ddata::{Kv, RequestId, kv::Resolution};
use artillery_programs::exit::{self, Failure};
use serde_json::json;

use super::output::Output;

pub(super) async fn run(kv: &Kv, request: RequestId, output: Output) -> Result<u8, Failure> {
    let (outcome, version) = match kv.resolve(request).await? {
        Resolution::Applied(record) => ("applied", Some(record.version)),
        Resolution::Conflict(conflict) => ("conflict", Some(conflict.at)),
        Resolution::NeverApplied => ("never_applied", None),
        _ => ("forgotten", None),
    };
    if output.json {
        let version = version.map(|version| version.to_string());
        output.object(&json!({ "request": request.to_string(), "outcome": outcome, "version": version }));
    } else {
        let words = match outcome {
            "applied" => "applied, once",
            "conflict" => "its condition did not hold: nothing was changed, and it will never be applied",
            "never_applied" => "never applied, and it never will be",
            _ => "forgotten: its record is no longer kept",
        };
        output.bytes(words.as_bytes());
    }
    Ok(if outcome == "forgotten" { exit::FAILED } else { exit::DONE })
}
