//! Budgets in bytes, which bound queues whose items differ in size.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    api::{Computed, CopyStep, DigestStep, GroupOutcome, Query, Reply, Write, bytes_of},
    message::request::Operation,
    store::Held,
};

/// Budgets count bytes in units of this size.
pub(crate) const UNIT: usize = 1 << 10;
/// The unit of a [fine](Budget::fine) budget, in bytes.
const FINE_UNIT: usize = 64;

/// The overhead of an item in a queue, in addition to its keys and values.
const OVERHEAD: usize = 256;
/// The overhead of each entry of an item (a key, record or step).
const ENTRY: usize = 64;
/// The overhead of a request on its stream, in addition to its keys and values.
const HEADER: usize = 64;

/// A number of bytes that the items of a queue share. An item larger than the budget takes all of it. Clones share one
/// budget.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    room: Arc<Semaphore>,
    unit: usize,
    units: u32,
    /// The larger budget that this one is a part of.
    whole: Option<Arc<Budget>>,
}

/// Bytes taken from a budget. Dropping the share returns them.
#[derive(Debug)]
#[must_use = "a share returns its bytes when it is dropped"]
pub(crate) struct Share {
    own: Option<OwnedSemaphorePermit>,
    /// Taken from the larger budget that the share's budget is a part of.
    whole: Option<OwnedSemaphorePermit>,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Self {
        Self::in_units(bytes, UNIT)
    }

    /// A budget with a small unit, for many small items: the usual unit would charge each at several times its size.
    pub(crate) fn fine(bytes: usize) -> Self {
        Self::in_units(bytes, FINE_UNIT)
    }

    fn in_units(bytes: usize, unit: usize) -> Self {
        let most = Semaphore::MAX_PERMITS.min(u32::MAX as usize);
        let units = bytes.div_ceil(unit).clamp(1, most);
        Self { room: Arc::new(Semaphore::new(units)), unit, units: units as u32, whole: None }
    }

    /// A budget of `bytes` bytes that is a part of this one: its shares are taken from both.
    pub(crate) fn part(&self, bytes: usize) -> Self {
        Self { whole: Some(Arc::new(self.clone())), ..Self::new(bytes) }
    }

    fn units(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(self.unit)).unwrap_or(u32::MAX).clamp(1, self.units)
    }

    /// The units of `whole` that an item takes. An item larger than this part takes only as much as this part's size,
    /// so that a single item doesn't block all other parts.
    fn of_whole(&self, whole: &Self, bytes: usize) -> u32 {
        self.units(bytes).min(whole.units)
    }

    /// Waits for capacity, in the order of the calls. Cancel-safe, but a cancelled call loses its place in that order.
    pub(crate) async fn take(&self, bytes: usize) -> Share {
        // Take from this part first: an item that waits for its own part blocks no other part.
        let Share { own, .. } = self.reserve(bytes).await;
        let whole = match &self.whole {
            Some(whole) => whole.room.clone().acquire_many_owned(self.of_whole(whole, bytes)).await.ok(),
            None => None,
        };
        Share { own, whole }
    }

    /// Waits for capacity in this budget alone. The larger budget is charged only when the share [is
    /// filled](Self::try_fill).
    pub(crate) async fn reserve(&self, bytes: usize) -> Share {
        // `ok`: the semaphore is never closed.
        Share { own: self.room.clone().acquire_many_owned(self.units(bytes)).await.ok(), whole: None }
    }

    pub(crate) fn try_take(&self, bytes: usize) -> Option<Share> {
        let own = self.room.clone().try_acquire_many_owned(self.units(bytes)).ok()?;
        let whole = match &self.whole {
            Some(whole) => Some(whole.room.clone().try_acquire_many_owned(self.of_whole(whole, bytes)).ok()?),
            None => None,
        };
        Some(Share { own: Some(own), whole })
    }

    /// Waits for capacity like [`reserve`](Self::reserve), and for one unit of the larger budget.
    pub(crate) async fn reserve_with_unit(&self, bytes: usize) -> Share {
        let Share { own, .. } = self.reserve(bytes).await;
        let whole = match &self.whole {
            Some(whole) => whole.room.clone().acquire_owned().await.ok(),
            None => None,
        };
        Share { own, whole }
    }

    /// Resizes a reserved share to `bytes` bytes, here and in the larger budget, and returns surplus bytes to the
    /// budgets. `false`: the bytes aren't available, and the share is unchanged.
    pub(crate) fn try_fill(&self, share: &mut Share, bytes: usize) -> bool {
        let more = |room: &Arc<Semaphore>, held: &Option<OwnedSemaphorePermit>, units: u32| {
            let held = held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits) as u32;
            match units.checked_sub(held).filter(|&more| more > 0) {
                Some(more) => room.clone().try_acquire_many_owned(more).map(Some),
                None => Ok(None),
            }
        };
        let Ok(own) = more(&self.room, &share.own, self.units(bytes)) else { return false };
        let whole = match &self.whole {
            Some(whole) => more(&whole.room, &share.whole, self.of_whole(whole, bytes)),
            None => Ok(None),
        };
        let Ok(whole) = whole else { return false };
        for (held, more) in [(&mut share.own, own), (&mut share.whole, whole)] {
            match (held, more) {
                (Some(held), Some(more)) => held.merge(more),
                (held, Some(more)) => *held = Some(more),
                (_, None) => {}
            }
        }
        share.keep(self.units(bytes));
        true
    }

    pub(crate) fn taken(&self) -> usize {
        (self.units as usize).saturating_sub(self.room.available_permits()) * self.unit
    }

    #[cfg(test)]
    pub(crate) fn left(&self) -> usize {
        self.room.available_permits() * self.unit
    }
}

impl Share {
    pub(crate) const fn none() -> Self {
        Self { own: None, whole: None }
    }

    pub(crate) const fn is_none(&self) -> bool {
        self.own.is_none()
    }

    /// Returns all but `bytes` to the budget, which must not be a [fine](Budget::fine) one.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        self.keep(u32::try_from(bytes.div_ceil(UNIT).max(1)).unwrap_or(u32::MAX));
    }

    fn keep(&mut self, units: u32) {
        let units = units as usize;
        for permit in [&mut self.own, &mut self.whole].into_iter().flatten() {
            drop(permit.split(permit.num_permits().saturating_sub(units)));
        }
    }
}

/// The size of an operation in a queue, in bytes.
pub(crate) fn of_operation(operation: &Operation) -> usize {
    match operation {
        Operation::Read { query, .. } => of_query(query),
        Operation::Write { write, .. } => of_write(write),
        Operation::Admin(_) => OVERHEAD,
    }
}

/// The bytes that a request takes on its stream.
pub(crate) fn on_the_wire(operation: &Operation) -> usize {
    of_operation(operation) - OVERHEAD + HEADER
}

pub(crate) fn of_query(query: &Query) -> usize {
    OVERHEAD
        + match query {
            Query::Key(key) => key.len(),
            Query::Keys(keys) => keys.iter().map(|key| ENTRY + key.len()).sum(),
            Query::Scan(scan) => scan.prefix.len() + scan.after.as_ref().map_or(0, |after| after.len()),
            Query::Changes(watch) => watch.prefix.len(),
            Query::Hashed(_) => 0,
            Query::Copy(CopyStep::Records { behind, .. }) => behind.as_ref().map_or(0, |key| key.len()),
            Query::Copy(_) => 0,
            Query::Digest(digest) => match &digest.step {
                DigestStep::Begin => digest.prefix.len(),
                DigestStep::Part { from, .. } => digest.prefix.len() + from.key.len(),
            },
        }
}

pub(crate) fn of_write(write: &Write) -> usize {
    let steps = ENTRY
        * match write {
            Write::Batch(steps) => steps.len(),
            Write::Script(script) => script.size(),
            _ => 0,
        };
    let pieces = write.keys().chain(write.values());
    OVERHEAD + steps + pieces.map(|piece| piece.len()).sum::<usize>()
}

/// The size of a reply in a queue, in bytes.
pub(crate) fn of_reply(reply: &Reply) -> usize {
    let held = |held: &Held| held.value.as_ref().map_or(0, |value| value.len());
    OVERHEAD
        + match reply {
            Reply::Committed(done) => match &done.result {
                Computed::Took(Some((_, value))) => value.len(),
                Computed::Ran(outcomes) => {
                    let of_group = |group: &GroupOutcome| ENTRY * (1 + group.as_ref().map_or(0, Vec::len));
                    bytes_of(outcomes) + outcomes.iter().map(of_group).sum::<usize>()
                }
                _ => 0,
            },
            Reply::Conflict { value, .. } => value.as_ref().map_or(0, |value| value.len()),
            Reply::Read(read) => read.held.as_ref().map_or(0, held),
            Reply::Cut(cut) => cut.found.iter().map(|found| ENTRY + found.as_ref().map_or(0, held)).sum(),
            Reply::Page(page) => page.records.iter().map(|record| ENTRY + record.key.len() + held(&record.held)).sum(),
            Reply::Changes(changes) => {
                changes.records.iter().map(|record| ENTRY + record.key.len() + held(&record.held)).sum()
            }
            Reply::Hashed(page) => page.keys.iter().map(|key| ENTRY + key.len()).sum(),
            Reply::Copied(part) => part.bytes(),
            Reply::Digest(part) => part.next.as_ref().map_or(0, |next| next.key.len()),
            Reply::Refused(_) | Reply::Expired => 0,
        }
}

/// The bytes of one kind of requests or answers that may be sent on a connection and not yet received. The kinds are
/// small reads, small writes, large requests and large answers. A kind that the peer doesn't read must leave a part of
/// the connection's window to the others.
pub(crate) const fn unreceived_bytes(transport: &artillery_core::config::TransportConfig) -> usize {
    transport.connection_window_bytes as usize / 4
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[tokio::test]
    async fn an_item_larger_than_the_budget_takes_all_of_it() {
        let budget = Budget::new(10_000);
        let small = budget.take(1).await;
        assert_eq!(budget.left(), 9 << 10);
        assert!(budget.try_take(usize::MAX).is_none());
        drop(small);
        let all = budget.take(usize::MAX).await;
        assert_eq!(budget.left(), 0);
        assert!(budget.try_take(0).is_none());
        drop(all);
        assert_eq!(budget.left(), 10 << 10);
    }

    #[tokio::test]
    async fn a_filled_share_returns_its_surplus() {
        let budget = Budget::new(100 << 10);
        let mut share = budget.reserve(64 << 10).await;
        assert!(budget.try_fill(&mut share, 3000));
        assert_eq!(budget.left(), 97 << 10);
        assert!(budget.try_fill(&mut share, 50_000), "more than was reserved, and it is available");
        assert_eq!(budget.left(), 51 << 10);
        assert!(budget.try_fill(&mut share, 200_000) && budget.left() == 0, "a larger item takes all");
        drop(share);
        assert_eq!(budget.left(), 100 << 10);
    }

    #[tokio::test]
    async fn a_part_takes_from_the_whole_and_leaves_room_for_others() {
        let whole = Budget::new(100 << 10);
        let (one, other) = (whole.part(25 << 10), whole.part(25 << 10));
        let all_of_one = one.take(20 << 10).await;
        assert!(one.try_take(10 << 10).is_none(), "the part is full");
        assert_eq!((one.left(), whole.left()), (5 << 10, 80 << 10));
        let mut reserved = other.reserve(10 << 10).await;
        assert_eq!(whole.left(), 80 << 10, "a reservation doesn't charge the whole yet");
        let most = whole.take(75 << 10).await;
        assert!(!other.try_fill(&mut reserved, 6 << 10), "the whole has too few bytes left");
        assert!(other.try_take(5 << 10).is_some());
        drop((all_of_one, most));
        assert!(other.try_fill(&mut reserved, 6 << 10));
        assert_eq!((other.left(), whole.left()), (19 << 10, 94 << 10));
        drop(reserved);
        // An item larger than a part takes all of the part, and the same number of bytes of the whole.
        let large = other.take(60 << 10).await;
        assert_eq!((other.left(), whole.left()), (0, 75 << 10));
        drop(large);
        assert_eq!((other.left(), whole.left()), (25 << 10, 100 << 10));
    }

    #[test]
    fn keys_and_values_count() {
        let (key, value) = (Bytes::from_static(b"key"), Bytes::from(vec![0; 1000]));
        assert_eq!(of_query(&Query::Keys(vec![key.clone(), key.clone()])), OVERHEAD + 2 * (ENTRY + 3));
        assert_eq!(of_write(&Write::put(key.clone(), value.clone())), OVERHEAD + 1003);
        let conflict = Reply::Conflict {
            at: crate::Version::NONE,
            step: 0,
            version: crate::Version::NONE,
            value: Some(value),
            replayed: false,
        };
        assert_eq!(of_reply(&conflict), OVERHEAD + 1000);
    }

    #[test]
    fn small_items_of_a_fine_budget_count_for_their_size() {
        let budget = Budget::fine(64 << 10);
        let taken: Vec<_> = std::iter::from_fn(|| budget.try_take(1000)).collect();
        assert_eq!((taken.len(), budget.taken()), (64, 64 << 10));
        drop(taken);
        assert!(budget.try_take(60_000).is_some_and(|_share| budget.left() < 6000));
    }
}
