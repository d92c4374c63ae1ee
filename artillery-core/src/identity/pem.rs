use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, pem::PemObject};

use crate::error::IdentityError;

/// All certificates in `pem`. At least one is required.
pub(super) fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let bad = |reason: String| IdentityError::BadPem { what, reason };
    let certificates: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|error| bad(error.to_string()))?;
    if certificates.is_empty() { Err(bad("it contains no certificate".into())) } else { Ok(certificates) }
}

pub(super) fn private_key(pem: &[u8]) -> Result<Vec<u8>, IdentityError> {
    PrivatePkcs8KeyDer::from_pem_slice(pem)
        .map(|key| key.secret_pkcs8_der().to_vec())
        .map_err(|error| IdentityError::BadPem { what: "private key", reason: format!("{error} (PKCS#8 is needed)") })
}
