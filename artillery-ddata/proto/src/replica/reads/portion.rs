//! The size limit of an answer with many entries.

/// The maximum number of entries of a page, even if a larger limit is requested.
pub(super) const PAGE_ENTRIES: usize = 1024;

/// The maximum number of keys visited for a page, including deleted ones.
pub(super) const PAGE_STEPS: usize = 16 * PAGE_ENTRIES;

/// The overhead of an entry in bytes: its lengths and its version in the header of the answer.
const ENTRY: usize = 64;

/// The space left in an answer. The answer ends before the first entry that doesn't fit. The first entry always fits: a
/// key and a value fit into a frame.
#[derive(Debug)]
pub(super) struct Portion {
    left: usize,
    is_empty: bool,
}

impl Portion {
    pub(super) fn new(bytes: usize) -> Self {
        Self { left: bytes, is_empty: true }
    }

    /// Adds an entry of `bytes` bytes, if it fits.
    pub(super) fn takes(&mut self, bytes: usize) -> bool {
        let fits = self.left.checked_sub(bytes.saturating_add(ENTRY));
        let takes = fits.is_some() || self.is_empty;
        if takes {
            self.left = fits.unwrap_or(0);
            self.is_empty = false;
        }
        takes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_in_front_of_an_entry_that_does_not_fit() {
        let mut portion = Portion::new(1000);
        assert!(portion.takes(500) && portion.takes(300));
        assert!(!portion.takes(100), "the entry's header is counted too");
        assert!(portion.takes(1000 - 800 - 3 * ENTRY));
        assert!(!portion.takes(0));
    }

    #[test]
    fn the_first_entry_always_fits() {
        let mut portion = Portion::new(0);
        assert!(portion.takes(usize::MAX));
        assert!(!portion.takes(0));
    }
}
