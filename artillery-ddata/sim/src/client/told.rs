//! The interpretation of replies.

use artillery_proto::{
    Sequence, Version,
    api::{Computed, GroupFailure, HashedReply, Reply, ScanReply, StepOutcome, WriteReply},
    store::Held,
    types::update,
};
use bytes::Bytes;

use super::{
    ask::{Ask, Asked, Part, PartCall, conditions},
    keys::{KeyKind, Keys, decode, decode_list, items, key_of},
};
use crate::{
    history::{Answer, Call, SeriesAnswer, SeriesCall, Value},
    oracle::{Failure, Oracle},
};

/// The content of a reply, in terms of the history.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Told {
    /// Operations on registers.
    pub operations: Vec<(u32, Call, Answer)>,
    /// Operations on lists and counters.
    pub series: Vec<(u32, SeriesCall, SeriesAnswer)>,
    /// Keys read together, with the versions of their values.
    pub seen: Vec<(u32, Option<Version>)>,
    /// The sequence up to which the reply shows the history.
    pub as_of: Option<Sequence>,
    /// The version of the update that the reply reports.
    pub version: Option<Version>,
    /// The key after which the next page begins (`None`: this page was the last one), and the snapshot.
    pub page: Option<(Option<u32>, Option<u64>)>,
    /// The keys of a page in hash order, and the position at which the next page begins.
    pub hashed: Option<(Vec<u32>, u64)>,
}

/// Interprets the reply to an operation.
///
/// # Errors
/// [`Oracle::Answers`] if the reply does not fit the operation, [`Oracle::Claims`] if it contains a value that no
/// client wrote, or a key that it can't contain.
pub fn told(asked: &Asked, reply: &Reply, keys: &Keys) -> Result<Told, Failure> {
    match (&asked.ask, reply) {
        (Ask::Open, Reply::Committed(committed)) => Ok(Told { version: Some(committed.version), ..Told::default() }),
        (Ask::Write { parts, batch }, Reply::Committed(committed)) => written(parts, *batch != 0, committed),
        (Ask::Write { parts, batch }, Reply::Conflict { at, step, version, value, .. }) => {
            let held = value.as_ref().map(|value| Held::new(*version, Some(value.clone())));
            conflict(parts, *batch != 0, *at, *step, *version, held).ok_or_else(|| nonsense(asked, reply))
        }
        (Ask::Script { parts, fails, .. }, Reply::Committed(committed)) => {
            let mut told = ran(parts, fails.is_some(), committed, keys)?;
            told.operations.extend(fails.iter().filter_map(never));
            Ok(told)
        }
        (Ask::Script { parts, fails, .. }, Reply::Conflict { at, step, version, value, .. }) => {
            let held = value.as_ref().map(|value| Held::new(*version, Some(value.clone())));
            let told = conflict(parts, true, *at, *step, *version, held);
            let mut told = told.ok_or_else(|| nonsense(asked, reply))?;
            told.operations.extend(fails.iter().filter_map(never));
            Ok(told)
        }
        (Ask::Read(key, _), Reply::Read(read)) => {
            let mut told = Told { as_of: Some(read.as_of), ..Told::default() };
            found(&mut told, keys, *key, read.held.as_ref())?;
            Ok(told)
        }
        (Ask::Keys(asked_keys, _), Reply::Cut(cut)) if cut.found.len() == asked_keys.len() => {
            let mut told = Told { as_of: Some(cut.as_of), ..Told::default() };
            asked_keys
                .iter()
                .zip(&cut.found)
                .try_for_each(|(key, held)| found(&mut told, keys, *key, held.as_ref()))?;
            Ok(told)
        }
        (Ask::Page { after, .. }, Reply::Page(page)) => shown(asked, *after, page, keys),
        (Ask::Hashed { .. }, Reply::Hashed(page)) => listed(asked, page, keys),
        // These are checked where their client's knowledge is.
        (Ask::Timed(..), Reply::Committed(WriteReply { version, .. }) | Reply::Conflict { at: version, .. }) => {
            Ok(Told { version: Some(*version), ..Told::default() })
        }
        (Ask::Timed(..), Reply::Read(read)) => Ok(Told { as_of: Some(read.as_of), ..Told::default() }),
        _ => Err(nonsense(asked, reply)),
    }
}

/// The history entries of a write without an answer: refused, or with an unknown outcome.
pub fn ended(asked: &Asked, refused: bool) -> Told {
    let mut told = Told::default();
    let (Ask::Write { parts, .. } | Ask::Script { parts, .. }) = &asked.ask else { return told };
    if let Ask::Script { fails, .. } = &asked.ask {
        told.operations.extend(fails.iter().filter_map(never));
    }
    for part in parts {
        match part.call {
            PartCall::Register(call) => {
                told.operations.push((part.key, call, if refused { Answer::Refused } else { Answer::Unknown }));
            }
            PartCall::Series(call) => {
                let answer = if refused { SeriesAnswer::Refused } else { SeriesAnswer::Unknown };
                told.series.push((part.key, call, answer));
            }
        }
    }
    told
}

fn nonsense(asked: &Asked, reply: &Reply) -> Failure {
    Failure::new(Oracle::Answers, format!("{:?} got the reply {reply:?}", asked.ask))
}

fn written(parts: &[Part], is_batch: bool, committed: &WriteReply) -> Result<Told, Failure> {
    let version = committed.version;
    let mut told = Told { version: Some(version), ..Told::default() };
    let wrong = || Failure::new(Oracle::Answers, format!("{parts:?} was answered with {committed:?}"));
    for part in parts {
        let key = part.key;
        match (part.call, &committed.result) {
            (PartCall::Register(call @ Call::GetDelete), Computed::Took(None)) => {
                told.operations.push((key, call, Answer::Found(None)));
            }
            (PartCall::Register(call @ Call::GetDelete), Computed::Took(Some((was, bytes)))) => {
                let found = (*was, value_of(key, bytes)?);
                told.operations.push((key, call, Answer::Took { version, found }));
            }
            // This member was joining when the key was deleted, and never had the value. Its reply only confirms the
            // delete.
            (PartCall::Register(Call::GetDelete), Computed::TookForgotten(_)) => {
                told.operations.push((key, Call::Delete, Answer::Written(version)));
            }
            (PartCall::Register(Call::GetDelete), _) => return Err(wrong()),
            (PartCall::Register(call), Computed::Nothing) => {
                told.operations.push((key, call, Answer::Written(version)))
            }
            (PartCall::Series(call), result) => {
                let count = match (call, result) {
                    (_, Computed::Nothing) if is_batch => None,
                    (SeriesCall::Append(_), Computed::Length(length)) => Some(items(*length).ok_or_else(wrong)?),
                    (SeriesCall::Increment, Computed::Number(number)) => {
                        Some(u64::try_from(*number).map_err(|_| wrong())?)
                    }
                    _ => return Err(wrong()),
                };
                told.series.push((key, call, SeriesAnswer::Counted { version, count }));
            }
            _ => return Err(wrong()),
        }
    }
    Ok(told)
}

/// The entry for a put that must not take effect whatever the outcome of its script.
fn never(part: &Part) -> Option<(u32, Call, Answer)> {
    if let PartCall::Register(call) = part.call { Some((part.key, call, Answer::Refused)) } else { None }
}

/// The reads and writes of the groups of a script. Together, the reads form a cut.
fn ran(parts: &[Part], fails: bool, committed: &WriteReply, keys: &Keys) -> Result<Told, Failure> {
    let version = committed.version;
    let mut told = Told { version: Some(version), ..Told::default() };
    let wrong = || Failure::new(Oracle::Answers, format!("{parts:?} was answered with {committed:?}"));
    let mut outcomes = match &committed.result {
        Computed::Ran(outcomes) => Some(outcomes.iter()),
        Computed::RanForgotten => None,
        _ => return Err(wrong()),
    };
    let failed = Err(GroupFailure::Failed { step: 1, failure: update::RequestFailure::NotANumber });
    if fails && outcomes.as_mut().is_some_and(|outcomes| outcomes.next() != Some(&failed)) {
        return Err(wrong());
    }
    for part in parts {
        let mut count = None;
        if let Some(outcomes) = &mut outcomes {
            let Some(Ok(group)) = outcomes.next() else { return Err(wrong()) };
            let [StepOutcome::Found(before), did] = &group[..] else { return Err(wrong()) };
            let held = before.clone().map(|(version, value)| Held::new(version, Some(value)));
            found(&mut told, keys, part.key, held.as_ref())?;
            count = match (part.call, did) {
                (PartCall::Register(_), StepOutcome::Done) => None,
                (PartCall::Series(SeriesCall::Append(_)), StepOutcome::Appended(length)) => {
                    Some(items(*length).ok_or_else(wrong)?)
                }
                (PartCall::Series(SeriesCall::Increment), StepOutcome::Number(number)) => {
                    Some(u64::try_from(*number).map_err(|_| wrong())?)
                }
                _ => return Err(wrong()),
            };
        }
        match part.call {
            PartCall::Register(call) => told.operations.push((part.key, call, Answer::Written(version))),
            PartCall::Series(call) => told.series.push((part.key, call, SeriesAnswer::Counted { version, count })),
        }
    }
    if outcomes.is_some_and(|mut left| left.next().is_some()) { Err(wrong()) } else { Ok(told) }
}

/// The entries of a batch in which one part did not find the expected version, so that no part was applied.
fn conflict(
    parts: &[Part],
    is_batch: bool,
    at: Version,
    step: u32,
    version: Version,
    held: Option<Held>,
) -> Option<Told> {
    let (failed, _) = conditions(parts).nth(if is_batch { step as usize } else { 0 })?;
    let seen = match held {
        Some(Held { version, value: Some(bytes), .. }) => {
            Answer::Conflict(Some((version, value_of(failed.key, &bytes).ok()?)))
        }
        _ if version.is_none() => Answer::Conflict(None),
        _ => Answer::Failed(version),
    };
    let mut told = Told { version: Some(at), ..Told::default() };
    for part in parts {
        match part.call {
            PartCall::Register(call) => {
                told.operations.push((part.key, call, if part == failed { seen } else { Answer::Refused }));
            }
            PartCall::Series(call) => told.series.push((part.key, call, SeriesAnswer::Refused)),
        }
    }
    Some(told)
}

/// The entries of a page: each key in its range, present or absent.
fn shown(asked: &Asked, after: Option<u32>, page: &ScanReply, keys: &Keys) -> Result<Told, Failure> {
    let unknown = |key: &Bytes| Failure::new(Oracle::Claims, format!("{key:?} was never asked for"));
    let next = page.next.as_ref().map(|key| key_of(key).ok_or_else(|| unknown(key))).transpose()?;
    let mut told = Told { as_of: Some(page.as_of), page: Some((next, page.snapshot)), ..Told::default() };
    let mut records = page.records.iter().peekable();
    for key in Ask::range(keys, asked.chain, after, next) {
        let record = records.next_if(|record| key_of(&record.key) == Some(key));
        found(&mut told, keys, key, record.map(|record| &record.held))?;
    }
    match records.next() {
        None => Ok(told),
        Some(record) => Err(unknown(&record.key)),
    }
}

/// Interprets a page in hash order. It must contain keys of its chain, each at most once.
fn listed(asked: &Asked, page: &HashedReply, keys: &Keys) -> Result<Told, Failure> {
    let mut met = Vec::new();
    for bytes in &page.keys {
        let key = key_of(bytes).filter(|&key| (key as usize) < keys.len() && keys.chain(key) == asked.chain);
        match key.filter(|key| !met.contains(key)) {
            Some(key) => met.push(key),
            None => return Err(Failure::new(Oracle::Claims, format!("{bytes:?} is not a new key of this chain"))),
        }
    }
    Ok(Told { as_of: Some(page.as_of), hashed: Some((met, page.next)), ..Told::default() })
}

fn found(told: &mut Told, keys: &Keys, key: u32, held: Option<&Held>) -> Result<(), Failure> {
    let held = held.and_then(|held| Some((held.version, held.value.as_ref()?)));
    told.seen.push((key, held.map(|(version, _)| version)));
    let never = |value: &Bytes| Failure::new(Oracle::Claims, format!("{value:?} was never written to key {key}"));
    match keys.kind(key) {
        KeyKind::Register => {
            let found = held.map(|(version, bytes)| Ok((version, value_of(key, bytes)?))).transpose()?;
            told.operations.push((key, Call::Read, Answer::Found(found)));
        }
        KeyKind::List => {
            let answer = match held {
                None => SeriesAnswer::List(Version::NONE, Vec::new()),
                Some((version, bytes)) => {
                    SeriesAnswer::List(version, decode_list(key, bytes).ok_or_else(|| never(bytes))?)
                }
            };
            told.series.push((key, SeriesCall::Read, answer));
        }
        KeyKind::Counter => {
            let number = |bytes: &Bytes| std::str::from_utf8(bytes).ok()?.parse().ok();
            let answer = match held {
                None => SeriesAnswer::Number(Version::NONE, 0),
                Some((version, bytes)) => SeriesAnswer::Number(version, number(bytes).ok_or_else(|| never(bytes))?),
            };
            told.series.push((key, SeriesCall::Read, answer));
        }
    }
    Ok(())
}

fn value_of(key: u32, bytes: &Bytes) -> Result<Value, Failure> {
    decode(key, bytes).ok_or_else(|| Failure::new(Oracle::Claims, format!("{bytes:?} was never written to key {key}")))
}
