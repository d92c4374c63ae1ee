//! What an operator's recovery commands need of a node that has a configuration log.

use std::sync::Arc;

use crate::{
    control::{ConfigLog, Configs, embedded::LogHandle},
    driver::control::ControlCalls,
};

/// Access to the log and to the other nodes.
pub(crate) struct RecoveryAccess {
    pub(super) seat: LogHandle,
    pub(super) calls: Arc<ControlCalls>,
    /// Held by the operator's command under way: one at a time.
    turn: tokio::sync::Mutex<()>,
}

impl RecoveryAccess {
    pub(super) fn new(seat: LogHandle, calls: Arc<ControlCalls>) -> Self {
        Self { seat, calls, turn: tokio::sync::Mutex::default() }
    }

    /// Waits until no other operator's command is under way.
    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// The newest configuration that this node knows.
    pub(super) fn configs(&self, acted: &Arc<Configs>) -> Arc<Configs> {
        let logged = self.seat.configs();
        if logged.applied() > acted.applied() { logged } else { acted.clone() }
    }
}
