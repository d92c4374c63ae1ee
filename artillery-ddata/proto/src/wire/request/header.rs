//! Headers of requests and responses. Fields named after keys and values are their lengths in bytes. The body holds the
//! keys and values in the order of the fields.

use std::num::NonZeroU32;

use artillery_core::internal::codec::{self, MAX_HEADER};
use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{DecodeError, EncodeError, Encoded, EncodedHeader, body::BodyWriter};
use crate::{
    ChainId, ClusterId, Epoch, Expiry, MemberId, Sequence, Version,
    api::{ExpireIf, GroupFailure, HashKey, ReadMode, ReadPath, Refusal, Snapshot, Sums, Ttl},
    control::{
        History, NodeInfo,
        message::{AdminCommand, ArrangeError},
        recovery::{NotRecovered, Recovered, Standing},
        reopening::{NotReopened, Reopened},
        succession::NotReplaced,
    },
    store::Held,
    types::update::RequestKey,
};

#[derive(Serialize, Deserialize)]
pub(super) struct RequestHeader {
    pub(super) number: u64,
    pub(super) chain: ChainId,
    pub(super) deadline_ms: u32,
    pub(super) forwarded: bool,
    pub(super) operation: OperationHeader,
}

#[derive(Serialize, Deserialize)]
pub(super) enum OperationHeader {
    Read { query: QueryHeader, mode: ReadMode, floor: Option<Sequence>, history: Option<ClusterId> },
    Write { request: Option<RequestKey>, history: Option<ClusterId>, write: WriteHeader },
    Routing,
    Status,
    Arrange(AdminCommand),
    Survey,
    Recover { cluster: ClusterId, history: History },
    Replace { cluster: ClusterId, creates: bool },
    RoutingAnyway,
    Reopen { chain: ChainId },
}

#[derive(Serialize, Deserialize)]
pub(super) enum QueryHeader {
    Key {
        key: u32,
    },
    Keys {
        keys: Vec<u32>,
    },
    Scan {
        prefix: u32,
        after: Option<u32>,
        limit: u32,
        snapshot: Snapshot,
    },
    Changes {
        prefix: u32,
        after: Option<Sequence>,
    },
    Hashed {
        from: u64,
        limit: u32,
    },
    RestOfChanges {
        prefix: u32,
        after: Sequence,
        shown: NonZeroU32,
    },
    /// Since protocol 2.
    BeginDigest {
        prefix: u32,
        key: HashKey,
    },
    /// Since protocol 2.
    PartOfDigest {
        prefix: u32,
        key: HashKey,
        number: u64,
        at: Sequence,
        from: u32,
        pieces: u32,
    },
    /// Since protocol 2.
    BeginCopy,
    /// Since protocol 2.
    CopyRecords {
        behind: Option<u32>,
        floor: Sequence,
    },
    /// Since protocol 2.
    CopyUpdates {
        after: Sequence,
    },
}

#[derive(Serialize, Deserialize)]
pub(super) enum WriteHeader {
    Put { key: u32, value: u32 },
    Delete { key: u32 },
    CompareAndSwap { key: u32, expected: Version, value: Option<u32> },
    Append { key: u32, value: u32 },
    Increment { key: u32, by: i64 },
    GetDelete { key: u32 },
    Batch { steps: Vec<StepHeader> },
    OpenSession,
    Resolve,
    Script { require: Vec<RequirementHeader>, groups: Vec<GroupHeader> },
    PutTtl { key: u32, value: u32, ttl: Ttl },
    CompareAndSwapTtl { key: u32, expected: Version, value: u32, ttl: Ttl },
    AppendTtl { key: u32, value: u32, ttl: Ttl },
    Prepend { key: u32, value: u32, ttl: Ttl },
    IncrementTtl { key: u32, by: i64, ttl: Ttl },
    Expire { key: u32, ttl: Option<u64>, when: Option<ExpireIf> },
    PutSequential { prefix: u32, value: u32, ttl: Ttl },
}

/// As [`Expected`](crate::api::Expected), with the lengths of values.
#[derive(Serialize, Deserialize)]
pub(super) enum ExpectedHeader {
    Absent,
    Present,
    Version(Version),
    Value(u32),
    NotValue(u32),
}

#[derive(Serialize, Deserialize)]
pub(super) struct RequirementHeader {
    pub(super) key: u32,
    pub(super) expected: ExpectedHeader,
}

#[derive(Serialize, Deserialize)]
pub(super) struct GroupHeader {
    pub(super) require: Vec<RequirementHeader>,
    pub(super) steps: Vec<ScriptStepHeader>,
}

#[derive(Serialize, Deserialize)]
pub(super) enum ScriptStepHeader {
    Get { key: u32 },
    Length { key: u32 },
    Put { key: u32, value: u32 },
    Delete { key: u32 },
    GetDelete { key: u32 },
    Append { key: u32, value: u32 },
    Increment { key: u32, by: i64 },
    PutTtl { key: u32, value: u32, ttl: Ttl },
    AppendTtl { key: u32, value: u32, ttl: Ttl },
    Prepend { key: u32, value: u32, ttl: Ttl },
    IncrementTtl { key: u32, by: i64, ttl: Ttl },
    Expire { key: u32, ttl: Option<u64>, when: Option<ExpireIf> },
    ExpiresIn { key: u32 },
    Copy { key: u32, to: u32 },
    IncrementFloat { key: u32, by: u32, ttl: Ttl },
    SetRange { key: u32, offset: u64, value: u32, ttl: Ttl },
}

#[derive(Serialize, Deserialize)]
pub(super) enum StepHeader {
    Require { key: u32, expected: ExpectedHeader },
    Put { key: u32, value: u32 },
    Delete { key: u32 },
    Append { key: u32, value: u32 },
    Increment { key: u32, by: i64 },
    PutTtl { key: u32, value: u32, ttl: Ttl },
    AppendTtl { key: u32, value: u32, ttl: Ttl },
    Prepend { key: u32, value: u32, ttl: Ttl },
    IncrementTtl { key: u32, by: i64, ttl: Ttl },
    Expire { key: u32, ttl: Option<u64>, when: Option<ExpireIf> },
}

#[derive(Serialize, Deserialize)]
pub(super) struct ResponseHeader<R> {
    pub(super) number: u64,
    pub(super) by: Option<MemberId>,
    pub(super) answer: AnswerHeader<R>,
}

/// `R` is borrowed for encoding and owned for decoding.
#[derive(Serialize, Deserialize)]
pub(super) enum AnswerHeader<R> {
    Committed {
        version: Version,
        copies: u32,
        replayed: bool,
        result: ComputedHeader,
    },
    Conflict {
        at: Version,
        step: u32,
        version: Version,
        value: Option<u32>,
        replayed: bool,
    },
    Read {
        held: Option<HeldHeader>,
        clean: bool,
        way: ReadPath,
        as_of: Sequence,
    },
    Cut {
        found: Vec<Option<HeldHeader>>,
        clean: bool,
        way: ReadPath,
        as_of: Sequence,
    },
    Page {
        records: Vec<RecordHeader>,
        next: Option<u32>,
        clean: bool,
        way: ReadPath,
        as_of: Sequence,
        snapshot: Option<u64>,
    },
    Refused(Refusal),
    Expired,
    Routing(Option<R>),
    Status {
        len: u32,
    },
    Changes {
        records: Vec<RecordHeader>,
        upto: Sequence,
    },
    Arranged(Result<Option<Epoch>, ArrangeError>),
    Survey(Option<Box<Standing>>),
    Recovered(Result<Box<Recovered>, NotRecovered>),
    Hashed {
        keys: Vec<u32>,
        next: u64,
        clean: bool,
        way: ReadPath,
        as_of: Sequence,
    },
    Replaced(Result<Vec<NodeInfo>, NotReplaced>),
    PartOfChanges {
        records: Vec<RecordHeader>,
        upto: Sequence,
        shown: NonZeroU32,
    },
    Reopened(Result<Reopened, NotReopened>),
    /// `Read`, `Cut` and `Page` with keys that expire.
    ReadExpiring {
        held: HeldHeader,
        clean: bool,
        way: ReadPath,
        as_of: Sequence,
        chain_time: u64,
    },
    CutExpiring {
        found: Vec<Option<HeldHeader>>,
        clean: bool,
        way: ReadPath,
        as_of: Sequence,
        chain_time: u64,
    },
    PageExpiring {
        records: Vec<RecordHeader>,
        next: Option<u32>,
        clean: bool,
        way: ReadPath,
        as_of: Sequence,
        snapshot: Option<u64>,
        chain_time: u64,
    },
    /// Since protocol 2.
    Digest {
        number: u64,
        as_of: Sequence,
        sums: Sums,
        next: Option<(u32, u32)>,
    },
    /// Since protocol 2. The body holds header and body of a chain frame, then the key.
    Copied {
        watermark: Sequence,
        message: Option<(u32, u32)>,
        next: Option<u32>,
    },
}

#[derive(Serialize, Deserialize)]
pub(super) enum ComputedHeader {
    Nothing,
    Length(u64),
    Number(i64),
    Took(Option<(Version, u32)>),
    TookForgotten(Version),
    Ran(Vec<Result<Vec<StepOutcomeHeader>, GroupFailure>>),
    RanForgotten,
    Changed(bool),
}

#[derive(Serialize, Deserialize)]
pub(super) enum StepOutcomeHeader {
    Done,
    Deleted(bool),
    Found(Option<(Version, u32)>),
    Length(Option<u64>),
    Appended(u64),
    Number(i64),
    Changed(bool),
    ExpiresIn(Option<Option<u64>>),
    Decimal(u32),
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct HeldHeader {
    pub(super) version: Version,
    pub(super) value: ValueHeader,
}

/// A value without its bytes. The first two choices are encoded like an `Option` of the length.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) enum ValueHeader {
    Absent,
    Value(u32),
    Expiring { len: u32, expires: Expiry },
    Expired(Expiry),
}

impl ValueHeader {
    pub(super) const fn len(self) -> u32 {
        match self {
            Self::Value(len) | Self::Expiring { len, .. } => len,
            Self::Absent | Self::Expired(_) => 0,
        }
    }

    /// The version that holds this value, given its bytes.
    pub(super) fn held(self, version: Version, value: Bytes) -> Held {
        let (value, expires) = match self {
            Self::Absent => (None, None),
            Self::Value(_) => (Some(value), None),
            Self::Expiring { expires, .. } => (Some(value), Some(expires)),
            Self::Expired(expires) => (None, Some(expires)),
        };
        Held { version, value, expires }
    }
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct RecordHeader {
    pub(super) key: u32,
    pub(super) held: HeldHeader,
}

pub(super) fn encoded<H: Serialize>(header: &H, body: BodyWriter) -> Result<Encoded, EncodeError> {
    let mut out = EncodedHeader::new();
    codec::encode(header, &mut out)?;
    if out.len() > MAX_HEADER {
        return Err(codec::CodecError::TooLarge(out.len()).into());
    }
    let len = 4 + out.len() as u64 + body.len();
    if len > u64::from(u32::MAX) {
        return Err(EncodeError::TooLong(len));
    }
    Ok(Encoded { header: out, body: body.into_pieces() })
}

/// Decodes a header. The codec accepts several forms of a header; this accepts only the canonical one.
pub(super) fn decoded<H: Serialize + DeserializeOwned>(bytes: &[u8]) -> Result<H, DecodeError> {
    let header = codec::decode(bytes)?;
    if codec::is_encoding(&header, bytes) { Ok(header) } else { Err(DecodeError::NotCanonical) }
}
