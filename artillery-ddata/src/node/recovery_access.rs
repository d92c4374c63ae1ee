//! What an operator's orders need of a node that has a configuration log.

use std::sync::Arc;

use crate::{
    control::{ConfigLog, Configs, embedded::LogHandle},
    driver::control::ControlCalls,
};

/// What a recovery needs.
pub(crate) struct RecoveryAccess {
    pub(super) seat: LogHandle,
    pub(super) calls: Arc<ControlCalls>,
    /// One at a time.
    turn: tokio::sync::Mutex<()>,
}

impl RecoveryAccess {
    pub(super) fn new(seat: LogHandle, calls: Arc<ControlCalls>) -> Self {
        Self { seat, calls, turn: tokio::sync::Mutex::default() }
    }

    /// Waits until no other order of an operator is under way.
    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// The newest that this node knows of the configuration.
    pub(super) fn configs(&self, acted: &Arc<Configs>) -> Arc<Configs> {
        let logged = self.seat.configs();
        if logged.applied() > acted.applied() { logged } else { acted.clone() }
    }
}
