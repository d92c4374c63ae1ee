//! The frames of requests.

use std::num::NonZeroU32;

use artillery_core::Frame;

use super::{
    DecodeError, EncodeError, Encoded,
    body::{BodyWriter, Taker},
    header::{OperationHeader, QueryHeader, RequestHeader, StepHeader, WriteHeader, decoded, encoded},
    script::{expected_header, script_header, take_expected, take_script},
};
use crate::{
    api::{
        CopyStep, DigestCursor, DigestQuery, DigestStep, HashedQuery, Query, ScanQuery, Step, Ttl, WatchQuery, Write,
    },
    control::succession::Replacement,
    message::request::{AdminOperation, Operation, Request},
};

/// Encodes `request`. Keys and values are shared, not copied.
///
/// # Errors
/// [`EncodeError`] if the request is too long, or if the connection's protocol `version` doesn't have its operation.
pub fn encode_request(request: &Request, version: u16) -> Result<Encoded, EncodeError> {
    let needs = request.operation.since();
    if needs > version {
        return Err(EncodeError::Unsupported { needs, has: version });
    }
    let mut body = BodyWriter::default();
    let operation = match &request.operation {
        Operation::Read { query, mode, floor, history } => {
            let query = query_header(query, &mut body)?;
            OperationHeader::Read { query, mode: *mode, floor: *floor, history: *history }
        }
        Operation::Write { request, history, write } => {
            let write = write_header(write, &mut body)?;
            OperationHeader::Write { request: *request, history: *history, write }
        }
        Operation::Admin(operation) => admin_header(operation),
    };
    let Request { number, chain, deadline_ms, forwarded, .. } = *request;
    encoded(&RequestHeader { number, chain, deadline_ms, forwarded, operation }, body)
}

fn admin_header(operation: &AdminOperation) -> OperationHeader {
    match operation {
        AdminOperation::Routing => OperationHeader::Routing,
        AdminOperation::RoutingAnyway => OperationHeader::RoutingAnyway,
        AdminOperation::Status => OperationHeader::Status,
        AdminOperation::Arrange(wish) => OperationHeader::Arrange(wish.clone()),
        AdminOperation::Survey => OperationHeader::Survey,
        &AdminOperation::Recover { cluster, history } => OperationHeader::Recover { cluster, history },
        &AdminOperation::Replace { cluster, by } => {
            OperationHeader::Replace { cluster, creates: by == Replacement::Create }
        }
        &AdminOperation::Reopen { chain } => OperationHeader::Reopen { chain },
    }
}

fn query_header(query: &Query, body: &mut BodyWriter) -> Result<QueryHeader, EncodeError> {
    Ok(match query {
        Query::Key(key) => QueryHeader::Key { key: body.add(key)? },
        Query::Keys(keys) => {
            QueryHeader::Keys { keys: keys.iter().map(|key| body.add(key)).collect::<Result<_, _>>()? }
        }
        Query::Scan(scan) => QueryHeader::Scan {
            prefix: body.add(&scan.prefix)?,
            after: body.add_some(scan.after.as_ref())?,
            limit: scan.limit,
            snapshot: scan.snapshot,
        },
        Query::Changes(WatchQuery { prefix, after, shown }) => {
            let prefix = body.add(prefix)?;
            match after.zip(NonZeroU32::new(*shown)) {
                Some((after, shown)) => QueryHeader::RestOfChanges { prefix, after, shown },
                None => QueryHeader::Changes { prefix, after: *after },
            }
        }
        Query::Hashed(HashedQuery { from, limit }) => QueryHeader::Hashed { from: *from, limit: *limit },
        Query::Copy(step) => match step {
            CopyStep::Begin => QueryHeader::BeginCopy,
            CopyStep::Records { behind, floor } => {
                QueryHeader::CopyRecords { behind: body.add_some(behind.as_ref())?, floor: *floor }
            }
            CopyStep::Updates { after } => QueryHeader::CopyUpdates { after: *after },
        },
        Query::Digest(digest) => {
            let DigestQuery { prefix, key, step } = &**digest;
            let (prefix, key) = (body.add(prefix)?, *key);
            match step {
                DigestStep::Begin => QueryHeader::BeginDigest { prefix, key },
                &DigestStep::Part { number, at, ref from } => {
                    let (from, pieces) = (body.add(&from.key)?, from.pieces);
                    QueryHeader::PartOfDigest { prefix, key, number, at, from, pieces }
                }
            }
        }
    })
}

fn write_header(write: &Write, body: &mut BodyWriter) -> Result<WriteHeader, EncodeError> {
    Ok(match write {
        Write::Put { key, value, ttl } => {
            let (key, value) = (body.add(key)?, body.add(value)?);
            match *ttl {
                Ttl::Usual => WriteHeader::Put { key, value },
                ttl => WriteHeader::PutTtl { key, value, ttl },
            }
        }
        Write::Delete { key } => WriteHeader::Delete { key: body.add(key)? },
        Write::CompareAndSwap { key, expected, value, ttl } => {
            let (key, expected, value) = (body.add(key)?, *expected, body.add_some(value.as_ref())?);
            match (value, *ttl) {
                // A deletion has no expiry.
                (None, _) | (_, Ttl::Usual) => WriteHeader::CompareAndSwap { key, expected, value },
                (Some(value), ttl) => WriteHeader::CompareAndSwapTtl { key, expected, value, ttl },
            }
        }
        Write::Append { key, value, ttl } => {
            let (key, value) = (body.add(key)?, body.add(value)?);
            match *ttl {
                Ttl::Usual => WriteHeader::Append { key, value },
                ttl => WriteHeader::AppendTtl { key, value, ttl },
            }
        }
        Write::Prepend { key, value, ttl } => {
            WriteHeader::Prepend { key: body.add(key)?, value: body.add(value)?, ttl: *ttl }
        }
        Write::Increment { key, by, ttl: Ttl::Usual } => WriteHeader::Increment { key: body.add(key)?, by: *by },
        Write::Increment { key, by, ttl } => WriteHeader::IncrementTtl { key: body.add(key)?, by: *by, ttl: *ttl },
        Write::Expire { key, ttl, when } => WriteHeader::Expire { key: body.add(key)?, ttl: *ttl, when: *when },
        Write::PutSequential { prefix, value, ttl } => {
            WriteHeader::PutSequential { prefix: body.add(prefix)?, value: body.add(value)?, ttl: *ttl }
        }
        Write::GetDelete { key } => WriteHeader::GetDelete { key: body.add(key)? },
        Write::Batch(steps) => {
            WriteHeader::Batch { steps: steps.iter().map(|step| step_header(step, body)).collect::<Result<_, _>>()? }
        }
        Write::Script(script) => script_header(script, body)?,
        Write::OpenSession => WriteHeader::OpenSession,
        Write::Resolve => WriteHeader::Resolve,
    })
}

fn step_header(step: &Step, body: &mut BodyWriter) -> Result<StepHeader, EncodeError> {
    Ok(match step {
        Step::Require { key, expected } => {
            StepHeader::Require { key: body.add(key)?, expected: expected_header(expected, body)? }
        }
        Step::Put { key, value, ttl } => {
            let (key, value) = (body.add(key)?, body.add(value)?);
            match *ttl {
                Ttl::Usual => StepHeader::Put { key, value },
                ttl => StepHeader::PutTtl { key, value, ttl },
            }
        }
        Step::Delete { key } => StepHeader::Delete { key: body.add(key)? },
        Step::Append { key, value, ttl } => {
            let (key, value) = (body.add(key)?, body.add(value)?);
            match *ttl {
                Ttl::Usual => StepHeader::Append { key, value },
                ttl => StepHeader::AppendTtl { key, value, ttl },
            }
        }
        Step::Prepend { key, value, ttl } => {
            StepHeader::Prepend { key: body.add(key)?, value: body.add(value)?, ttl: *ttl }
        }
        Step::Increment { key, by, ttl: Ttl::Usual } => StepHeader::Increment { key: body.add(key)?, by: *by },
        Step::Increment { key, by, ttl } => StepHeader::IncrementTtl { key: body.add(key)?, by: *by, ttl: *ttl },
        Step::Expire { key, ttl, when } => StepHeader::Expire { key: body.add(key)?, ttl: *ttl, when: *when },
    })
}

/// Decodes the request in a frame.
///
/// # Errors
/// [`DecodeError`] if the frame isn't a valid request.
pub fn decode_request(frame: &Frame) -> Result<Request, DecodeError> {
    let RequestHeader { number, chain, deadline_ms, forwarded, operation } = decoded(&frame.header)?;
    let mut body = Taker::new(&frame.body);
    let operation = match operation {
        OperationHeader::Read { query, mode, floor, history } => {
            Operation::Read { query: take_query(query, &mut body), mode, floor, history }
        }
        OperationHeader::Write { request, history, write } => {
            Operation::Write { request, history, write: take_write(write, &mut body) }
        }
        OperationHeader::Routing => Operation::Admin(AdminOperation::Routing),
        OperationHeader::RoutingAnyway => Operation::Admin(AdminOperation::RoutingAnyway),
        OperationHeader::Status => Operation::Admin(AdminOperation::Status),
        OperationHeader::Arrange(wish) => Operation::Admin(AdminOperation::Arrange(wish)),
        OperationHeader::Survey => Operation::Admin(AdminOperation::Survey),
        OperationHeader::Recover { cluster, history } => Operation::Admin(AdminOperation::Recover { cluster, history }),
        OperationHeader::Reopen { chain } => Operation::Admin(AdminOperation::Reopen { chain }),
        OperationHeader::Replace { cluster, creates } => {
            let by = if creates { Replacement::Create } else { Replacement::Join };
            Operation::Admin(AdminOperation::Replace { cluster, by })
        }
    };
    body.end()?;
    Ok(Request { number, chain, deadline_ms, forwarded, operation })
}

/// Keys that are only looked up stay slices of the frame.
fn take_query(header: QueryHeader, body: &mut Taker<'_>) -> Query {
    match header {
        QueryHeader::Key { key } => Query::Key(body.borrow(key)),
        QueryHeader::Keys { keys } => Query::Keys(keys.into_iter().map(|key| body.borrow(key)).collect()),
        QueryHeader::Scan { prefix, after, limit, snapshot } => {
            let prefix = body.borrow(prefix);
            Query::Scan(ScanQuery { prefix, after: after.map(|after| body.borrow(after)), limit, snapshot })
        }
        // A watch may wait for a long time and must not keep the whole frame in memory.
        QueryHeader::Changes { prefix, after } => {
            Query::Changes(WatchQuery { prefix: body.take(prefix), after, shown: 0 })
        }
        QueryHeader::RestOfChanges { prefix, after, shown } => {
            Query::Changes(WatchQuery { prefix: body.take(prefix), after: Some(after), shown: shown.get() })
        }
        QueryHeader::Hashed { from, limit } => Query::Hashed(HashedQuery { from, limit }),
        QueryHeader::BeginCopy => Query::Copy(CopyStep::Begin),
        QueryHeader::CopyRecords { behind, floor } => {
            Query::Copy(CopyStep::Records { behind: behind.map(|behind| body.take(behind)), floor })
        }
        QueryHeader::CopyUpdates { after } => Query::Copy(CopyStep::Updates { after }),
        QueryHeader::BeginDigest { prefix, key } => {
            Query::Digest(Box::new(DigestQuery { prefix: body.borrow(prefix), key, step: DigestStep::Begin }))
        }
        QueryHeader::PartOfDigest { prefix, key, number, at, from, pieces } => {
            // A part may wait, and must not keep the whole frame in memory.
            let (prefix, from) = body.pair(prefix, from);
            let step = DigestStep::Part { number, at, from: DigestCursor { key: from, pieces } };
            Query::Digest(Box::new(DigestQuery { prefix, key, step }))
        }
    }
}

fn take_write(header: WriteHeader, body: &mut Taker<'_>) -> Write {
    match header {
        WriteHeader::Put { key, value } => {
            let (key, value) = body.pair(key, value);
            Write::put(key, value)
        }
        WriteHeader::Delete { key } => Write::Delete { key: body.take(key) },
        WriteHeader::CompareAndSwap { key, expected, value: len } => {
            let (key, value) = body.pair(key, len.unwrap_or(0));
            Write::compare_and_swap(key, expected, len.map(|_| value))
        }
        WriteHeader::Append { key, value } => {
            let (key, value) = body.pair(key, value);
            Write::append(key, value)
        }
        WriteHeader::Increment { key, by } => Write::increment(body.take(key), by),
        WriteHeader::PutTtl { key, value, ttl } => {
            let (key, value) = body.pair(key, value);
            Write::Put { key, value, ttl }
        }
        WriteHeader::CompareAndSwapTtl { key, expected, value, ttl } => {
            let (key, value) = body.pair(key, value);
            Write::CompareAndSwap { key, expected, value: Some(value), ttl }
        }
        WriteHeader::AppendTtl { key, value, ttl } => {
            let (key, value) = body.pair(key, value);
            Write::Append { key, value, ttl }
        }
        WriteHeader::Prepend { key, value, ttl } => {
            let (key, value) = body.pair(key, value);
            Write::Prepend { key, value, ttl }
        }
        WriteHeader::IncrementTtl { key, by, ttl } => Write::Increment { key: body.take(key), by, ttl },
        WriteHeader::Expire { key, ttl, when } => Write::Expire { key: body.take(key), ttl, when },
        WriteHeader::PutSequential { prefix, value, ttl } => {
            let (prefix, value) = body.pair(prefix, value);
            Write::PutSequential { prefix, value, ttl }
        }
        WriteHeader::GetDelete { key } => Write::GetDelete { key: body.take(key) },
        WriteHeader::Batch { steps } => Write::Batch(steps.into_iter().map(|step| take_step(step, body)).collect()),
        WriteHeader::Script { require, groups } => Write::Script(take_script(require, groups, body)),
        WriteHeader::OpenSession => Write::OpenSession,
        WriteHeader::Resolve => Write::Resolve,
    }
}

fn take_step(header: StepHeader, body: &mut Taker<'_>) -> Step {
    match header {
        StepHeader::Require { key, expected } => {
            Step::Require { key: body.take(key), expected: take_expected(expected, body) }
        }
        StepHeader::Put { key, value } => {
            let (key, value) = body.pair(key, value);
            Step::put(key, value)
        }
        StepHeader::Delete { key } => Step::Delete { key: body.take(key) },
        StepHeader::Append { key, value } => {
            let (key, value) = body.pair(key, value);
            Step::append(key, value)
        }
        StepHeader::Increment { key, by } => Step::increment(body.take(key), by),
        StepHeader::PutTtl { key, value, ttl } => {
            let (key, value) = body.pair(key, value);
            Step::Put { key, value, ttl }
        }
        StepHeader::AppendTtl { key, value, ttl } => {
            let (key, value) = body.pair(key, value);
            Step::Append { key, value, ttl }
        }
        StepHeader::Prepend { key, value, ttl } => {
            let (key, value) = body.pair(key, value);
            Step::Prepend { key, value, ttl }
        }
        StepHeader::IncrementTtl { key, by, ttl } => Step::Increment { key: body.take(key), by, ttl },
        StepHeader::Expire { key, ttl, when } => Step::Expire { key: body.take(key), ttl, when },
    }
}
