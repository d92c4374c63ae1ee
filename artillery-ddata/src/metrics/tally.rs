//! The counters. Each counted operation has passed through a queue or a socket, so three atomic additions cost nothing
//! measurable. For local clean reads they would, so those are not counted here.

use std::{
    array,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use artillery_core::{Timestamp, internal::clock};
use artillery_proto::node::{ChangeReason, Why};

use super::{Histogram, OperationKind, OperationMetrics};
use crate::{
    Error,
    api::{Query, Reply, Write},
    message::request::Operation,
};

/// Upper bounds of latencies, in seconds.
const SECONDS: [f64; 16] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

#[derive(Debug)]
pub(crate) struct Tally {
    operations: [Cells; OperationKind::ALL.len()],
    changes: [AtomicU64; Why::ALL.len()],
}

#[derive(Debug)]
struct Cells {
    outcomes: [AtomicU64; 4],
    buckets: [AtomicU64; SECONDS.len() + 1],
    nanos: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OperationOutcome {
    Done,
    Conflict,
    Refused,
    Unknown,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct OperationTimer {
    kind: OperationKind,
    began: Timestamp,
}

impl OperationTimer {
    /// The timer of an operation; `None`: the operation isn't counted.
    pub(crate) fn of(operation: &Operation) -> Option<Self> {
        match operation {
            Operation::Read { query, .. } => Some(Self::of_query(query)),
            Operation::Write { write, .. } => Self::of_write(write),
            _ => None,
        }
    }

    pub(crate) fn of_query(query: &Query) -> Self {
        Self::now(match query {
            Query::Key(_) => OperationKind::Read,
            Query::Keys(_) => OperationKind::ReadMany,
            Query::Changes(_) => OperationKind::Changes,
            _ => OperationKind::Scan,
        })
    }

    /// `None` for the opening of a session: only the write that needs the session is counted.
    pub(crate) fn of_write(write: &Write) -> Option<Self> {
        Some(Self::now(match write {
            Write::OpenSession => return None,
            Write::Put { .. } | Write::PutSequential { .. } => OperationKind::Put,
            Write::Delete { .. } => OperationKind::Delete,
            Write::CompareAndSwap { .. } => OperationKind::CompareAndSwap,
            Write::Append { .. } | Write::Prepend { .. } => OperationKind::Append,
            Write::Expire { .. } => OperationKind::Expire,
            Write::Increment { .. } => OperationKind::Increment,
            Write::GetDelete { .. } => OperationKind::GetDelete,
            Write::Resolve => OperationKind::Resolve,
            _ => OperationKind::Batch,
        }))
    }

    fn now(kind: OperationKind) -> Self {
        Self { kind, began: clock::now() }
    }
}

impl Tally {
    pub(crate) fn replied(&self, timing: OperationTimer, reply: &Reply) {
        self.ended(timing, outcome(reply));
    }

    pub(crate) fn returned(&self, timing: OperationTimer, result: Result<&Reply, &Error>) {
        let outcome = match result {
            Ok(reply) => outcome(reply),
            Err(Error::OutcomeUnknown { .. }) => OperationOutcome::Unknown,
            Err(error) if error.is_timeout() => OperationOutcome::Unknown,
            Err(_) => OperationOutcome::Refused,
        };
        self.ended(timing, outcome);
    }

    fn ended(&self, timing: OperationTimer, outcome: OperationOutcome) {
        let took = clock::now() - timing.began;
        let cells = &self.operations[timing.kind as usize];
        let seconds = took.as_secs_f64();
        let range = SECONDS.iter().position(|&bound| seconds <= bound).unwrap_or(SECONDS.len());
        cells.outcomes[outcome as usize].fetch_add(1, Relaxed);
        cells.buckets[range].fetch_add(1, Relaxed);
        cells.nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    pub(crate) fn changed(&self, reasons: &[ChangeReason]) {
        for reason in reasons {
            self.changes[reason.why as usize].fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn operations(&self) -> Vec<OperationMetrics> {
        let read = |kind: OperationKind| {
            let cells = &self.operations[kind as usize];
            let [done, conflict, refused, unknown] = array::from_fn(|at| cells.outcomes[at].load(Relaxed));
            let latency = Histogram {
                bounds: SECONDS.to_vec(),
                counts: cells.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect(),
                sum: cells.nanos.load(Relaxed) as f64 / 1e9,
            };
            OperationMetrics { kind, done, conflict, refused, unknown, latency }
        };
        OperationKind::ALL.iter().copied().map(read).collect()
    }

    pub(crate) fn changes(&self) -> Vec<(&'static str, u64)> {
        Why::ALL.iter().map(|&why| (why.word(), self.changes[why as usize].load(Relaxed))).collect()
    }
}

fn outcome(reply: &Reply) -> OperationOutcome {
    match reply {
        Reply::Conflict { .. } => OperationOutcome::Conflict,
        Reply::Refused(_) => OperationOutcome::Refused,
        Reply::Expired => OperationOutcome::Unknown,
        _ => OperationOutcome::Done,
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self { operations: array::from_fn(|_| Cells::default()), changes: array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl Default for Cells {
    fn default() -> Self {
        let zero = |_| AtomicU64::new(0);
        Self { outcomes: array::from_fn(zero), buckets: array::from_fn(zero), nanos: AtomicU64::new(0) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{ChainId, MemberId, Refusal};

    #[test]
    fn kinds_and_reasons_are_listed_by_discriminant() {
        assert!(OperationKind::ALL.iter().enumerate().all(|(at, kind)| *kind as usize == at));
        assert!(Why::ALL.iter().enumerate().all(|(at, why)| *why as usize == at));
    }

    #[test]
    fn an_operation_is_counted_once_by_kind_outcome_and_time() {
        let tally = Tally::default();
        let write = Write::Delete { key: "k".into() };
        let mut timing = OperationTimer::of_write(&write).unwrap();
        tally.replied(timing, &Reply::Refused(Refusal::Busy));
        timing.began = Timestamp::from_nanos(clock::now().as_nanos().saturating_sub(30_000_000_000));
        tally.replied(timing, &Reply::Expired);
        let of = |kind| tally.operations().into_iter().find(|of| of.kind == kind).unwrap();
        let deletes = of(OperationKind::Delete);
        assert_eq!((deletes.done, deletes.conflict, deletes.refused, deletes.unknown), (0, 0, 1, 1));
        assert_eq!((deletes.latency.count(), deletes.latency.counts[SECONDS.len()]), (2, 1));
        assert!(deletes.latency.sum >= Duration::from_secs(20).as_secs_f64());
        assert_eq!(of(OperationKind::Put).latency.count(), 0);
        assert!(OperationTimer::of_write(&Write::OpenSession).is_none());
    }

    #[test]
    fn changes_are_counted_by_reason() {
        let tally = Tally::default();
        let member =
            MemberId { node: crate::NodeId::from_name("a"), incarnation: crate::Incarnation { store: 1, starts: 1 } };
        tally.changed(&[Why::Slow, Why::Joins, Why::Slow].map(|why| ChangeReason { chain: ChainId(0), member, why }));
        let counted: Vec<_> = tally.changes().into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [("slow", 2), ("joins", 1)]);
    }
}
