//! Mutual TLS 1.3: which peers are trusted, and which node a certificate names.

use std::sync::Arc;

use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor,
    },
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime},
    server::{ParsedCertificate, WebPkiClientVerifier},
    version::TLS13,
};

use super::{IdentityInner, name};
use crate::error::IdentityError;

/// The protocol name in the TLS handshake. Versions are negotiated in the hello, where a refusal can name the versions
/// of both sides.
const ALPN: &[u8] = b"artillery";

pub(crate) struct TlsConfigs {
    pub(crate) server: ServerConfig,
    pub(crate) client: ClientConfig,
}

pub(super) fn configs(identity: &IdentityInner) -> Result<TlsConfigs, IdentityError> {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    for root in &identity.roots {
        roots.add(root.clone()).map_err(unusable)?;
    }
    let roots = Arc::new(roots);
    Ok(TlsConfigs {
        server: server(identity, Arc::clone(&provider), Arc::clone(&roots))?,
        client: client(identity, provider, roots)?,
    })
}

/// Whether `chain`, leaf first, leads to one of the roots. The handshake has already shown that the peer holds the key.
pub(super) fn trusts(identity: &IdentityInner, chain: &[CertificateDer<'_>]) -> bool {
    let Some((leaf, intermediates)) = chain.split_first() else { return false };
    let Ok(leaf) = ParsedCertificate::try_from(leaf) else { return false };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(identity.roots.iter().cloned());
    let algorithms = ring::default_provider().signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(&leaf, &roots, intermediates, UnixTime::now(), algorithms).is_ok()
}

fn server(
    identity: &IdentityInner,
    provider: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
) -> Result<ServerConfig, IdentityError> {
    let clients = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
        .clear_root_hint_subjects()
        .build()
        .map_err(unusable)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(unusable)?
        .with_client_cert_verifier(clients)
        .with_single_cert(identity.chain.clone(), key(identity))
        .map_err(unusable)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    // Without resumption every connection verifies the current certificate.
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn client(
    identity: &IdentityInner,
    provider: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
) -> Result<ClientConfig, IdentityError> {
    let algorithms = provider.signature_verification_algorithms;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(unusable)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(SignedByTheCluster { roots, algorithms }))
        .with_client_auth_cert(identity.chain.clone(), key(identity))
        .map_err(unusable)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(config)
}

#[cfg(test)]
pub(super) fn anonymous(identity: &IdentityInner) -> ClientConfig {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(identity.roots.iter().cloned());
    let algorithms = provider.signature_verification_algorithms;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(SignedByTheCluster { roots: Arc::new(roots), algorithms }))
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config
}

fn key(identity: &IdentityInner) -> PrivateKeyDer<'static> {
    PrivatePkcs8KeyDer::from(identity.key.clone()).into()
}

fn unusable(error: impl std::fmt::Display) -> IdentityError {
    IdentityError::Unusable(error.to_string())
}

/// The node name in a leaf certificate. A peer's chain must have been verified before.
pub(crate) fn name_of(leaf: &CertificateDer<'_>) -> Result<String, IdentityError> {
    let leaf = webpki::EndEntityCert::try_from(leaf).map_err(unusable)?;
    let dns = leaf.valid_dns_names().next().ok_or(IdentityError::NoNodeName)?;
    name::from_dns(dns)
}

/// Accepts servers whose certificate is signed by one of the roots. It does not check the name: nodes are dialled by
/// address, and the name in the certificate is compared with the expected node afterwards.
#[derive(Debug)]
struct SignedByTheCluster {
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for SignedByTheCluster {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let leaf = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(&leaf, &self.roots, intermediates, now, self.algorithms.all)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only TLS 1.3 is supported".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        None
    }
}
