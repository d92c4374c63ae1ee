//! The identity of an endpoint and the certificates it trusts. Both may change at run time.

use std::sync::{Arc, PoisonError, RwLock};

use super::reset::ResetKey;
use crate::identity::Identity;

pub(super) struct Security {
    now: RwLock<SecurityState>,
    /// The same object for the lifetime of the endpoint.
    resets: Arc<ResetKey>,
}

struct SecurityState {
    identity: Identity,
    dial: quinn::ClientConfig,
    changes: u64,
}

impl Security {
    pub(super) fn new(identity: Identity, dial: quinn::ClientConfig, resets: Arc<ResetKey>) -> Self {
        Self { now: RwLock::new(SecurityState { identity, dial, changes: 0 }), resets }
    }

    pub(super) fn dial(&self) -> quinn::ClientConfig {
        self.now.read().unwrap_or_else(PoisonError::into_inner).dial.clone()
    }

    pub(super) fn identity(&self) -> Identity {
        self.now.read().unwrap_or_else(PoisonError::into_inner).identity.clone()
    }

    pub(super) fn changes(&self) -> u64 {
        self.now.read().unwrap_or_else(PoisonError::into_inner).changes
    }

    pub(super) fn set(&self, identity: Identity, dial: quinn::ClientConfig) {
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        self.resets.follow(&identity);
        *now = SecurityState { identity, dial, changes: now.changes + 1 };
    }
}
