//! Certificates derived from a secret that the whole cluster shares.

use hkdf::Hkdf;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ED25519, SanType, SerialNumber, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use sha2::Sha256;

use super::{MIN_SECRET, name};
use crate::error::IdentityError;

/// Separates these keys from other keys derived from the same secret.
const SALT: &[u8] = b"artillery cluster secret, version 1";

/// DER prefix of an Ed25519 private key in PKCS#8. The 32 bytes of its seed follow (RFC 8410).
const PKCS8_ED25519: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// The certificate authority. Every holder of the secret derives the same one, byte for byte.
pub(super) struct Authority {
    pub(super) cert: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    keys: Hkdf<Sha256>,
}

pub(super) struct Leaf {
    pub(super) cert: CertificateDer<'static>,
    pub(super) key: Vec<u8>,
}

impl Authority {
    pub(super) fn from_secret(secret: &[u8]) -> Result<Self, IdentityError> {
        if secret.len() < MIN_SECRET {
            return Err(IdentityError::SecretTooShort { len: secret.len(), min: MIN_SECRET });
        }
        let keys = Hkdf::<Sha256>::new(Some(SALT), secret);
        let mut pkcs8 = PKCS8_ED25519.to_vec();
        pkcs8.extend_from_slice(&derive(&keys, b"authority")?);
        let key =
            KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(pkcs8), &PKCS_ED25519).map_err(unusable)?;

        // All fields are fixed and Ed25519 signs deterministically, so the certificate is the same on all nodes.
        let mut params = named("artillery cluster authority");
        params.serial_number = Some(SerialNumber::from(1u64));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let cert = params.self_signed(&key).map_err(unusable)?.der().clone();
        Ok(Self { cert, issuer: Issuer::new(params, key), keys })
    }

    /// A certificate for `node`, with a fresh key that never leaves this process.
    pub(super) fn leaf(&self, node: &str) -> Result<Leaf, IdentityError> {
        let key = KeyPair::generate_for(&PKCS_ED25519).map_err(unusable)?;
        let mut params = named("artillery node");
        let dns = name::to_dns(node).try_into().map_err(unusable)?;
        params.subject_alt_names = vec![SanType::DnsName(dns)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // A node is a server to some peers and a client to others.
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let cert = params.signed_by(&key, &self.issuer).map_err(unusable)?.der().clone();
        Ok(Leaf { cert, key: key.serialize_der() })
    }

    /// A seed that is the same in every incarnation of `node`.
    pub(super) fn stable_seed(&self, node: &str) -> Result<[u8; 32], IdentityError> {
        derive(&self.keys, &[b"node ".as_slice(), node.as_bytes()].concat())
    }
}

/// Parameters of a certificate that never expires in practice: operators replace the secret, and the nodes' clocks may
/// disagree.
fn named(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(4096, 1, 1);
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

fn derive(keys: &Hkdf<Sha256>, info: &[u8]) -> Result<[u8; 32], IdentityError> {
    let mut seed = [0; 32];
    keys.expand(info, &mut seed).map_err(unusable)?;
    Ok(seed)
}

fn unusable(error: impl std::fmt::Display) -> IdentityError {
    IdentityError::Unusable(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_secret_is_one_authority() {
        let authority = |secret: &[u8]| Authority::from_secret(secret).unwrap().cert;
        assert_eq!(authority(b"0123456789abcdef"), authority(b"0123456789abcdef"));
        assert_ne!(authority(b"0123456789abcdef"), authority(b"0123456789abcdeg"));
    }

    #[test]
    fn short_secrets_are_refused() {
        let error = Authority::from_secret(b"0123456789abcde").err();
        assert_eq!(error, Some(IdentityError::SecretTooShort { len: 15, min: 16 }));
    }

    #[test]
    fn every_leaf_has_its_own_key() {
        let authority = Authority::from_secret(b"0123456789abcdef").unwrap();
        assert_ne!(authority.leaf("a").unwrap().key, authority.leaf("a").unwrap().key);
    }

    #[test]
    fn seeds_belong_to_a_node() {
        let authority = Authority::from_secret(b"0123456789abcdef").unwrap();
        assert_eq!(authority.stable_seed("a"), authority.stable_seed("a"));
        assert_ne!(authority.stable_seed("a"), authority.stable_seed("b"));
    }
}
