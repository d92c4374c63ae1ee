//! Memory of versions that were replaced, for those that replace the next ones: it was looked at just now, and to free it
//! and get other memory takes longer.

use std::sync::Arc;

use super::versions::Versions;

/// So many are kept at most.
const MOST: usize = 64;

/// Versions without values, and without readers.
#[derive(Debug, Default)]
pub(super) struct Spares(Vec<Arc<Versions>>);

impl Spares {
    pub(super) fn make(&mut self, versions: Versions) -> Arc<Versions> {
        let Some(mut spare) = self.0.pop() else { return Arc::new(versions) };
        match Arc::get_mut(&mut spare) {
            Some(place) => {
                *place = versions;
                spare
            }
            None => Arc::new(versions),
        }
    }

    /// Takes what was replaced, unless somebody reads it still. Its values are freed at once.
    pub(super) fn keep(&mut self, mut replaced: Arc<Versions>) {
        let Some(versions) = Arc::get_mut(&mut replaced) else { return };
        let before = versions.clear();
        if self.0.len() < MOST {
            self.0.push(replaced);
        }
        if let Some(before) = before {
            self.keep(before);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        Version,
        store::{Held, memory::slot::SlotId},
    };

    fn versions(value: &Bytes) -> Versions {
        Versions::new(SlotId::new(), Held { version: Version::new(1, 1), value: Some(value.clone()) })
    }

    #[test]
    fn values_are_freed_and_their_places_used_again() {
        let value = Bytes::from(vec![7; 100]);
        let mut spares = Spares::default();
        let first = spares.make(versions(&value));
        let second = Arc::new(first.with(Held { version: Version::new(1, 2), value: Some(value.clone()) }));
        drop(first);
        spares.keep(second);
        assert!(value.is_unique());
        assert_eq!(spares.0.len(), 2, "the older one too");
        assert_eq!(spares.make(versions(&value)).bytes(), 100);
        assert_eq!(spares.0.len(), 1);
    }

    #[test]
    fn what_is_read_is_left_alone() {
        let value = Bytes::from(vec![7; 100]);
        let mut spares = Spares::default();
        let read = Arc::new(versions(&value));
        spares.keep(read.clone());
        assert_eq!(read.newest().value, Some(value));
        assert_eq!(spares.0.len(), 0);
    }

    #[test]
    fn no_more_are_kept_than_are_needed() {
        let mut spares = Spares::default();
        let value = Bytes::from_static(b"value");
        (0..2 * MOST).for_each(|_| spares.keep(Arc::new(versions(&value))));
        assert_eq!(spares.0.len(), MOST);
    }
}
