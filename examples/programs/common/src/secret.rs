//! What admits a node or a client to a cluster: its secret or certificates, as the command line gives them.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use artillery_core::identity::Identity;

use crate::exit::Failure;

/// The secret when the operator gives none. It is public, so it is good for loopback only.
const DEVELOPMENT_SECRET: &str = "artillery development secret, loopback only";

const VARIABLE: &str = "ARTILLERY_SECRET";

/// The identity flags of `node` and `ctl`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Identity")]
pub struct IdentityArgs {
    /// File with the cluster's secret (or the environment variable ARTILLERY_SECRET); without any, a development
    /// secret, on loopback only
    #[arg(long, value_name = "FILE", global = true)]
    secret_file: Option<PathBuf>,
    /// The cluster's secret, where other users of this machine may see it
    #[arg(long, value_name = "TEXT", global = true)]
    secret: Option<String>,
    /// Certificates instead of a secret: those who may join are signed by these (PEM)
    #[arg(long, value_name = "FILE", global = true)]
    ca: Option<PathBuf>,
    /// This one's own certificate (PEM)
    #[arg(long, value_name = "FILE", global = true)]
    cert: Option<PathBuf>,
    /// The private key of --cert (PEM)
    // `ctl` has commands with a KEY.
    #[arg(id = "private_key", long = "key", value_name = "FILE", global = true)]
    key: Option<PathBuf>,
    /// File with another secret, whose holders are let in too while one secret is replaced by another; empty: nobody
    /// else is
    #[arg(long, value_name = "FILE", global = true)]
    also_trust: Option<PathBuf>,
}

/// What admits a node or a client.
pub enum Admission {
    /// The secret that the operator gave.
    Secret(Vec<u8>),
    /// The public secret of development.
    Development(Vec<u8>),
    /// Certificates that the operator gave.
    Certificates(Identity),
}

impl Admission {
    /// Whether it is the public secret, which admits on loopback only.
    pub fn is_development(&self) -> bool {
        matches!(self, Self::Development(_))
    }
}

impl IdentityArgs {
    /// Reads the secret or the certificates that the flags or the environment name.
    pub fn admission(&self) -> Result<Admission, Failure> {
        let files = [&self.ca, &self.cert, &self.key].map(Option::as_ref);
        let given = files.iter().any(Option::is_some);
        if usize::from(self.secret_file.is_some()) + usize::from(self.secret.is_some()) + usize::from(given) > 1 {
            return Err(Failure::usage("--secret-file, --secret and --ca exclude each other"));
        }
        if let Some(file) = &self.secret_file {
            return Ok(Admission::Secret(trimmed(read(file, "--secret-file")?)));
        }
        if let Some(secret) = &self.secret {
            return Ok(Admission::Secret(secret.clone().into_bytes()));
        }
        match files {
            [Some(ca), Some(cert), Some(key)] => {
                let identity = Identity::from_pem(&read(ca, "--ca")?, &read(cert, "--cert")?, &read(key, "--key")?);
                return Ok(Admission::Certificates(identity.map_err(Failure::failed)?));
            }
            [None, None, None] => {}
            _ => return Err(Failure::usage("--ca, --cert and --key are needed together")),
        }
        Ok(match env::var_os(VARIABLE) {
            Some(secret) => Admission::Secret(secret.into_encoded_bytes()),
            None => Admission::Development(DEVELOPMENT_SECRET.into()),
        })
    }

    /// The other secret, whose holders are admitted too, if there is one now.
    pub fn also_trusted(&self) -> Result<Option<Vec<u8>>, Failure> {
        let file = self.also_trust.as_deref();
        let secret = file.map(|file| read(file, "--also-trust").map(trimmed)).transpose()?;
        Ok(secret.filter(|secret| !secret.is_empty()))
    }

    /// The identity of the node `name` by all of these flags. Files are read anew at each call.
    pub fn identity(&self, name: &str) -> Result<Identity, Failure> {
        let identity = match self.admission()? {
            Admission::Secret(secret) | Admission::Development(secret) => Identity::from_secret(&secret, name),
            Admission::Certificates(identity) => Ok(identity),
        };
        let identity = identity.map_err(Failure::failed)?;
        match self.also_trusted()? {
            Some(secret) => identity.also_trust_secret(&secret).map_err(Failure::failed),
            None => Ok(identity),
        }
    }
}

fn read(file: &Path, flag: &str) -> Result<Vec<u8>, Failure> {
    fs::read(file).map_err(|error| Failure::usage(format!("{flag} {}: {error}", file.display())))
}

/// Editors end files with a newline that is no part of a secret.
pub fn trimmed(mut text: Vec<u8>) -> Vec<u8> {
    while text.last().is_some_and(|last| matches!(last, b'\n' | b'\r')) {
        text.pop();
    }
    text
}

/// A secret in a file, as for the ports.
pub fn from_file(file: &Path, flag: &str) -> Result<Vec<u8>, Failure> {
    let secret = trimmed(read(file, flag)?);
    if secret.is_empty() {
        Err(Failure::usage(format!("{flag} {}: the file is empty", file.display())))
    } else {
        Ok(secret)
    }
}
