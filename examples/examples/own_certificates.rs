//! Nodes and clients with certificates of your own instead of a shared secret: only a node or client whose certificate
//! your authority signed is admitted, under the name in the certificate.

use artillery_ddata::{Client, Node, client::ClientError, config::Identity, error::IdentityError};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// A certificate authority. Usually it is a separate program, which alone holds the authority's key.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// Returns the three PEM texts that a node reads from its files: the trusted authority, its own certificate and its
    /// key.
    fn sign(&self, name: &str) -> Result<[String; 3], rcgen::Error> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new([name.to_owned()])?.signed_by(&key, &self.0)?;
        Ok([self.0.as_ref().pem(), certificate.pem(), key.serialize_pem()])
    }
}

fn identity([ca, certificate, key]: [String; 3]) -> Result<Identity, IdentityError> {
    Identity::from_pem(ca.as_bytes(), certificate.as_bytes(), key.as_bytes())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let authority = Authority::new()?;
    let node = Node::builder().cluster("certificates").identity(identity(authority.sign("node-1.shop")?)?);
    let node = node.expect(1).mdns(false).listen(([127, 0, 0, 1], 0).into()).start().await?;
    node.ready().await?;
    assert_eq!(node.name(), "node-1.shop");

    let client = || Client::builder().cluster("certificates").seed(node.addr());
    let trusted = client().identity(identity(authority.sign("till-3.shop")?)?).connect().await?;
    trusted.kv().put("greeting", "hello").await?;
    println!("till-3.shop reads {:?} at {}", trusted.kv().get("greeting").await?.value(), node.name());

    // A certificate of another authority is refused, even with the same name, and so is any secret.
    let stranger = client().identity(identity(Authority::new()?.sign("till-3.shop")?)?).connect().await;
    let secret = client().secret("not a secret, an example").connect().await;
    for refused in [stranger, secret] {
        let Err(error @ ClientError::Unreachable(_)) = refused else { return Err("a stranger was admitted".into()) };
        println!("a stranger: {error}");
    }
    node.shutdown().await;
    Ok(())
}
