//! Who a node is: a name, and a certificate that binds it to the node's connections.

use std::{fmt, sync::Arc};

use crate::{error::IdentityError, id::NodeId};

/// The shortest secret that is taken, in bytes.
pub const MIN_SECRET: usize = 16;

/// The longest node name, in characters.
pub const MAX_NAME: usize = 63;

/// A node's name with the means to prove it, and those that it trusts.
#[derive(Clone)]
pub struct Identity {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
}

impl Identity {
    /// The identity of the node `name` in the cluster that shares `secret`.
    ///
    /// Whoever holds the secret can make an identity of any name: it keeps outsiders out, not members apart. Where
    /// that matters, use [`Identity::from_pem`]. The secret is not stretched: take a random one.
    ///
    /// # Errors
    /// [`IdentityError::SecretTooShort`] below [`MIN_SECRET`] bytes, [`IdentityError::BadName`].
    pub fn from_secret(secret: &[u8], name: &str) -> Result<Self, IdentityError> {
        let _ = secret;
        Ok(Self { inner: Arc::new(Inner { name: name.to_owned() }) })
    }

    /// An identity for a client: the name is random.
    ///
    /// # Errors
    /// [`IdentityError::SecretTooShort`].
    pub fn client_from_secret(secret: &[u8]) -> Result<Self, IdentityError> {
        Self::from_secret(secret, "client-todo")
    }

    /// An identity from given certificates: `ca` signs whoever is trusted, `cert` (a chain, leaf first) and `key`
    /// (PKCS#8) are this node's own. Its name is the first DNS name among the leaf's subject alternative names.
    ///
    /// # Errors
    /// [`IdentityError::BadPem`], [`IdentityError::NoNodeName`], [`IdentityError::BadName`],
    /// [`IdentityError::Unusable`].
    pub fn from_pem(ca: &[u8], cert: &[u8], key: &[u8]) -> Result<Self, IdentityError> {
        let _ = (ca, cert, key);
        todo!()
    }

    /// The same identity, which also trusts whoever holds `secret`: for replacing a secret without a stop.
    ///
    /// # Errors
    /// [`IdentityError::SecretTooShort`].
    pub fn also_trust_secret(self, secret: &[u8]) -> Result<Self, IdentityError> {
        let _ = secret;
        Ok(self)
    }

    /// The same identity, which also trusts whoever `ca` (PEM) has signed.
    ///
    /// # Errors
    /// [`IdentityError::BadPem`].
    pub fn also_trust_pem(self, ca: &[u8]) -> Result<Self, IdentityError> {
        let _ = ca;
        Ok(self)
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The node's id, which is derived from its name.
    pub fn node(&self) -> NodeId {
        NodeId::from_name(&self.inner.name)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("name", &self.inner.name).finish_non_exhaustive()
    }
}
