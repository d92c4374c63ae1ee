//! When a key may go by itself: the ends of times to live, on the clock of the book.

use std::time::Duration;

use crate::{
    Timestamp, Version,
    api::{ScriptStep, Step, Ttl, Write},
    control::Timing,
    rpc::observer::book::{Ask, BookAnswer, BookEntry, NEVER},
};

/// Converts times to moments of the book.
#[derive(Default)]
pub(super) struct Clock {
    /// For each answer, when it arrived and the first moment at which it or a later answer did. Ascending.
    answers: Vec<(Timestamp, u64)>,
    /// The first of all ends of times to live: a copy of another key may expire from then on.
    earliest: Option<u64>,
}

impl Clock {
    pub(super) fn of(entries: &[(usize, &BookEntry)]) -> Self {
        let answered = entries.iter().filter(|(_, entry)| entry.told != BookAnswer::Unknown);
        let mut answers: Vec<_> = answered.map(|(_, entry)| (entry.ended, entry.returned)).collect();
        answers.sort_unstable();
        let mut first = NEVER;
        for (_, returned) in answers.iter_mut().rev() {
            first = first.min(*returned);
            *returned = first;
        }
        let clock = Self { answers, earliest: None };
        let ends = entries.iter().flat_map(|(_, entry)| {
            let lengths = if let Ask::Write(write) = &entry.ask { lengths(write) } else { Vec::new() };
            lengths.into_iter().map(|ttl| clock.end(entry.began, ttl)).collect::<Vec<_>>()
        });
        let earliest = ends.min();
        Self { earliest, ..clock }
    }

    /// The first answer that may show the end of a time to live, which a write that was called at `began` set, in
    /// milliseconds. Clocks may differ in rate. [`NEVER`]: no answer was that late.
    fn end(&self, began: Timestamp, ttl: u64) -> u64 {
        const MILLION: u64 = 1_000_000;
        let slowest = MILLION.saturating_sub(Timing::default().drift_ppm.into());
        // A millisecond has a million nanoseconds, and the drift is in parts per million.
        let end = began + Duration::from_nanos(ttl.saturating_mul(slowest));
        let position = self.answers.partition_point(|(ended, _)| *ended < end);
        self.answers.get(position).map_or(NEVER, |(_, returned)| *returned)
    }

    pub(super) fn terms(&self, at: Version, began: Timestamp) -> Terms<'_> {
        Terms { at, began, clock: self }
    }
}

/// The conditions on which the effect of a write depends, except for the content that it finds.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a> {
    pub(super) at: Version,
    began: Timestamp,
    clock: &'a Clock,
}

impl Terms<'_> {
    /// The first answer that may show the end of this time to live.
    pub(super) fn end(&self, ttl: u64) -> u64 {
        self.clock.end(self.began, ttl)
    }

    /// The first answer that may show the end of any key's time to live.
    pub(super) fn earliest(&self) -> Option<u64> {
        self.clock.earliest
    }
}

/// All times to live that a write may set.
fn lengths(write: &Write) -> Vec<u64> {
    let of = |ttl: &Ttl| match ttl {
        Ttl::Set(ttl) | Ttl::IfNew(ttl) => Some(*ttl),
        Ttl::Usual | Ttl::Keep => None,
        // An unknown one may let the key go at any time.
        _ => Some(0),
    };
    let of_step = |step: &Step| match step {
        Step::Expire { ttl, .. } => *ttl,
        Step::Put { ttl, .. } | Step::Append { ttl, .. } | Step::Prepend { ttl, .. } | Step::Increment { ttl, .. } => {
            of(ttl)
        }
        Step::Require { .. } | Step::Delete { .. } => None,
    };
    let of_script = |step: &ScriptStep| match step {
        ScriptStep::Expire { ttl, .. } => *ttl,
        ScriptStep::Put { ttl, .. }
        | ScriptStep::Append { ttl, .. }
        | ScriptStep::Prepend { ttl, .. }
        | ScriptStep::Increment { ttl, .. } => of(ttl),
        _ => None,
    };
    match write {
        Write::Expire { ttl, .. } => ttl.iter().copied().collect(),
        Write::Batch(steps) => steps.iter().filter_map(of_step).collect(),
        Write::Script(script) => script.groups.iter().flat_map(|group| &group.steps).filter_map(of_script).collect(),
        Write::Put { ttl, .. }
        | Write::CompareAndSwap { ttl, .. }
        | Write::Append { ttl, .. }
        | Write::Prepend { ttl, .. }
        | Write::Increment { ttl, .. }
        | Write::PutSequential { ttl, .. } => of(ttl).into_iter().collect(),
        Write::Delete { .. } | Write::GetDelete { .. } | Write::OpenSession | Write::Resolve => Vec::new(),
    }
}
