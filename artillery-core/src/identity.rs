//! Identities of nodes: a name, and a certificate that binds connections to the name.
//!
//! Every connection uses mutual TLS 1.3. The certificate of either side contains its node name, and the name determines
//! the [`NodeId`]. A peer that claims another id in its hello is refused.

mod name;
mod pem;
mod secret;
mod tls;

use std::{fmt, fmt::Write, sync::Arc};

use rand::RngExt;
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};

use crate::{error::IdentityError, id::NodeId};

pub(crate) use tls::{TlsConfigs, name_of};

/// Minimum length of a secret in bytes.
pub const MIN_SECRET: usize = 16;

/// Maximum length of a node name in characters.
pub const MAX_NAME: usize = 63;

/// A node's name, the certificate and key that prove it, and the authorities that the node trusts.
#[derive(Clone)]
pub struct Identity {
    inner: Arc<IdentityInner>,
}

#[derive(Clone)]
struct IdentityInner {
    name: String,
    /// The node's own certificate, followed by the intermediate ones.
    chain: Vec<CertificateDer<'static>>,
    /// PKCS#8.
    key: Vec<u8>,
    roots: Vec<CertificateDer<'static>>,
    seed: [u8; 32],
}

impl Identity {
    /// The identity of the node `name` in the cluster that shares `secret`.
    ///
    /// A holder of the secret can create an identity with any name: the secret keeps outsiders out, but does not
    /// distinguish members. Use [`Identity::from_pem`] where that matters. The secret is not stretched, so use a random
    /// one.
    ///
    /// # Errors
    /// [`IdentityError::SecretTooShort`] below [`MIN_SECRET`] bytes, [`IdentityError::BadName`].
    pub fn from_secret(secret: &[u8], name: &str) -> Result<Self, IdentityError> {
        name::check(name)?;
        let authority = secret::Authority::from_secret(secret)?;
        let leaf = authority.leaf(name)?;
        let seed = authority.stable_seed(name)?;
        let inner = IdentityInner {
            name: name.to_owned(),
            chain: vec![leaf.cert],
            key: leaf.key,
            roots: vec![authority.cert],
            seed,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The identity of a client, with a random name.
    ///
    /// # Errors
    /// [`IdentityError::SecretTooShort`].
    #[allow(clippy::disallowed_methods, reason = "the name only has to be unique")]
    pub fn client_from_secret(secret: &[u8]) -> Result<Self, IdentityError> {
        let mut name = String::from("client-");
        let _ = write!(name, "{:032x}", rand::rng().random::<u128>());
        Self::from_secret(secret, &name)
    }

    /// An identity from PEM certificates: `ca` signs the trusted peers; `cert` (a chain, leaf first) and `key` (PKCS#8)
    /// are this node's own. The node name is the first DNS name among the leaf's subject alternative names. Extended
    /// key usages, if present, must allow both server and client.
    ///
    /// # Errors
    /// [`IdentityError::BadPem`], [`IdentityError::NoNodeName`], [`IdentityError::BadName`],
    /// [`IdentityError::Unusable`].
    pub fn from_pem(ca: &[u8], cert: &[u8], key: &[u8]) -> Result<Self, IdentityError> {
        let roots = pem::certificates("certificate authority", ca)?;
        let chain = pem::certificates("certificate", cert)?;
        let key = pem::private_key(key)?;
        let name = name_of(&chain[0])?;
        let seed = Sha256::new().chain_update(b"artillery node seed\0").chain_update(&key).finalize().into();
        let identity = Self { inner: Arc::new(IdentityInner { name, chain, key, roots, seed }) };
        // Detects a key that does not match the certificate now, instead of when the first peer connects.
        identity.tls()?;
        Ok(identity)
    }

    /// Additionally trusts holders of `secret`. This allows replacing a secret without downtime: first let all nodes
    /// trust both secrets, then give each node an identity of the new secret that also trusts the old one, then drop
    /// the old one.
    ///
    /// # Errors
    /// [`IdentityError::SecretTooShort`].
    pub fn also_trust_secret(mut self, secret: &[u8]) -> Result<Self, IdentityError> {
        let authority = secret::Authority::from_secret(secret)?;
        Arc::make_mut(&mut self.inner).roots.push(authority.cert);
        Ok(self)
    }

    /// Additionally trusts certificates signed by `ca` (PEM).
    ///
    /// # Errors
    /// [`IdentityError::BadPem`], [`IdentityError::Unusable`].
    pub fn also_trust_pem(mut self, ca: &[u8]) -> Result<Self, IdentityError> {
        let roots = pem::certificates("certificate authority", ca)?;
        Arc::make_mut(&mut self.inner).roots.extend(roots);
        self.tls()?;
        Ok(self)
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The node's id, derived from its name.
    pub fn node(&self) -> NodeId {
        NodeId::from_name(&self.inner.name)
    }

    pub(crate) fn tls(&self) -> Result<TlsConfigs, IdentityError> {
        tls::configs(&self.inner)
    }

    /// Whether this chain of certificates, leaf first, leads to one of the roots and is valid now.
    pub(crate) fn trusts(&self, chain: &[CertificateDer<'_>]) -> bool {
        tls::trusts(&self.inner, chain)
    }

    /// A client that trusts the cluster and presents no certificate.
    #[cfg(test)]
    pub(crate) fn anonymous(&self) -> rustls::ClientConfig {
        tls::anonymous(&self.inner)
    }

    /// A secret of this node that outlives its process. It lets a restarted node reset its former connections at once.
    pub(crate) fn seed(&self) -> &[u8; 32] {
        &self.inner.seed
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"0123456789abcdef";

    #[test]
    fn the_certificate_carries_the_name() {
        for name in ["a", "7", "a..b", "-", &"x".repeat(63)] {
            let identity = Identity::from_secret(SECRET, name).unwrap();
            assert_eq!(name_of(&identity.inner.chain[0]).unwrap(), name);
            assert!(identity.tls().is_ok());
        }
    }

    #[test]
    fn clients_differ() {
        let client = || Identity::client_from_secret(SECRET).unwrap();
        assert_ne!(client().name(), client().name());
    }

    #[test]
    fn nothing_secret_is_printed() {
        let printed = format!("{:?}", Identity::from_secret(SECRET, "a").unwrap());
        assert_eq!(printed, r#"Identity { name: "a", .. }"#);
    }

    #[test]
    fn bad_identity_input_is_named() {
        assert!(matches!(Identity::from_secret(SECRET, "A"), Err(IdentityError::BadName { .. })));
        assert!(matches!(
            Identity::from_pem(b"", b"", b""),
            Err(IdentityError::BadPem { what: "certificate authority", .. })
        ));
    }
}
