//! Buffers foca's effects until the state machine performs them.

use std::{collections::BTreeMap, time::Duration};

use foca::{Notification, Timer};

use super::identity::SwimIdentity;
use crate::Timestamp;

#[derive(Debug, Default)]
pub(super) struct Effects {
    pub(super) packets: Vec<(SwimIdentity, Vec<u8>)>,
    pub(super) timers: Vec<(Duration, Timer<SwimIdentity>)>,
    /// Whether this node was declared down and has returned under a renewed identity.
    pub(super) rejoined: bool,
}

impl foca::Runtime<SwimIdentity> for Effects {
    fn notify(&mut self, notification: Notification<'_, SwimIdentity>) {
        // All other state is read from foca.
        self.rejoined |= matches!(notification, Notification::Rejoin(_));
    }

    fn send_to(&mut self, to: SwimIdentity, data: &[u8]) {
        self.packets.push((to, data.to_vec()));
    }

    fn submit_after(&mut self, timer: Timer<SwimIdentity>, after: Duration) {
        self.timers.push((after, timer));
    }
}

/// Timers by due time. Timers with the same due time keep the order of insertion.
#[derive(Debug, Default)]
pub(super) struct Timers {
    due: BTreeMap<(Timestamp, u64), Timer<SwimIdentity>>,
    made: u64,
}

impl Timers {
    pub(super) fn insert(&mut self, at: Timestamp, timer: Timer<SwimIdentity>) {
        self.made += 1;
        self.due.insert((at, self.made), timer);
    }

    pub(super) fn next(&self) -> Option<Timestamp> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn pop(&mut self, now: Timestamp) -> Option<Timer<SwimIdentity>> {
        let first = self.due.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(first.remove())
    }

    pub(super) fn delay(&mut self, time: Duration) {
        self.due =
            std::mem::take(&mut self.due).into_iter().map(|((at, made), timer)| ((at + time, made), timer)).collect();
    }

    pub(super) fn clear(&mut self) {
        self.due.clear();
    }
}
