//! How fast the chain is as seen from here: what gray failures are told by (docs/adr/0017-slow-members.md).
//!
//! One probe at a time goes to the successor and back, and one to the tail and back: with the newest update at some
//! moment, by the acknowledgement and the watermark that cover it (the watermark may imply the acknowledgement). A head
//! also compares what is committed in a quarter of a second with what was committed in a good one.

use std::time::Duration;

use super::Replica;
use crate::{
    ChainId, Epoch, Sequence, Timestamp,
    control::message::{PathDelay, Report},
};

/// What is committed is counted in spans of so long.
const SPAN: Duration = Duration::from_millis(250);
/// Less than this part of what was committed in a good span is little, whatever was committed before.
const LITTLE_DIVISOR: u64 = 2;
/// Over so many spans it is compared, too: what one span commits depends much on chance, what they do together doesn't.
const SPANS: usize = 4;
/// Less than so many quarters of what was committed in that many good spans is little.
const LITTLE_QUARTERS: u64 = 3;
/// The best is forgotten by so much with each span: by half in ten seconds.
const FADE_DIVISOR: u64 = 64;
/// And that of several spans: by half in three quarters of a minute.
const SLOW_FADE_DIVISOR: u64 = 256;

/// So many times as long as usual is unusual.
const UNUSUAL_FACTOR: u32 = 8;
/// How long a probe took is of no interest after so long.
const PROBE_MAX_AGE: Duration = Duration::from_secs(1);

/// One probe after the other.
#[derive(Clone, Copy, Default, Debug)]
struct Probe {
    /// What is waited for, at least since then.
    waits: Option<(Sequence, Timestamp)>,
    /// What was new then.
    sent: Option<(Sequence, Timestamp)>,
    /// Up to here nothing new was held when it looked last.
    seen: Sequence,
    took: Duration,
    usual: Option<Duration>,
    /// For so long the other side may withhold that it came.
    delay: Duration,
    /// When the last one came back, and whether one has since the present span began.
    came_at: Timestamp,
    came: bool,
}

/// How fast the chain is as seen from one member.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct ThroughputMonitor {
    hop: Probe,
    commit: Probe,
    /// When it looked last, and whether something was under way then.
    looked: Timestamp,
    busy: bool,
    /// The present span: since when, for how much of it something was under way, and what was committed before it.
    since: Timestamp,
    busy_for: Duration,
    before: CommittedBytes,
    committed: CommittedBytes,
    /// The best span.
    best: CommittedBytes,
    /// The last spans, the oldest at `next`, and the most that so many did.
    last: [CommittedBytes; SPANS],
    next: usize,
    most: CommittedBytes,
    /// Little was done in the last span, and there was little to do.
    paused: bool,
    slowed: Option<Timestamp>,
}

/// What was committed.
#[derive(Clone, Copy, Default, Debug)]
struct CommittedBytes {
    updates: u64,
    bytes: u64,
}

impl CommittedBytes {
    /// Whether it is less than `numerator` of `denominator` parts of `best`, by either count.
    fn is_less(self, numerator: u64, denominator: u64, best: Self) -> bool {
        let less = |done: u64, best: u64| done * denominator < best * numerator;
        less(self.updates, best.updates) && less(self.bytes, best.bytes)
    }

    /// The best so far, which is forgotten by a part, and this.
    fn best(self, best: Self, fades: u64) -> Self {
        let faded = |best: u64| best - best.div_ceil(fades).min(best);
        Self { updates: faded(best.updates).max(self.updates), bytes: faded(best.bytes).max(self.bytes) }
    }

    fn sum(all: &[Self]) -> Self {
        Self { updates: all.iter().map(|one| one.updates).sum(), bytes: all.iter().map(|one| one.bytes).sum() }
    }
}

/// What a member says of a chain, but for the age of it: that grows until it is said.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChainProgress {
    epoch: Epoch,
    open: bool,
    held: Sequence,
    watermark: Sequence,
    pace: ThroughputMonitor,
    closed: bool,
    member: bool,
    /// The joiner behind this tail isn't known to follow, and was heard last at this moment.
    unheard_since: Option<Timestamp>,
    halted: bool,
}

impl ChainProgress {
    #[cfg(test)]
    pub(crate) fn for_a_test(epoch: Epoch, open: bool) -> Self {
        Self { epoch, open, member: true, ..Self::default() }
    }

    /// The report of it at `now`; `None`: it is no member, and nothing is wrong.
    pub fn report(&self, chain: ChainId, now: Timestamp) -> Option<Report> {
        let Self { epoch, open, held, watermark, pace, closed, member, unheard_since, halted } = *self;
        let unheard = unheard_since.map_or(Duration::ZERO, |since| now - since);
        let slowed = pace.slowed.map_or(Duration::ZERO, |since| now - since);
        let (hop, commit) = (pace.hop.way(now), pace.commit.way(now));
        let report = Report { chain, epoch, open, held, watermark, hop, commit, slowed, closed, unheard, halted };
        (member || halted).then_some(report)
    }

    /// The head has closed, and all that it ordered is committed.
    pub fn is_closed(&self) -> bool {
        self.closed
    }
}

impl Probe {
    fn look(&mut self, now: Timestamp, held: Sequence, reached: Sequence) {
        let back = |(upto, _): &mut (Sequence, Timestamp)| *upto <= reached;
        if let Some((_, since)) = self.sent.take_if(back) {
            let took = self.without_delay(now - since);
            // One alone may be late for any reason.
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

    /// What stood above `keep` is dropped: it never comes back.
    fn cut(&mut self, keep: Sequence) {
        let dropped = |(upto, _): &mut (Sequence, Timestamp)| *upto > keep;
        self.waits.take_if(dropped);
        self.sent.take_if(dropped);
    }

    fn fade(&mut self) {
        if std::mem::take(&mut self.came) {
            self.usual = self.usual.map(|usual| usual + usual / FADE_DIVISOR as u32);
        }
    }

    /// What is longer than usual may be so because the other side withheld its acknowledgement.
    fn without_delay(&self, took: Duration) -> Duration {
        self.usual.map_or(took, |usual| took.saturating_sub(self.delay).max(usual.min(took)))
    }

    fn way(&self, now: Timestamp) -> PathDelay {
        let waits = self.waits.map(|(upto, since)| (upto, self.without_delay(now - since)));
        PathDelay { waits, took: self.took, usual: self.usual.unwrap_or(self.took) }
    }
}

impl ThroughputMonitor {
    /// A new epoch: others may be in the way now.
    pub(super) fn begin(&mut self, now: Timestamp) {
        (self.hop.waits, self.commit.waits) = (None, None);
        (self.hop.sent, self.commit.sent) = (None, None);
        (self.hop.took, self.commit.took) = (Duration::ZERO, Duration::ZERO);
        (self.slowed, self.busy, self.busy_for) = (None, false, Duration::ZERO);
        (self.since, self.looked, self.before) = (now, now, self.committed);
    }

    /// Updates above `keep` are dropped. A probe that went on waiting for one would show a healthy neighbour as dead.
    pub(super) fn cut(&mut self, keep: Sequence) {
        self.hop.cut(keep);
        self.commit.cut(keep);
    }

    /// Whether the way to the successor takes far longer than it does as a rule, and no less than `least`.
    pub(super) fn is_far(&self, least: Duration) -> bool {
        let took = if self.looked - self.hop.came_at < PROBE_MAX_AGE { self.hop.took } else { Duration::ZERO };
        let takes = self.hop.waits.map_or(took, |(_, since)| took.max(self.looked - since));
        takes >= least && self.hop.usual.is_some_and(|usual| takes >= usual * UNUSUAL_FACTOR)
    }

    pub(super) fn committed(&mut self, bytes: usize) {
        self.committed.updates += 1;
        self.committed.bytes += bytes as u64;
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
        // Where there was nothing to do, little was done.
        let wanted = self.busy_for * 4 >= passed * 3;
        // For a moment: perhaps those who want something wait for this very member to take it in.
        let pauses = little && !wanted && !self.paused;
        self.paused = little && !wanted;
        self.slowed = match self.slowed {
            since if pauses => since,
            since if little && wanted => since.or(Some(self.since)),
            _ => None,
        };
        self.best = done.best(self.best, FADE_DIVISOR);
        self.most = lately.best(self.most, SLOW_FADE_DIVISOR);
        self.hop.fade();
        self.commit.fade();
        (self.since, self.busy_for, self.before) = (now, Duration::ZERO, self.committed);
    }
}

impl Replica {
    /// How the chain stands here.
    pub fn progress(&self) -> ChainProgress {
        ChainProgress {
            epoch: self.config.as_ref().map_or(Epoch(0), |config| config.epoch),
            open: self.is_open(),
            held: self.history.last().sequence,
            watermark: self.watermark,
            pace: self.pace,
            closed: self.is_closed() && self.history.last().sequence == self.watermark,
            member: self.config.is_some(),
            unheard_since: self.awaits_joiner().then_some(self.joiner_heard),
            halted: self.halted.is_some(),
        }
    }

    /// Called behind every input.
    pub(super) fn look_at_pace(&mut self, now: Timestamp) {
        let held = self.history.last().sequence;
        let successor = self.place.successor.and_then(|id| self.peers.get(&id));
        let acknowledged = successor.map_or(held, |peer| peer.acknowledged);
        // Before that no acknowledgement is taken.
        if self.is_prefix {
            self.pace.hop.delay = self.ack_delay();
            self.pace.hop.look(now, held, acknowledged);
        }
        self.pace.commit.look(now, held, self.watermark);
        self.pace.look(now, self.place.is_head && held > self.watermark);
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
        assert_eq!(probe.way(at(7)).waits, Some((Sequence(3), Duration::from_millis(7))));
        probe.look(at(10), Sequence(9), Sequence(4));
        let way = probe.way(at(13));
        assert_eq!((way.took, way.usual), (Duration::from_millis(10), Duration::from_millis(10)));
        assert_eq!(
            way.waits,
            Some((Sequence(9), Duration::from_millis(3))),
            "what else is under way is waited for too"
        );
        probe.look(at(12), Sequence(9), Sequence(9));
        assert_eq!(probe.way(at(20)).usual, Duration::from_millis(10), "but it was under way before");
        probe.look(at(30), Sequence(10), Sequence(9));
        probe.look(at(34), Sequence(10), Sequence(10));
        assert_eq!(probe.way(at(40)).usual, Duration::from_millis(4));
        assert_eq!(probe.way(at(40)).takes(), Duration::from_millis(7), "the mean of the last ones");
    }

    /// So many commits a millisecond, with something under way all the time or never.
    fn run(pace: &mut ThroughputMonitor, from: u64, to: u64, every: u64, busy: bool) {
        for millis in from..to {
            if millis % every == 0 {
                pace.committed(100);
            }
            pace.look(at(millis), busy);
        }
    }

    #[test]
    fn who_commits_far_less_than_before_though_it_has_to_is_slowed() {
        let mut pace = ThroughputMonitor::default();
        run(&mut pace, 0, 2000, 1, true);
        assert_eq!(pace.slowed, None);
        run(&mut pace, 2000, 2500, 2, true);
        assert_eq!(pace.slowed, None, "half is not little");
        run(&mut pace, 2500, 4000, 1, true);
        run(&mut pace, 4000, 6000, 100, true);
        assert!(pace.slowed.is_some_and(|since| (3900..4300).contains(&(since.as_nanos() / 1_000_000))));
        let mut idle = pace;
        run(&mut idle, 6000, 6900, 100, false);
        assert_eq!(idle.slowed, None, "nobody wants more");
        let mut paused = pace;
        run(&mut paused, 6000, 6300, 100, false);
        run(&mut paused, 6300, 6600, 100, true);
        assert_eq!(paused.slowed, pace.slowed, "for a moment nobody did");
        run(&mut pace, 6000, 7100, 1, true);
        assert_eq!(pace.slowed, None);
    }

    /// Spans that commit so many updates, with something under way all the time.
    fn spans(pace: &mut ThroughputMonitor, from: u64, counts: &[u64]) -> u64 {
        for (n, &count) in counts.iter().enumerate() {
            (0..count).for_each(|_| pace.committed(100));
            pace.look(at(from + 250 * (n as u64 + 1)), true);
        }
        from + 250 * counts.len() as u64
    }

    #[test]
    fn a_loss_of_a_third_is_told_from_chance_over_several_spans() {
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
            assert_eq!(pace.slowed, Some(since), "whatever a single span does");
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
                pace.committed(100_000);
            }
            pace.look(at(millis), true);
        }
        assert_eq!(pace.slowed, None);
    }
}
