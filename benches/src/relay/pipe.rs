//! One direction of a link. Datagrams that enter it leave it later, or are lost.

use std::{collections::VecDeque, time::Duration};

use artillery_core::Timestamp;

use super::{Counts, train::Train};
use crate::throughput::book::scramble;

/// The effect of one direction of a link on datagrams.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// The delay of each datagram.
    pub delay: Duration,
    /// Randomly lost datagrams per million.
    pub loss_ppm: u32,
    /// The longest datagram, in bytes. Longer ones are dropped.
    pub max_datagram: usize,
    /// Bytes per second. `None`: unlimited.
    pub rate: Option<u64>,
    /// Bytes that may wait in front of a link with a rate. Further ones are dropped.
    pub queue_bytes: u64,
    /// The seed of the random losses.
    pub seed: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Self { delay: Duration::ZERO, loss_ppm: 0, max_datagram: usize::MAX, rate: None, queue_bytes: 1 << 20, seed: 1 }
    }
}

/// Limit on the bytes in flight: enough for 1.6 GB/s over 156 ms.
const MAX_BYTES: usize = 256 << 20;

/// Size of a train without its bytes.
const TRAIN_BYTES: usize = 128;

/// The next event of a pipe.
#[derive(Debug)]
pub enum Next<T> {
    /// This train leaves now.
    Due(Train, T),
    /// The next train leaves at this time.
    At(Timestamp),
    /// No train is in flight.
    Nothing,
}

/// One direction of a link.
#[derive(Debug)]
pub struct Pipe<T> {
    shape: Shape,
    under_way: VecDeque<(Timestamp, Train, T)>,
    bytes: usize,
    /// When the last byte that entered will have been sent on the link.
    busy_until: Timestamp,
    chance: u64,
    counts: Counts,
}

impl<T: PartialEq> Pipe<T> {
    /// An empty pipe.
    pub fn new(shape: &Shape, seed: u64) -> Self {
        let (shape, under_way) = (shape.clone(), VecDeque::new());
        Self { shape, under_way, bytes: 0, busy_until: Timestamp::ZERO, chance: seed, counts: Counts::default() }
    }

    /// Adds datagrams. A train arrives as a whole, with its last datagram. A train that is due at the same time as the
    /// one before, with the same destination, is merged with it if possible.
    pub fn enter(&mut self, now: Timestamp, train: Train, to: T) {
        let Some(train) = train.retain(|len| self.admits(now, len)) else { return };
        let due = self.busy_until.max(now) + self.shape.delay;
        let train = match self.under_way.back_mut() {
            Some((last, before, same)) if *last == due && *same == to => {
                let len = train.bytes().len();
                match before.append(train) {
                    Ok(()) => {
                        self.bytes += len;
                        return;
                    }
                    Err(train) => train,
                }
            }
            _ => train,
        };
        self.bytes += train.bytes().len() + TRAIN_BYTES;
        self.under_way.push_back((due, train, to));
    }

    fn admits(&mut self, now: Timestamp, len: usize) -> bool {
        if self.shape.loss_ppm > 0 && self.draw() % 1_000_000 < u64::from(self.shape.loss_ppm) {
            self.counts.lost += 1;
            return false;
        }
        if len > self.shape.max_datagram || self.bytes >= MAX_BYTES || !self.takes_turn(now, len as u64) {
            self.counts.dropped += 1;
            return false;
        }
        true
    }

    /// Whether the queue in front of the link has capacity. If so, occupies the link for these bytes.
    fn takes_turn(&mut self, now: Timestamp, len: u64) -> bool {
        let Some(rate) = self.shape.rate else { return true };
        let start = self.busy_until.max(now);
        let waiting = u128::from(rate) * (start - now).as_nanos() / NANOS_PER_SECOND;
        if waiting + u128::from(len) > u128::from(self.shape.queue_bytes) {
            return false;
        }
        let nanos = u128::from(len) * NANOS_PER_SECOND / u128::from(rate.max(1));
        self.busy_until = start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        true
    }

    /// Removes the next train that is due.
    pub fn next(&mut self, now: Timestamp) -> Next<T> {
        match self.under_way.front() {
            None => return Next::Nothing,
            Some((due, ..)) if *due > now => return Next::At(*due),
            Some(_) => {}
        }
        let Some((_, train, to)) = self.under_way.pop_front() else { return Next::Nothing };
        self.bytes -= train.bytes().len() + TRAIN_BYTES;
        self.counts.passed += train.datagrams() as u64;
        Next::Due(train, to)
    }

    /// What happened to the datagrams.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// A random number, by SplitMix64.
    fn draw(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.chance)
    }
}

const NANOS_PER_SECOND: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    fn train(datagrams: usize) -> Train {
        Train::new(vec![0; 1000 * datagrams], 1000, None)
    }

    #[test]
    fn datagrams_leave_later_in_order() {
        let mut pipe = Pipe::new(&Shape { delay: Duration::from_millis(78), ..Shape::default() }, 1);
        pipe.enter(at(10), train(1), 'a');
        pipe.enter(at(20), train(3), 'b');
        assert!(matches!(pipe.next(at(87)), Next::At(due) if due == at(88)));
        assert!(matches!(pipe.next(at(88)), Next::Due(_, 'a')));
        assert!(matches!(pipe.next(at(200)), Next::Due(train, 'b') if train.datagrams() == 3));
        assert!(matches!(pipe.next(at(200)), Next::Nothing));
        assert_eq!((pipe.bytes, pipe.counts().passed), (0, 4));
    }

    #[test]
    fn rate_spreads_datagrams_and_drops_the_excess() {
        let shape = Shape { rate: Some(1_000_000), queue_bytes: 5000, ..Shape::default() };
        let mut pipe = Pipe::new(&shape, 1);
        pipe.enter(at(0), train(3), ());
        pipe.enter(at(0), train(4), ());
        assert_eq!(pipe.counts().dropped, 2, "a queue of five");
        assert!(matches!(pipe.next(at(0)), Next::At(due) if due == at(3)));
        assert!(matches!(pipe.next(at(3)), Next::Due(..)));
        assert!(matches!(pipe.next(at(3)), Next::At(due) if due == at(5)));
        pipe.enter(at(100), train(1), ());
        assert_eq!(pipe.busy_until, at(101));
    }

    #[test]
    fn losses_match_the_rate_and_repeat() {
        let lost = |seed| {
            let mut pipe = Pipe::new(&Shape { loss_ppm: 10_000, ..Shape::default() }, seed);
            for _ in 0..10_000 {
                pipe.enter(at(0), train(10), ());
            }
            pipe.counts().lost
        };
        assert!((800..1200).contains(&lost(7)), "{}", lost(7));
        assert_eq!(lost(7), lost(7));
        assert_ne!(lost(7), lost(8));
    }

    #[test]
    fn datagrams_that_are_too_long_are_dropped() {
        let mut pipe = Pipe::new(&Shape { max_datagram: 999, ..Shape::default() }, 1);
        pipe.enter(at(0), train(2), ());
        pipe.enter(at(0), Train::new(vec![0; 999], 999, None), ());
        assert!(matches!(pipe.next(at(0)), Next::Due(train, ()) if train.bytes().len() == 999));
        assert_eq!(pipe.counts().dropped, 2);
    }

    #[test]
    fn simultaneous_datagrams_leave_together() {
        let mut pipe = Pipe::new(&Shape::default(), 1);
        for to in ['a', 'a', 'b'] {
            pipe.enter(at(1), train(1), to);
        }
        pipe.enter(at(2), train(1), 'b');
        let left: Vec<_> = std::iter::from_fn(|| match pipe.next(at(2)) {
            Next::Due(train, to) => Some((train.datagrams(), to)),
            _ => None,
        })
        .collect();
        assert_eq!((left, pipe.bytes), (vec![(2, 'a'), (1, 'b'), (1, 'b')], 0));
    }

    #[test]
    fn bytes_under_way_are_bounded() {
        let mut pipe = Pipe::new(&Shape { delay: Duration::from_secs(60), ..Shape::default() }, 1);
        let big = Train::new(vec![0; 60_000], 60_000, None);
        for _ in 0..10_000 {
            pipe.enter(at(0), big.clone(), ());
        }
        assert!(pipe.bytes < MAX_BYTES + 100_000 && pipe.counts().dropped > 1000);
    }
}
