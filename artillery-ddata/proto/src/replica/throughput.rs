//! The chain's throughput as one member measures it, for detecting gray failures (docs/adr/0017-slow-members.md).
//!
//! Three probes measure the paths to the successor, to the tail, and to the member's own disk. Each probe follows one
//! update, the newest at its start, and ends with the acknowledgement, watermark or sync that covers the update. (A
//! watermark may imply the acknowledgement.) While the chain is idle, the last probes are out of date, and their delays
//! aren't reported for longer than a span: the end of a load would otherwise look like a slow member. A head also compares the commits of each span of 250 ms with those of the
//! best spans.

use std::time::Duration;

use super::{Context, log::Log};
use crate::{
    ChainId, Epoch, Sequence, Timestamp, Version,
    control::message::{PathDelay, Report, StoreHolding},
};

const SPAN: Duration = Duration::from_millis(250);
/// A span is slow if it commits less than 1 / `LITTLE_DIVISOR` of the best span.
const LITTLE_DIVISOR: u64 = 2;
/// The sum of this many spans is compared too, since it varies less than a single span.
const SPANS: usize = 4;
/// The sum of `SPANS` spans is slow if it is less than `LITTLE_QUARTERS` / 4 of the best sum.
const LITTLE_QUARTERS: u64 = 3;
/// Each span lowers the best one by 1 / `FADE_DIVISOR`, which halves it in about ten seconds.
const FADE_DIVISOR: u64 = 64;
/// The same for the best sum of `SPANS` spans: halved in about 45 seconds.
const SLOW_FADE_DIVISOR: u64 = 256;

/// A hop is slow if it takes this many times as long as usual.
const UNUSUAL_FACTOR: u32 = 8;
/// The duration of a completed probe is used for this long.
const PROBE_MAX_AGE: Duration = Duration::from_secs(1);

/// Measures one path with consecutive probes.
#[derive(Clone, Copy, Default, Debug)]
struct Probe {
    /// An update that isn't covered yet, and when its measurement began.
    waits: Option<(Sequence, Timestamp)>,
    /// The probe in flight: its update, and when it started.
    sent: Option<(Sequence, Timestamp)>,
    /// The newest update at the last measurement.
    seen: Sequence,
    took: Duration,
    usual: Option<Duration>,
    /// The time for which the other side may withhold its acknowledgement.
    delay: Duration,
    came_at: Timestamp,
    /// A probe ended in the present span.
    came: bool,
}

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct ThroughputMonitor {
    hop: Probe,
    commit: Probe,
    disk: Probe,
    looked: Timestamp,
    /// This member was head, with updates in flight, at the last measurement.
    busy: bool,
    since: Timestamp,
    /// For how long in the present span updates were in flight.
    busy_for: Duration,
    /// The total before the present span.
    before: CommittedBytes,
    committed: CommittedBytes,
    /// The best span, lowered over time.
    best: CommittedBytes,
    /// The last spans. The oldest is at `next`.
    last: [CommittedBytes; SPANS],
    next: usize,
    /// The best sum of [`SPANS`] spans, lowered over time.
    most: CommittedBytes,
    /// The last span committed little because it was idle.
    paused: bool,
    slowed: Option<Timestamp>,
}

#[derive(Clone, Copy, Default, Debug)]
struct CommittedBytes {
    updates: u64,
    bytes: u64,
}

impl CommittedBytes {
    /// Whether both counts are less than `numerator / denominator` of `best`.
    fn is_less(self, numerator: u64, denominator: u64, best: Self) -> bool {
        let less = |done: u64, best: u64| done * denominator < best * numerator;
        less(self.updates, best.updates) && less(self.bytes, best.bytes)
    }

    /// The greater of this count and the best so far, which is first lowered by 1 / `fades`.
    fn best(self, best: Self, fades: u64) -> Self {
        let faded = |best: u64| best - best.div_ceil(fades).min(best);
        Self { updates: faded(best.updates).max(self.updates), bytes: faded(best.bytes).max(self.bytes) }
    }

    fn sum(all: &[Self]) -> Self {
        Self { updates: all.iter().map(|one| one.updates).sum(), bytes: all.iter().map(|one| one.bytes).sum() }
    }
}

/// The progress of a chain that a member reports. The ages are added when the report is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChainProgress {
    pub(super) epoch: Epoch,
    pub(super) open: bool,
    pub(super) held: Sequence,
    pub(super) watermark: Sequence,
    pub(super) pace: ThroughputMonitor,
    pub(super) closed: bool,
    pub(super) member: bool,
    /// Set if the joiner behind this tail isn't known to follow: the time of its last frame in this epoch, or of the
    /// entry of the epoch.
    pub(super) unheard_since: Option<Timestamp>,
    pub(super) halted: bool,
    /// The newest version, if the copy is complete.
    pub(super) whole: Option<Version>,
}

impl ChainProgress {
    #[cfg(test)]
    pub(crate) fn for_a_test(epoch: Epoch, open: bool) -> Self {
        Self { epoch, open, member: true, ..Self::default() }
    }

    #[cfg(test)]
    pub(crate) fn with_copy(self, whole: Option<Version>, watermark: Sequence) -> Self {
        Self { whole, watermark, ..self }
    }

    /// The report at `now`; `None`: this node is no member of the chain, and its replica has not halted.
    pub fn report(&self, chain: ChainId, now: Timestamp) -> Option<Report> {
        let Self { epoch, open, held, watermark, pace, closed, member, unheard_since, halted, .. } = *self;
        let unheard = unheard_since.map_or(Duration::ZERO, |since| now - since);
        let slowed = pace.slowed.map_or(Duration::ZERO, |since| now - since);
        let idle = pace.commit.is_idle(now);
        let [hop, commit, disk] = [pace.hop, pace.commit, pace.disk].map(|probe| probe.way(now, idle));
        let report = Report { chain, epoch, open, held, watermark, hop, commit, disk, slowed, closed, unheard, halted };
        (member || halted).then_some(report)
    }

    /// This node's copy of the chain, if it is complete and not empty. `synced`: see [`StoreHolding::synced`].
    pub fn holding(&self, chain: ChainId, synced: bool) -> Option<StoreHolding> {
        let last = self.whole.filter(|last| !last.is_none())?;
        Some(StoreHolding { chain, whole: true, last, watermark: self.watermark, synced })
    }

    /// Whether the head is closed and every update that it ordered is committed.
    pub fn is_closed(&self) -> bool {
        self.closed
    }
}

impl Probe {
    fn look(&mut self, now: Timestamp, held: Sequence, reached: Sequence) {
        let back = |(upto, _): &mut (Sequence, Timestamp)| *upto <= reached;
        if let Some((_, since)) = self.sent.take_if(back) {
            let took = self.without_delay(now - since);
            // Any single probe may be delayed, so average it with the earlier ones.
            self.took = if self.took.is_zero() { took } else { (self.took + took) / 2 };
            self.usual = Some(self.usual.map_or(took, |usual| usual.min(took)));
            (self.came, self.came_at) = (true, now);
        }
        if self.sent.is_none() && held > self.seen && held > reached {
            self.sent = Some((held, now));
        }
        self.waits.take_if(back);
        if self.waits.is_none() && held > reached {
            self.waits = Some((held, now));
        }
        self.seen = held;
    }

    fn cut(&mut self, keep: Sequence) {
        let dropped = |(upto, _): &mut (Sequence, Timestamp)| *upto > keep;
        self.waits.take_if(dropped);
        self.sent.take_if(dropped);
    }

    /// Resets the probe for a new epoch. The usual duration is kept.
    fn begin(&mut self) {
        (self.waits, self.sent, self.took) = (None, None, Duration::ZERO);
    }

    fn fade(&mut self) {
        if std::mem::take(&mut self.came) {
            self.usual = self.usual.map(|usual| usual + usual / FADE_DIVISOR as u32);
        }
    }

    /// Subtracts the delay, but not below the usual duration: the other side may have withheld its acknowledgement.
    fn without_delay(&self, took: Duration) -> Duration {
        self.usual.map_or(took, |usual| took.saturating_sub(self.delay).max(usual.min(took)))
    }

    /// The delay of the path. `idle`: the chain has been idle, so the last probe is out of date.
    fn way(&self, now: Timestamp, idle: bool) -> PathDelay {
        let waits = self.waits.map(|(upto, since)| (upto, self.without_delay(now - since)));
        let took = if idle { Duration::ZERO } else { self.took };
        PathDelay { waits, took, usual: self.usual.unwrap_or(took) }
    }

    /// Whether nothing has been on the path for a span.
    fn is_idle(&self, now: Timestamp) -> bool {
        self.waits.is_none() && now - self.came_at >= SPAN
    }
}

impl ThroughputMonitor {
    /// Begins a new epoch, in which the neighbours may differ.
    pub(super) fn begin(&mut self, now: Timestamp) {
        self.probes().for_each(Probe::begin);
        (self.slowed, self.busy, self.busy_for) = (None, false, Duration::ZERO);
        (self.since, self.looked, self.before) = (now, now, self.committed);
    }

    /// Cancels probes of updates above `keep`, which were dropped. Otherwise such a probe would make a healthy
    /// neighbour look dead.
    pub(super) fn cut(&mut self, keep: Sequence) {
        self.probes().for_each(|probe| probe.cut(keep));
    }

    fn probes(&mut self) -> impl Iterator<Item = &mut Probe> {
        [&mut self.hop, &mut self.commit, &mut self.disk].into_iter()
    }

    /// Whether the hop to the successor takes much longer than usual, and at least `least`.
    pub(super) fn is_far(&self, least: Duration) -> bool {
        let took = if self.looked - self.hop.came_at < PROBE_MAX_AGE { self.hop.took } else { Duration::ZERO };
        let takes = self.hop.waits.map_or(took, |(_, since)| took.max(self.looked - since));
        takes >= least && self.hop.usual.is_some_and(|usual| takes >= usual * UNUSUAL_FACTOR)
    }

    pub(super) fn committed(&mut self, updates: u64, bytes: u64) {
        self.committed.updates += updates;
        self.committed.bytes += bytes;
    }

    /// Measures after each input. `acknowledged`: the last update that the successor acknowledged, and for how long it
    /// may withhold an acknowledgement; `None`: its acknowledgements aren't accepted yet.
    pub(super) fn measure(&mut self, cx: Context<'_>, log: &Log, acknowledged: Option<(Sequence, Duration)>) {
        let (now, held, watermark) = (cx.now, log.last().sequence, log.watermark());
        if let Some((acknowledged, delay)) = acknowledged {
            self.hop.delay = delay;
            self.hop.look(now, held, acknowledged);
        }
        self.commit.look(now, held, watermark);
        if let Some(journal) = log.journal() {
            self.disk.look(now, held, journal.written());
        }
        self.look(now, cx.place().is_head && held > watermark);
    }

    fn look(&mut self, now: Timestamp, busy: bool) {
        if self.busy {
            self.busy_for += now - self.looked;
        }
        (self.looked, self.busy) = (now, busy);
        let passed = now - self.since;
        if passed < SPAN {
            return;
        }
        let span = |count: u64| (u128::from(count) * SPAN.as_nanos() / passed.as_nanos()) as u64;
        let done = CommittedBytes {
            updates: span(self.committed.updates - self.before.updates),
            bytes: span(self.committed.bytes - self.before.bytes),
        };
        self.last[self.next] = done;
        self.next = (self.next + 1) % SPANS;
        let lately = CommittedBytes::sum(&self.last);
        let little = done.is_less(1, LITTLE_DIVISOR, self.best) || lately.is_less(LITTLE_QUARTERS, 4, self.most);
        // An idle chain commits little, so a span is only judged if updates were in flight for three quarters of it.
        let wanted = self.busy_for * 4 >= passed * 3;
        // Tolerate one idle span: clients may be blocked on this slow head.
        let pauses = little && !wanted && !self.paused;
        self.paused = little && !wanted;
        self.slowed = match self.slowed {
            since if pauses => since,
            since if little && wanted => since.or(Some(self.since)),
            _ => None,
        };
        self.best = done.best(self.best, FADE_DIVISOR);
        self.most = lately.best(self.most, SLOW_FADE_DIVISOR);
        self.probes().for_each(Probe::fade);
        (self.since, self.busy_for, self.before) = (now, Duration::ZERO, self.committed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_probe_is_the_newest_update_of_its_moment() {
        let mut probe = Probe::default();
        probe.look(at(0), Sequence(3), Sequence(0));
        probe.look(at(5), Sequence(9), Sequence(2));
        assert_eq!(probe.way(at(7), false).waits, Some((Sequence(3), Duration::from_millis(7))));
        probe.look(at(10), Sequence(9), Sequence(4));
        let way = probe.way(at(13), false);
        assert_eq!((way.took, way.usual), (Duration::from_millis(10), Duration::from_millis(10)));
        assert_eq!(way.waits, Some((Sequence(9), Duration::from_millis(3))), "a newer update is in flight");
        probe.look(at(12), Sequence(9), Sequence(9));
        assert_eq!(
            probe.way(at(20), false).usual,
            Duration::from_millis(10),
            "update 9 was in flight before the probe"
        );
        probe.look(at(30), Sequence(10), Sequence(9));
        probe.look(at(34), Sequence(10), Sequence(10));
        assert_eq!(probe.way(at(40), false).usual, Duration::from_millis(4));
        assert_eq!(probe.way(at(40), false).takes(), Duration::from_millis(7), "the mean of the last ones");
    }

    #[test]
    fn an_idle_chain_has_no_slow_path() {
        let mut pace = ThroughputMonitor::default();
        let mut look = |at: Timestamp, held, committed| {
            pace.commit.look(at, Sequence(held), Sequence(committed));
            pace.hop.look(at, Sequence(held), Sequence(held));
            let progress = ChainProgress { pace, ..ChainProgress::for_a_test(Epoch(1), true) };
            progress.report(ChainId(0), at).expect("a member").commit.takes()
        };
        look(at(0), 1, 0);
        look(at(1), 1, 1);
        look(at(10), 2, 1);
        let took = look(at(110), 2, 2);
        assert_eq!(look(at(359), 2, 2), took);
        assert_eq!(look(at(360), 2, 2), Duration::ZERO, "nothing was in flight for a span");
        look(at(400), 3, 2);
        assert_eq!(look(at(700), 3, 2), Duration::from_millis(300), "an update in flight is measured");
    }

    /// Commits every `every` milliseconds, with updates in flight always or never.
    fn run(pace: &mut ThroughputMonitor, from: u64, to: u64, every: u64, busy: bool) {
        for millis in from..to {
            if millis % every == 0 {
                pace.committed(1, 100);
            }
            pace.look(at(millis), busy);
        }
    }

    #[test]
    fn a_drop_of_commits_under_load_is_slowed() {
        let mut pace = ThroughputMonitor::default();
        run(&mut pace, 0, 2000, 1, true);
        assert_eq!(pace.slowed, None);
        run(&mut pace, 2000, 2500, 2, true);
        assert_eq!(pace.slowed, None, "half of the best is not slow");
        run(&mut pace, 2500, 4000, 1, true);
        run(&mut pace, 4000, 6000, 100, true);
        assert!(pace.slowed.is_some_and(|since| (3900..4300).contains(&(since.as_nanos() / 1_000_000))));
        let mut idle = pace;
        run(&mut idle, 6000, 6900, 100, false);
        assert_eq!(idle.slowed, None, "no updates are in flight");
        let mut paused = pace;
        run(&mut paused, 6000, 6300, 100, false);
        run(&mut paused, 6300, 6600, 100, true);
        assert_eq!(paused.slowed, pace.slowed, "one idle span is tolerated");
        run(&mut pace, 6000, 7100, 1, true);
        assert_eq!(pace.slowed, None);
    }

    /// One span for each count of commits, with updates always in flight.
    fn spans(pace: &mut ThroughputMonitor, from: u64, counts: &[u64]) -> u64 {
        for (n, &count) in counts.iter().enumerate() {
            (0..count).for_each(|_| pace.committed(1, 100));
            pace.look(at(from + 250 * (n as u64 + 1)), true);
        }
        from + 250 * counts.len() as u64
    }

    #[test]
    fn a_loss_of_a_third_shows_over_several_spans() {
        let mut pace = ThroughputMonitor::default();
        pace.look(at(0), true);
        let mut now = 0;
        for _ in 0..4 {
            now = spans(&mut pace, now, &[70, 90, 75, 85]);
            assert_eq!(pace.slowed, None);
        }
        now = spans(&mut pace, now, &[60, 40, 62, 42]);
        let since = pace.slowed.expect("two thirds are less than usual");
        for _ in 0..3 {
            now = spans(&mut pace, now, &[60, 40, 65, 42]);
            assert_eq!(pace.slowed, Some(since), "a single good span changes nothing");
        }
        spans(&mut pace, now, &[80, 80, 80, 80]);
        assert_eq!(pace.slowed, None);
    }

    #[test]
    fn chance_is_no_loss() {
        let mut pace = ThroughputMonitor::default();
        pace.look(at(0), true);
        let mut now = 0;
        for _ in 0..20 {
            now = spans(&mut pace, now, &[70, 95, 50, 85]);
            assert_eq!(pace.slowed, None);
        }
    }

    #[test]
    fn what_is_slow_for_ever_is_usual_in_the_end() {
        let mut pace = ThroughputMonitor::default();
        run(&mut pace, 0, 1000, 1, true);
        run(&mut pace, 1000, 120_000, 10, true);
        assert_eq!(pace.slowed, None);
    }

    #[test]
    fn fewer_but_larger_updates_are_no_less() {
        let mut pace = ThroughputMonitor::default();
        run(&mut pace, 0, 2000, 1, true);
        for millis in 2000..4000 {
            if millis % 100 == 0 {
                pace.committed(1, 100_000);
            }
            pace.look(at(millis), true);
        }
        assert_eq!(pace.slowed, None);
    }
}
