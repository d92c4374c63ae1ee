//! The progress of a node that loads its directory, as it is reported.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use artillery_core::{Timestamp, internal::clock};
use artillery_proto::data_dir::{LoadProgress, LoadStep};

use crate::status::LoadingStatus;

/// So many entries are taken in between two looks at the clock.
const ENTRIES: u64 = 1024;

/// Between two reports.
const REPORT_PERIOD: Duration = Duration::from_secs(1);

/// How far a node that starts has loaded its directory. The journal in it is read twice: to check it, and to take it in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loading {
    /// Whether the journal is still being checked. Otherwise it is being taken in.
    pub checks: bool,
    /// Records that this reading has found so far, those that are written more than once included.
    pub records: u64,
    /// Records a second, in this reading.
    pub records_per_second: u64,
    /// Bytes of the journal that were read so far, in this reading.
    pub read_bytes: u64,
    /// Bytes that this reading reads.
    pub total_bytes: u64,
    /// Since the loading began.
    pub elapsed: Duration,
    /// About how long it will take yet; zero: it is done. `None`: that isn't known before the journal is being taken in.
    pub left: Option<Duration>,
}

impl From<Loading> for LoadingStatus {
    fn from(loading: Loading) -> Self {
        let Loading { checks, records, records_per_second, read_bytes, total_bytes, elapsed, left } = loading;
        Self {
            step: if checks { "check" } else { "take_in" }.to_owned(),
            records,
            records_per_second,
            read_bytes,
            total_bytes,
            elapsed_ms: elapsed.as_millis() as u64,
            left_ms: left.map(|left| left.as_millis() as u64),
        }
    }
}

/// A function that is told of the progress.
pub(crate) type Report = Arc<dyn Fn(Loading) + Send + Sync>;

/// The newest report. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct SharedLoading(Arc<Mutex<Option<Loading>>>);

impl SharedLoading {
    pub(crate) fn get(&self) -> Option<Loading> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, loading: Loading) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(loading);
    }
}

/// Reports the progress from time to time.
pub(crate) struct Reporter {
    report: Option<Report>,
    shared: SharedLoading,
    entries: u64,
    began: Timestamp,
    /// The reading under way, and when it began.
    step: (LoadStep, Timestamp),
    next: Timestamp,
    last: LoadProgress,
}

impl Reporter {
    pub(crate) fn new(report: Option<Report>) -> Self {
        let now = clock::now();
        let reporter = Self {
            report,
            shared: SharedLoading::default(),
            entries: 0,
            began: now,
            step: (LoadStep::Check, now),
            next: now + REPORT_PERIOD,
            last: LoadProgress::default(),
        };
        reporter.shared.set(reporter.loading(now, None));
        reporter
    }

    pub(crate) fn tell(&mut self, progress: LoadProgress) {
        self.last = progress;
        self.entries += 1;
        if progress.step == self.step.0 && !self.entries.is_multiple_of(ENTRIES) {
            return;
        }
        let now = clock::now();
        if progress.step != self.step.0 {
            self.step = (progress.step, now);
        }
        if now >= self.next {
            self.next = now + REPORT_PERIOD;
            self.report(now, progress.left(now - self.step.1));
        }
    }

    /// The newest report.
    pub(crate) fn shared(&self) -> SharedLoading {
        self.shared.clone()
    }

    /// The directory is loaded. The last report says so, unless there was nothing to load.
    pub(crate) fn finish(self) {
        if self.last.read.total > 0 {
            self.report(clock::now(), Some(Duration::ZERO));
        }
    }

    fn report(&self, now: Timestamp, left: Option<Duration>) {
        let loading = self.loading(now, left);
        self.shared.set(loading);
        if let Some(report) = &self.report {
            report(loading);
        }
    }

    fn loading(&self, now: Timestamp, left: Option<Duration>) -> Loading {
        let (progress, in_step) = (self.last, now - self.step.1);
        Loading {
            checks: progress.step == LoadStep::Check,
            records: progress.records,
            records_per_second: progress.records_per_second(in_step),
            read_bytes: progress.read.done,
            total_bytes: progress.read.total,
            elapsed: now - self.began,
            left,
        }
    }
}
