//! How much an answer of many entries holds.

/// What an entry takes beside its key and its value, at least: its lengths and its version, in the header of the answer.
const ENTRY: usize = 64;

/// An answer that is being put together ends in front of the entry for which there is no room. The first one always has
/// room: a key and a value fit into a frame.
#[derive(Debug)]
pub(super) struct Portion {
    left: usize,
    is_empty: bool,
}

impl Portion {
    /// Of so many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Self { left: bytes, is_empty: true }
    }

    /// Takes an entry of so many bytes in, if there is room for it.
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
    fn it_ends_in_front_of_what_is_too_much() {
        let mut portion = Portion::new(1000);
        assert!(portion.takes(500) && portion.takes(300));
        assert!(!portion.takes(100), "its place in the header counts too");
        assert!(portion.takes(1000 - 800 - 3 * ENTRY));
        assert!(!portion.takes(0));
    }

    #[test]
    fn the_first_one_has_room_whatever_its_size() {
        let mut portion = Portion::new(0);
        assert!(portion.takes(usize::MAX));
        assert!(!portion.takes(0));
    }
}
