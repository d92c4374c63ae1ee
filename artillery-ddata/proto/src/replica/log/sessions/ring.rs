use std::collections::VecDeque;

use crate::replica::ends::Ends as _;

/// Capacity up to this size is not released.
const KEPT_CAPACITY: usize = 16;

/// Entries in the order of their request numbers. A client numbers its requests consecutively, so a new entry is
/// usually the last one, and the lowest entries are removed together.
#[derive(Clone, Hash, Debug)]
pub(super) struct Ring<T>(VecDeque<(u64, T)>);

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Ring<T> {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn find(&self, number: u64) -> Result<usize, usize> {
        match self.0.back() {
            Some((last, _)) if *last >= number => self.0.binary_search_by_key(&number, |(number, _)| *number),
            _ => Err(self.0.len()),
        }
    }

    pub(super) fn get(&self, number: u64) -> Option<&T> {
        let (_, entry) = self.0.get(self.find(number).ok()?)?;
        Some(entry)
    }

    pub(super) fn insert(&mut self, number: u64, entry: T) -> Option<T> {
        match self.find(number) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, entry)),
            Err(at) => {
                self.0.insert(at, (number, entry));
                None
            }
        }
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let at = self.find(number).ok()?;
        let (_, entry) = self.0.remove(at)?;
        self.free();
        Some(entry)
    }

    /// Removes the lowest entry, if its number is below `lowest`.
    pub(super) fn pop_below(&mut self, lowest: u64) -> Option<T> {
        let (_, entry) = self.0.take_front_if(|(number, _)| *number < lowest)?;
        self.free();
        Some(entry)
    }

    /// Releases unused capacity. Only entries are counted as bytes, so a client must not retain the capacity of its
    /// peak.
    fn free(&mut self) {
        let (len, capacity) = (self.0.len(), self.0.capacity());
        if capacity > KEPT_CAPACITY && len < capacity / 4 {
            self.0.shrink_to(capacity / 2);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.0.iter().map(|(number, entry)| (*number, entry))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn memory_goes_with_the_entries() {
        let mut ring = Ring::default();
        (0..40_000).for_each(|number| drop(ring.insert(number, String::new())));
        while ring.pop_below(39_999).is_some() {}
        assert!(ring.0.capacity() <= 2 * KEPT_CAPACITY, "{}", ring.0.capacity());
        (40_000..80_000).for_each(|number| drop(ring.insert(number, String::new())));
        (0..79_999).for_each(|number| drop(ring.remove(number)));
        assert!(ring.0.capacity() <= 2 * KEPT_CAPACITY, "{}", ring.0.capacity());
    }

    proptest! {
        #[test]
        fn it_holds_what_a_map_would(steps in prop::collection::vec((0u8..6, 0u64..20), 0..80)) {
            let (mut ring, mut map) = (Ring::default(), BTreeMap::new());
            for (at, (what, number)) in steps.into_iter().enumerate() {
                match what {
                    0 => prop_assert_eq!(ring.remove(number), map.remove(&number)),
                    1 => {
                        while let Some(gone) = ring.pop_below(number) {
                            prop_assert_eq!(Some((gone, true)), map.pop_first().map(|(first, gone)| (gone, first < number)));
                        }
                        prop_assert!(map.keys().all(|&kept| kept >= number));
                    }
                    _ => {
                        prop_assert_eq!(ring.insert(number, at), map.insert(number, at));
                    }
                }
                prop_assert_eq!(ring.get(number), map.get(&number));
                prop_assert_eq!((ring.len(), ring.is_empty()), (map.len(), map.is_empty()));
                prop_assert!(ring.iter().eq(map.iter().map(|(&number, entry)| (number, entry))));
            }
        }
    }
}
