//! The encoding of scripts and of their outcomes.

use super::{
    EncodeError,
    body::{BodyWriter, Taker},
    header::{ExpectedHeader, GroupHeader, RequirementHeader, ScriptStepHeader, StepOutcomeHeader, WriteHeader},
};
use crate::api::{
    Expected, GroupFailure, GroupOutcome, Requirement, ScriptGroup, ScriptStep, ScriptWrite, StepOutcome, Ttl,
};

pub(super) type OutcomeHeader = Result<Vec<StepOutcomeHeader>, GroupFailure>;

pub(super) fn script_header(script: &ScriptWrite, body: &mut BodyWriter) -> Result<WriteHeader, EncodeError> {
    let require = requirement_headers(&script.require, body)?;
    let groups = script.groups.iter().map(|group| group_header(group, body)).collect::<Result<_, _>>()?;
    Ok(WriteHeader::Script { require, groups })
}

fn requirement_headers(require: &[Requirement], body: &mut BodyWriter) -> Result<Vec<RequirementHeader>, EncodeError> {
    let header = |Requirement { key, expected }: &Requirement| {
        Ok(RequirementHeader { key: body.add(key)?, expected: expected_header(expected, body)? })
    };
    require.iter().map(header).collect()
}

pub(super) fn expected_header(expected: &Expected, body: &mut BodyWriter) -> Result<ExpectedHeader, EncodeError> {
    Ok(match expected {
        Expected::Absent => ExpectedHeader::Absent,
        Expected::Present => ExpectedHeader::Present,
        Expected::Version(version) => ExpectedHeader::Version(*version),
        Expected::Value(value) => ExpectedHeader::Value(body.add(value)?),
        Expected::NotValue(value) => ExpectedHeader::NotValue(body.add(value)?),
    })
}

pub(super) fn take_expected(header: ExpectedHeader, body: &mut Taker<'_>) -> Expected {
    match header {
        ExpectedHeader::Absent => Expected::Absent,
        ExpectedHeader::Present => Expected::Present,
        ExpectedHeader::Version(version) => Expected::Version(version),
        ExpectedHeader::Value(len) => Expected::Value(body.take(len)),
        ExpectedHeader::NotValue(len) => Expected::NotValue(body.take(len)),
    }
}

fn group_header(group: &ScriptGroup, body: &mut BodyWriter) -> Result<GroupHeader, EncodeError> {
    let require = requirement_headers(&group.require, body)?;
    let steps = group.steps.iter().map(|step| step_header(step, body)).collect::<Result<_, _>>()?;
    Ok(GroupHeader { require, steps })
}

fn step_header(step: &ScriptStep, body: &mut BodyWriter) -> Result<ScriptStepHeader, EncodeError> {
    Ok(match step {
        ScriptStep::Get { key } => ScriptStepHeader::Get { key: body.add(key)? },
        ScriptStep::Length { key } => ScriptStepHeader::Length { key: body.add(key)? },
        ScriptStep::Put { key, value, ttl } => {
            let (key, value) = (body.add(key)?, body.add(value)?);
            match *ttl {
                Ttl::Usual => ScriptStepHeader::Put { key, value },
                ttl => ScriptStepHeader::PutTtl { key, value, ttl },
            }
        }
        ScriptStep::Delete { key } => ScriptStepHeader::Delete { key: body.add(key)? },
        ScriptStep::GetDelete { key } => ScriptStepHeader::GetDelete { key: body.add(key)? },
        ScriptStep::Append { key, value, ttl } => {
            let (key, value) = (body.add(key)?, body.add(value)?);
            match *ttl {
                Ttl::Usual => ScriptStepHeader::Append { key, value },
                ttl => ScriptStepHeader::AppendTtl { key, value, ttl },
            }
        }
        ScriptStep::Prepend { key, value, ttl } => {
            ScriptStepHeader::Prepend { key: body.add(key)?, value: body.add(value)?, ttl: *ttl }
        }
        ScriptStep::Increment { key, by, ttl: Ttl::Usual } => {
            ScriptStepHeader::Increment { key: body.add(key)?, by: *by }
        }
        ScriptStep::Increment { key, by, ttl } => {
            ScriptStepHeader::IncrementTtl { key: body.add(key)?, by: *by, ttl: *ttl }
        }
        ScriptStep::Expire { key, ttl, when } => {
            ScriptStepHeader::Expire { key: body.add(key)?, ttl: *ttl, when: *when }
        }
        ScriptStep::ExpiresIn { key } => ScriptStepHeader::ExpiresIn { key: body.add(key)? },
        ScriptStep::Copy { key, to } => ScriptStepHeader::Copy { key: body.add(key)?, to: body.add(to)? },
        ScriptStep::IncrementFloat { key, by, ttl } => {
            ScriptStepHeader::IncrementFloat { key: body.add(key)?, by: body.add(by)?, ttl: *ttl }
        }
        ScriptStep::SetRange { key, offset, value, ttl } => {
            let (key, value) = (body.add(key)?, body.add(value)?);
            ScriptStepHeader::SetRange { key, offset: *offset, value, ttl: *ttl }
        }
    })
}

pub(super) fn take_script(
    require: Vec<RequirementHeader>,
    groups: Vec<GroupHeader>,
    body: &mut Taker<'_>,
) -> ScriptWrite {
    let require = take_requirements(require, body);
    ScriptWrite { require, groups: groups.into_iter().map(|group| take_group(group, body)).collect() }
}

fn take_requirements(headers: Vec<RequirementHeader>, body: &mut Taker<'_>) -> Vec<Requirement> {
    let take = |RequirementHeader { key, expected }| Requirement {
        key: body.take(key),
        expected: take_expected(expected, body),
    };
    headers.into_iter().map(take).collect()
}

fn take_group(header: GroupHeader, body: &mut Taker<'_>) -> ScriptGroup {
    let require = take_requirements(header.require, body);
    ScriptGroup { require, steps: header.steps.into_iter().map(|step| take_step(step, body)).collect() }
}

fn take_step(header: ScriptStepHeader, body: &mut Taker<'_>) -> ScriptStep {
    match header {
        ScriptStepHeader::Get { key } => ScriptStep::Get { key: body.take(key) },
        ScriptStepHeader::Length { key } => ScriptStep::Length { key: body.take(key) },
        ScriptStepHeader::Put { key, value } => {
            let (key, value) = body.pair(key, value);
            ScriptStep::put(key, value)
        }
        ScriptStepHeader::Delete { key } => ScriptStep::Delete { key: body.take(key) },
        ScriptStepHeader::GetDelete { key } => ScriptStep::GetDelete { key: body.take(key) },
        ScriptStepHeader::Append { key, value } => {
            let (key, value) = body.pair(key, value);
            ScriptStep::append(key, value)
        }
        ScriptStepHeader::Increment { key, by } => ScriptStep::increment(body.take(key), by),
        ScriptStepHeader::PutTtl { key, value, ttl } => {
            let (key, value) = body.pair(key, value);
            ScriptStep::Put { key, value, ttl }
        }
        ScriptStepHeader::AppendTtl { key, value, ttl } => {
            let (key, value) = body.pair(key, value);
            ScriptStep::Append { key, value, ttl }
        }
        ScriptStepHeader::Prepend { key, value, ttl } => {
            let (key, value) = body.pair(key, value);
            ScriptStep::Prepend { key, value, ttl }
        }
        ScriptStepHeader::IncrementTtl { key, by, ttl } => ScriptStep::Increment { key: body.take(key), by, ttl },
        ScriptStepHeader::Expire { key, ttl, when } => ScriptStep::Expire { key: body.take(key), ttl, when },
        ScriptStepHeader::ExpiresIn { key } => ScriptStep::ExpiresIn { key: body.take(key) },
        ScriptStepHeader::Copy { key, to } => ScriptStep::Copy { key: body.take(key), to: body.take(to) },
        ScriptStepHeader::IncrementFloat { key, by, ttl } => {
            ScriptStep::IncrementFloat { key: body.take(key), by: body.take(by), ttl }
        }
        ScriptStepHeader::SetRange { key, offset, value, ttl } => {
            let (key, value) = body.pair(key, value);
            ScriptStep::SetRange { key, offset, value, ttl }
        }
    }
}

pub(super) fn outcome_headers(
    outcomes: &[GroupOutcome],
    body: &mut BodyWriter,
) -> Result<Vec<OutcomeHeader>, EncodeError> {
    let header = |outcome: &GroupOutcome| {
        Ok(match outcome {
            Ok(told) => Ok(told.iter().map(|told| told_header(told, body)).collect::<Result<_, EncodeError>>()?),
            Err(failure) => Err(*failure),
        })
    };
    outcomes.iter().map(header).collect()
}

fn told_header(told: &StepOutcome, body: &mut BodyWriter) -> Result<StepOutcomeHeader, EncodeError> {
    Ok(match told {
        StepOutcome::Done => StepOutcomeHeader::Done,
        StepOutcome::Deleted(was_there) => StepOutcomeHeader::Deleted(*was_there),
        StepOutcome::Found(None) => StepOutcomeHeader::Found(None),
        StepOutcome::Found(Some((version, value))) => StepOutcomeHeader::Found(Some((*version, body.add(value)?))),
        StepOutcome::Length(length) => StepOutcomeHeader::Length(*length),
        StepOutcome::Appended(length) => StepOutcomeHeader::Appended(*length),
        StepOutcome::Number(number) => StepOutcomeHeader::Number(*number),
        StepOutcome::Changed(changed) => StepOutcomeHeader::Changed(*changed),
        StepOutcome::ExpiresIn(left) => StepOutcomeHeader::ExpiresIn(*left),
        StepOutcome::Decimal(number) => StepOutcomeHeader::Decimal(body.add(number)?),
    })
}

pub(super) fn take_outcomes(headers: Vec<OutcomeHeader>, body: &mut Taker<'_>) -> Vec<GroupOutcome> {
    let mut take = |told: Vec<StepOutcomeHeader>| told.into_iter().map(|told| take_told(told, body)).collect();
    headers.into_iter().map(|header| header.map(&mut take)).collect()
}

fn take_told(header: StepOutcomeHeader, body: &mut Taker<'_>) -> StepOutcome {
    match header {
        StepOutcomeHeader::Done => StepOutcome::Done,
        StepOutcomeHeader::Deleted(was_there) => StepOutcome::Deleted(was_there),
        StepOutcomeHeader::Found(None) => StepOutcome::Found(None),
        StepOutcomeHeader::Found(Some((version, len))) => StepOutcome::Found(Some((version, body.take(len)))),
        StepOutcomeHeader::Length(length) => StepOutcome::Length(length),
        StepOutcomeHeader::Appended(length) => StepOutcome::Appended(length),
        StepOutcomeHeader::Number(number) => StepOutcome::Number(number),
        StepOutcomeHeader::Changed(changed) => StepOutcome::Changed(changed),
        StepOutcomeHeader::ExpiresIn(left) => StepOutcome::ExpiresIn(left),
        StepOutcomeHeader::Decimal(len) => StepOutcome::Decimal(body.take(len)),
    }
}
