//! Conditional removal at the ends of a queue. The standard library has it since Rust 1.93.

use std::collections::VecDeque;

pub(super) trait Ends<T> {
    /// Removes the first element if it passes the test.
    fn take_front_if(&mut self, passes: impl FnOnce(&T) -> bool) -> Option<T>;

    /// Removes the last element if it passes the test.
    fn take_back_if(&mut self, passes: impl FnOnce(&T) -> bool) -> Option<T>;
}

impl<T> Ends<T> for VecDeque<T> {
    fn take_front_if(&mut self, passes: impl FnOnce(&T) -> bool) -> Option<T> {
        self.front().is_some_and(passes).then(|| self.pop_front())?
    }

    fn take_back_if(&mut self, passes: impl FnOnce(&T) -> bool) -> Option<T> {
        self.back().is_some_and(passes).then(|| self.pop_back())?
    }
}
