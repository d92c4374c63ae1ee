//! Builds the reply to a write from the record of its request.

use super::resolve::WriteResult;
use crate::{
    api::{Computed, Refusal, Reply, WriteReply},
    replica::{Context, ReplicaSettings, log::RequestRecord},
    types::update::{RequestFailure, RequestOutcome},
};

/// `seen` holds the rest of the answer, if the update was ordered here.
pub(super) fn reply_of(cx: Context<'_>, record: &RequestRecord, seen: &WriteResult, replayed: bool) -> Reply {
    let at = record.version;
    let conflict = |step, version| Reply::Conflict { at, step, version, value: seen.value(), replayed };
    let result = match record.outcome {
        RequestOutcome::Done => Computed::Nothing,
        RequestOutcome::Length(length) => Computed::Length(length),
        RequestOutcome::Number(number) => Computed::Number(number),
        RequestOutcome::Changed(changed) => Computed::Changed(changed),
        RequestOutcome::Took(version) if version.is_none() => Computed::Took(None),
        RequestOutcome::Took(version) => match seen.value().or_else(|| record.taken.clone()) {
            Some(value) => Computed::Took(Some((version, value))),
            None => Computed::TookForgotten(version),
        },
        RequestOutcome::Conflict(version) => return conflict(0, version),
        RequestOutcome::Unmet { step, version } => return conflict(step, version),
        RequestOutcome::Failed(failure) => return Reply::Refused(refusal_of(failure, cx.settings())),
        RequestOutcome::Barred => return Reply::Refused(Refusal::Barred),
        RequestOutcome::Ran => match seen {
            WriteResult::Results(outcomes) => Computed::Ran(outcomes.clone()),
            WriteResult::Nothing | WriteResult::Held(_) => Computed::RanForgotten,
        },
    };
    Reply::Committed(WriteReply { version: at, copies: cx.serving().count() as u32, replayed, result })
}

fn refusal_of(failure: RequestFailure, settings: &ReplicaSettings) -> Refusal {
    let limit = settings.max_value as u64;
    match failure {
        RequestFailure::NotANumber => Refusal::NotANumber,
        RequestFailure::Overflow => Refusal::Overflow,
        RequestFailure::TooLarge(len) => Refusal::ValueTooLarge { len, limit },
        RequestFailure::ResultsTooLarge(len) => Refusal::ResultsTooLarge { len, limit },
        RequestFailure::UpdateTooLarge(len) => Refusal::UpdateTooLarge { len, limit: settings.largest_update() as u64 },
    }
}
