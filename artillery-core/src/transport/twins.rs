//! Another process with this node's own name: which of the two must stop.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::id::MemberId;

/// A process that has been up or connected to other nodes for this long may keep its name against a second process: see
/// [`NameClaim`].
const SETTLED_AFTER: Duration = Duration::from_secs(10);

const TWIN_WARNING_PERIOD: Duration = Duration::from_secs(60);

/// The state that decides whether this process stops when its name is used by another process.
#[derive(Debug, Clone, Copy)]
pub(super) struct NameClaim {
    /// Time since the endpoint was opened.
    up: Duration,
    is_formed: bool,
    /// The age of its oldest open connection to another node.
    oldest: Option<Duration>,
}

impl NameClaim {
    /// Whether this process must stop because a third node is connected to the other process of this name. A process
    /// that has been connected to other nodes for a long time continues: the third node met the two in the wrong order.
    pub(super) fn yields_to_peer(self) -> bool {
        self.oldest.is_none_or(|age| age < SETTLED_AFTER)
    }

    /// Whether this process must stop because it has itself dialled the other process of this name.
    pub(super) fn yields_to_twin(self) -> bool {
        !self.is_formed || self.up < SETTLED_AFTER
    }
}

/// The processes with this node's name that this endpoint has refused.
#[derive(Debug)]
pub(super) struct Twins {
    begun: Instant,
    /// The process refused last. A refused process normally stops, so remembering one suffices.
    refused: Mutex<Option<MemberId>>,
    warned: Mutex<Option<Instant>>,
}

impl Twins {
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), refused: Mutex::default(), warned: Mutex::default() }
    }

    /// The claim of this process to its name. `oldest`: the age of its oldest open connection to another node.
    pub(super) fn claim(&self, is_formed: bool, oldest: Option<Duration>) -> NameClaim {
        NameClaim { up: self.begun.elapsed(), is_formed, oldest }
    }

    pub(super) fn on_refused(&self, twin: MemberId) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(twin);
    }

    /// Whether to log a warning. A process that restarts repeatedly must not fill the log.
    pub(super) fn should_warn(&self, now: Instant) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = warned.is_none_or(|last| now - last >= TWIN_WARNING_PERIOD);
        if is_due {
            *warned = Some(now);
        }
        is_due
    }

    pub(super) fn has_refused(&self, twin: MemberId) -> bool {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) == Some(twin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_others_know_keeps_its_name() {
        let ms = Duration::from_millis;
        let claim = |oldest| NameClaim { up: ms(60_000), is_formed: true, oldest };
        assert!(claim(None).yields_to_peer());
        assert!(claim(Some(ms(9_999))).yields_to_peer());
        assert!(!claim(Some(ms(10_000))).yields_to_peer());
    }

    #[test]
    fn a_formed_process_keeps_its_name_against_one_that_it_dials() {
        let claim = |up, is_formed| NameClaim { up: Duration::from_secs(up), is_formed, oldest: None };
        assert!(claim(60, false).yields_to_twin());
        assert!(claim(9, true).yields_to_twin());
        assert!(!claim(10, true).yields_to_twin());
    }

    #[test]
    fn a_namesake_that_restarts_again_and_again_is_warned_of_once_a_minute() {
        let (twins, now) = (Twins::new(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        let due = [0, 1, 59, 60, 61].map(|seconds| twins.should_warn(at(seconds)));
        assert_eq!(due, [true, false, false, true, false]);
    }
}
