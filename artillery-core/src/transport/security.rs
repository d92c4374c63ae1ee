//! Whom an endpoint trusts and as whom it appears, which may change while it runs.

use std::sync::{Arc, PoisonError, RwLock};

use super::{
    CloseCode, Connection,
    endpoint::{Carrier, Endpoint, Shared},
    quic,
    reset::ResetKey,
};
use crate::{error::IdentityError, identity::Identity};

/// The identity of an endpoint, and how it dials with it.
pub(super) struct Security {
    now: RwLock<Now>,
    /// The endpoint's own for as long as it lives.
    resets: Arc<ResetKey>,
}

struct Now {
    identity: Identity,
    dial: quinn::ClientConfig,
    /// How often it was replaced.
    changes: u64,
}

impl Security {
    pub(super) fn new(identity: Identity, dial: quinn::ClientConfig, resets: Arc<ResetKey>) -> Self {
        Self { now: RwLock::new(Now { identity, dial, changes: 0 }), resets }
    }

    pub(super) fn dial(&self) -> quinn::ClientConfig {
        self.now.read().unwrap_or_else(PoisonError::into_inner).dial.clone()
    }

    fn identity(&self) -> Identity {
        self.now.read().unwrap_or_else(PoisonError::into_inner).identity.clone()
    }

    fn changes(&self) -> u64 {
        self.now.read().unwrap_or_else(PoisonError::into_inner).changes
    }

    fn set(&self, identity: Identity, dial: quinn::ClientConfig) {
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        self.resets.follow(&identity);
        *now = Now { identity, dial, changes: now.changes + 1 };
    }
}

impl Shared {
    /// How often this endpoint's identity was replaced: to be asked before a handshake, for [`trusts`](Self::trusts).
    pub(super) fn identity_changes(&self) -> u64 {
        match &self.carrier {
            Carrier::Quic(_, security) => security.changes(),
            #[cfg(feature = "testing")]
            Carrier::Simulated(_) => 0,
        }
    }

    /// Whether the peer of a connection is trusted still, which the handshake has found unless the identity was replaced
    /// since. Asked after the connection has been registered, so that it is met by this or by [`Endpoint::set_identity`],
    /// however the two fall together.
    pub(super) fn trusts(&self, connection: &Connection, changes_before: u64) -> bool {
        match &self.carrier {
            Carrier::Quic(_, security) => {
                security.changes() == changes_before || connection.is_trusted_by(&security.identity())
            }
            #[cfg(feature = "testing")]
            Carrier::Simulated(_) => true,
        }
    }
}

impl Endpoint {
    /// From now on appears as, and trusts whom, `identity` says. Connections whose peers it doesn't trust are closed, and
    /// made anew by those who need them; all others stay as they are. Nothing changes on a network in this process.
    ///
    /// To replace a secret while all goes on, have every node trust both
    /// ([`Identity::also_trust_secret`]), then appear by the new one while it trusts both, then forget the old one; begin
    /// each step when all nodes have done the one before. What lets a peer believe that this node has forgotten a
    /// connection (a stateless reset of QUIC) comes from the secret by which it appears, so it is replaced in the second step.
    ///
    /// # Errors
    /// [`IdentityError::OtherName`], [`IdentityError::Unusable`]: nothing has changed.
    pub fn set_identity(&self, identity: Identity) -> Result<(), IdentityError> {
        let shared = self.shared();
        let (quinn, security) = match &shared.carrier {
            Carrier::Quic(quinn, security) => (quinn, security),
            #[cfg(feature = "testing")]
            Carrier::Simulated(_) => return Ok(()),
        };
        let before = security.identity();
        if identity.name() != before.name() {
            return Err(IdentityError::OtherName { here: before.name().into(), given: identity.name().into() });
        }
        let (accept, dial) = quic::sides(&shared.config, &identity)?;
        quinn.set_server_config(Some(accept));
        security.set(identity.clone(), dial);
        for connection in shared.registry.all() {
            if !connection.is_trusted_by(&identity) {
                tracing::info!(peer = %connection.peer().name, "a connection is closed: its certificate isn't trusted any more");
                connection.close(CloseCode::REPLACED, "the certificate shown isn't trusted any more");
            }
        }
        Ok(())
    }
}
