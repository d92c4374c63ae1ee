//! The progress of a node that loads its directory, as it is reported.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use artillery_core::{Timestamp, internal::clock};
use artillery_proto::data_dir::{LoadProgress, LoadStep};

use crate::status::{LoadingStatus, LoadingStep};

/// The numbers of entries and bytes between two readings of the clock. A manager may end a node that reports nothing.
const ENTRIES: u64 = 1024;
const BYTES: u64 = 16 << 20;

const REPORT_PERIOD: Duration = Duration::from_secs(1);

/// The progress of a node that loads its directory. The journal is read twice: first to check it, then to load it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loading {
    /// Whether the journal is still being checked. Otherwise it is being loaded.
    pub checks: bool,
    /// Records found in this reading, with repetitions.
    pub records: u64,
    /// Records per second in this reading.
    pub records_per_second: u64,
    /// Bytes of the journal read in this reading.
    pub read_bytes: u64,
    /// The total number of bytes to read in this reading.
    pub total_bytes: u64,
    /// The time since the directory's check began.
    pub elapsed: Duration,
    /// The estimated remaining time; zero: the directory is loaded. `None`: unknown, while the journal is being checked
    /// and when the load has just begun.
    pub left: Option<Duration>,
}

impl From<Loading> for LoadingStatus {
    fn from(loading: Loading) -> Self {
        let Loading { checks, records, records_per_second, read_bytes, total_bytes, elapsed, left } = loading;
        Self {
            step: if checks { LoadingStep::Check } else { LoadingStep::Load },
            records,
            records_per_second,
            read_bytes,
            total_bytes,
            elapsed_ms: elapsed.as_millis() as u64,
            left_ms: left.map(|left| left.as_millis() as u64),
        }
    }
}

pub(crate) type Report = Arc<dyn Fn(Loading) + Send + Sync>;

/// Reports the progress about once a second.
pub(crate) struct Reporter {
    began: Timestamp,
    progress: Mutex<Progress>,
}

struct Progress {
    /// Dropped when the load ends: it may own a channel whose end the application awaits, or a handle of the node.
    report: Option<Report>,
    entries: u64,
    /// The position at the last reading of the clock.
    timed_at: u64,
    /// The reading in progress, and when it began.
    step: (LoadStep, Timestamp),
    next: Timestamp,
    read: LoadProgress,
    /// The newest report.
    last: Loading,
}

impl Reporter {
    pub(crate) fn new(report: Option<Report>) -> Self {
        let (now, read) = (clock::now(), LoadProgress::default());
        let last = loading(read, Duration::ZERO, Duration::ZERO, None);
        let progress = Progress {
            report,
            entries: 0,
            timed_at: 0,
            step: (LoadStep::Check, now),
            next: now + REPORT_PERIOD,
            read,
            last,
        };
        Self { began: now, progress: Mutex::new(progress) }
    }

    /// The newest report.
    pub(crate) fn last(&self) -> Loading {
        self.lock().last
    }

    pub(crate) fn tell(&self, read: LoadProgress) {
        let mut progress = self.lock();
        progress.read = read;
        progress.entries += 1;
        let is_far = read.read.done.saturating_sub(progress.timed_at) >= BYTES;
        if read.step == progress.step.0 && !is_far && !progress.entries.is_multiple_of(ENTRIES) {
            return;
        }
        progress.timed_at = read.read.done;
        let now = clock::now();
        if read.step != progress.step.0 {
            progress.step = (read.step, now);
        }
        if now >= progress.next {
            progress.next = now + REPORT_PERIOD;
            let left = read.left(now - progress.step.1);
            self.report(progress, now, left);
        }
    }

    /// Makes the last report: the directory is loaded. Reports nothing if the journal had no bytes to load.
    pub(crate) fn finish(&self) {
        let progress = self.lock();
        if progress.read.read.total > 0 {
            self.report(progress, clock::now(), Some(Duration::ZERO));
        } else {
            drop(progress);
        }
        self.end();
    }

    /// Ends the reports, whether the load has succeeded or not.
    pub(crate) fn end(&self) {
        let report = self.lock().report.take();
        drop(report);
    }

    /// Calls the function without holding the lock, since it may ask for the newest report.
    fn report(&self, mut progress: MutexGuard<'_, Progress>, now: Timestamp, left: Option<Duration>) {
        let report = loading(progress.read, now - progress.step.1, now - self.began, left);
        progress.last = report;
        let function = progress.report.clone();
        drop(progress);
        if let Some(function) = function {
            function(report);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn loading(progress: LoadProgress, in_step: Duration, elapsed: Duration, left: Option<Duration>) -> Loading {
    Loading {
        checks: progress.step == LoadStep::Check,
        records: progress.records,
        records_per_second: progress.records_per_second(in_step),
        read_bytes: progress.read.done,
        total_bytes: progress.read.total,
        elapsed,
        left,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn large_entries_are_reported_in_time() {
        let reports = Arc::new(AtomicUsize::new(0));
        let count = reports.clone();
        let reporter = Reporter::new(Some(Arc::new(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        })));
        let read = |done| {
            reporter.lock().next = clock::now();
            let mut read = LoadProgress::default();
            (read.read.done, read.read.total) = (done, 10 * BYTES);
            reporter.tell(read);
            reports.load(Ordering::Relaxed)
        };
        assert_eq!([BYTES - 1, BYTES, BYTES + 1, 2 * BYTES].map(read), [0, 1, 1, 2]);
    }
}
