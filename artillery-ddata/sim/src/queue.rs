//! The event queue of a world, ordered by time and, for equal times, by insertion.

use std::{cmp::Reverse, collections::BinaryHeap};

/// Future events.
#[derive(Debug)]
pub struct Queue<T> {
    /// Time, insertion number, and index in `events`.
    order: BinaryHeap<Reverse<(u64, u64, usize)>>,
    /// Stored outside of the heap: events are large, and the heap moves its entries often.
    events: Vec<Option<T>>,
    free: Vec<usize>,
    inserted: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { order: BinaryHeap::new(), events: Vec::new(), free: Vec::new(), inserted: 0 }
    }
}

impl<T> Queue<T> {
    /// Schedules `event` for the time `at`.
    pub fn push(&mut self, at: u64, event: T) {
        self.inserted += 1;
        let place = self.free.pop().unwrap_or(self.events.len());
        if place == self.events.len() {
            self.events.push(Some(event));
        } else {
            self.events[place] = Some(event);
        }
        self.order.push(Reverse((at, self.inserted, place)));
    }

    /// Removes and returns the next event and its time.
    pub fn pop(&mut self) -> Option<(u64, T)> {
        let Reverse((at, _, place)) = self.order.pop()?;
        self.free.push(place);
        self.events[place].take().map(|event| (at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_first_then_insertion() {
        let mut queue = Queue::default();
        for (at, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (3, 'b'), (5, 'e')] {
            queue.push(at, event);
        }
        let order: String = std::iter::from_fn(|| queue.pop()).map(|(_, event)| event).collect();
        assert_eq!(order, "abcde");
    }
}
