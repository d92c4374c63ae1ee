//! The configurations by which the chains of this node have begun to act, until the tracker takes them. The node's state has only
//! the newest one: a member that is moved out and returns between two looks at it would not be seen.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use crate::control::Configs;

/// The most configurations that wait for the tracker.
const MAX_WAITING: usize = 32;

/// A bounded queue of configurations, oldest first. Its last one is always the newest.
#[derive(Debug, Default)]
pub(crate) struct ConfigFeed(Mutex<VecDeque<Arc<Configs>>>);

impl ConfigFeed {
    /// Adds a newer one. In a full queue it replaces the last: the tracker then compares it with the one before the gap.
    pub(crate) fn add(&self, configs: &Arc<Configs>) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.truncate(MAX_WAITING - 1);
        waiting.push_back(configs.clone());
    }

    /// All that were added since the last call.
    pub(crate) fn take(&self) -> VecDeque<Arc<Configs>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
