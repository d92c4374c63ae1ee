//! Whom an endpoint trusts and as whom it appears, which may change while it runs.

use std::sync::{PoisonError, RwLock};

use super::{
    CloseCode, Connection,
    endpoint::{Carrier, Endpoint, Shared},
    quic,
};
use crate::{error::IdentityError, identity::Identity};

/// The identity of an endpoint, and how it dials with it.
pub(super) struct Security {
    now: RwLock<(Identity, quinn::ClientConfig)>,
}

impl Security {
    pub(super) fn new(identity: Identity, dial: quinn::ClientConfig) -> Self {
        Self { now: RwLock::new((identity, dial)) }
    }

    pub(super) fn dial(&self) -> quinn::ClientConfig {
        self.now.read().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    fn identity(&self) -> Identity {
        self.now.read().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    fn set(&self, identity: Identity, dial: quinn::ClientConfig) {
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = (identity, dial);
    }
}

impl Shared {
    /// Whether the peer of a connection is trusted still: asked after the connection has been registered, so that it is
    /// met by this or by [`Endpoint::set_identity`], however the two fall together.
    pub(super) fn trusts(&self, connection: &Connection) -> bool {
        match &self.carrier {
            Carrier::Quic(_, security) => connection.is_trusted_by(&security.identity()),
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
    /// each step when all nodes have done the one before.
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
