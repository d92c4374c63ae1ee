use std::sync::{PoisonError, RwLock};

use hkdf::hmac::{Hmac, KeyInit, Mac};
use quinn::crypto::{CryptoError, HmacKey};
use sha2::Sha256;

use crate::identity::Identity;

/// Signs stateless resets, with a key derived from the endpoint's identity.
///
/// The key is the same in every incarnation of a node with the same secret, or the same private key. So a restarted
/// node answers packets of its former connections with resets that the peers believe, which spares them the wait for
/// the idle timeout.
///
/// A reset token alone ends a connection, and a holder of the key can compute the token of every connection id. So the
/// key is derived from the secret of the *presented* certificate, and replaced together with it: the replaced secret
/// does not suffice to compute any token issued afterwards. While both secrets are trusted, nodes that have replaced
/// theirs already use the new key.
///
/// Peers keep tokens of the old key until the connections end to which the tokens belong. Such a connection uses the
/// old certificate, so the peer closes it no later than when it stops trusting the old secret
/// ([`Endpoint::set_identity`](super::Endpoint::set_identity)). A node that restarts before that can't reset such a
/// connection: its key is the new one. The peer then notices missing acknowledgements instead.
pub(super) struct ResetKey {
    seed: RwLock<[u8; 32]>,
}

impl ResetKey {
    pub(super) fn of(identity: &Identity) -> Self {
        Self { seed: RwLock::new(*identity.seed()) }
    }

    /// From now on, signs with the key of `identity`.
    pub(super) fn follow(&self, identity: &Identity) {
        *self.seed.write().unwrap_or_else(PoisonError::into_inner) = *identity.seed();
    }

    fn mac(&self, data: &[u8]) -> Hmac<Sha256> {
        // HMAC pads shorter keys with zeros to the hash's block size of 64 bytes.
        let mut key = [0; 64];
        key[..32].copy_from_slice(&*self.seed.read().unwrap_or_else(PoisonError::into_inner));
        let mut mac = Hmac::<Sha256>::new(&key.into());
        mac.update(data);
        mac
    }
}

impl HmacKey for ResetKey {
    fn sign(&self, data: &[u8], signature_out: &mut [u8]) {
        signature_out.copy_from_slice(&self.mac(data).finalize().into_bytes());
    }

    fn signature_len(&self) -> usize {
        32
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        self.mac(data).verify_slice(signature).map_err(|_| CryptoError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &[u8] = b"a secret of some length";
    const NEW: &[u8] = b"another secret, of some length too";
    const CONNECTION: &[u8] = b"8 bytes.";

    fn by(secret: &[u8]) -> Identity {
        Identity::from_secret(secret, "a").unwrap()
    }

    fn token(key: &ResetKey) -> [u8; 32] {
        let mut token = [0; 32];
        key.sign(CONNECTION, &mut token);
        assert!(key.verify(CONNECTION, &token).is_ok());
        token
    }

    #[test]
    fn tokens_follow_the_secret_by_which_a_node_appears() {
        let [old, new] = [OLD, NEW].map(|secret| token(&ResetKey::of(&by(secret))));
        assert_ne!(old, new);
        let key = ResetKey::of(&by(OLD));
        key.follow(&by(OLD).also_trust_secret(NEW).unwrap());
        assert_eq!(token(&key), old, "the node still presents the old secret's certificate");
        key.follow(&by(NEW).also_trust_secret(OLD).unwrap());
        assert_eq!(token(&key), new);
        assert!(key.verify(CONNECTION, &old).is_err(), "the old secret is no longer valid");
        key.follow(&by(NEW));
        assert_eq!(token(&key), new, "a node started with the new secret has the same key");
    }

    #[test]
    fn nodes_of_one_secret_give_different_tokens() {
        let other = Identity::from_secret(OLD, "b").unwrap();
        assert_ne!(token(&ResetKey::of(&by(OLD))), token(&ResetKey::of(&other)));
    }
}
