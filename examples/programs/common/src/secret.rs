//! The credentials of a node or a client, a secret or certificates, from the command line.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use artillery_core::identity::Identity;

use crate::exit::Failure;

/// The secret if the operator gives none. It is public, so it is accepted on loopback only.
const DEVELOPMENT_SECRET: &str = "artillery development secret, loopback only";

const VARIABLE: &str = "ARTILLERY_SECRET";

/// The identity flags of `node` and `ctl`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Identity")]
pub struct IdentityArgs {
    /// File with the cluster's secret (or use the environment variable ARTILLERY_SECRET); without either, a development
    /// secret on loopback only
    #[arg(long, value_name = "FILE", global = true)]
    secret_file: Option<PathBuf>,
    /// The cluster's secret (visible in the process list; prefer --secret-file)
    #[arg(long, value_name = "TEXT", global = true)]
    secret: Option<String>,
    /// Trusted certificate authorities (PEM): use certificates instead of a secret
    #[arg(long, value_name = "FILE", global = true)]
    ca: Option<PathBuf>,
    /// This process's own certificate (PEM)
    #[arg(long, value_name = "FILE", global = true)]
    cert: Option<PathBuf>,
    /// Private key of --cert (PEM)
    // The default id would collide with the argument KEY of commands of `ctl`.
    #[arg(id = "private_key", long = "key", value_name = "FILE", global = true)]
    key: Option<PathBuf>,
    /// File with a second secret that is accepted too, while the secret is being replaced; an empty file trusts nobody
    /// else
    #[arg(long, value_name = "FILE", global = true)]
    also_trust: Option<PathBuf>,
}

/// The credentials of a node or a client.
pub enum Admission {
    /// The secret that the operator gave.
    Secret(Vec<u8>),
    /// The public development secret.
    Development(Vec<u8>),
    /// The certificates that the operator gave.
    Certificates(Identity),
}

impl Admission {
    /// Whether this is the public secret, which is accepted on loopback only.
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
            Some(_) => Admission::Secret(without_flags()),
            None => Admission::Development(without_flags()),
        })
    }

    /// The second secret that is accepted too; `None` without the flag or if the file is empty.
    pub fn also_trusted(&self) -> Result<Option<Vec<u8>>, Failure> {
        let file = self.also_trust.as_deref();
        let secret = file.map(|file| read(file, "--also-trust").map(trimmed)).transpose()?;
        Ok(secret.filter(|secret| !secret.is_empty()))
    }

    /// The identity of the node `name` from all of these flags. Each call reads the files again.
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

/// The secret of a program without any of these flags, which is public if the environment has none.
pub fn without_flags() -> Vec<u8> {
    env::var_os(VARIABLE).map_or_else(|| DEVELOPMENT_SECRET.into(), OsString::into_encoded_bytes)
}

fn read(file: &Path, flag: &str) -> Result<Vec<u8>, Failure> {
    fs::read(file).map_err(|error| Failure::usage(format!("{flag} {}: {error}", file.display())))
}

/// Removes trailing newlines, which editors add and which are not part of a secret.
pub fn trimmed(mut text: Vec<u8>) -> Vec<u8> {
    while text.last().is_some_and(|last| matches!(last, b'\n' | b'\r')) {
        text.pop();
    }
    text
}

/// Reads a secret from a file; an empty file is an error that names `flag`.
pub fn from_file(file: &Path, flag: &str) -> Result<Vec<u8>, Failure> {
    let secret = trimmed(read(file, flag)?);
    if secret.is_empty() {
        Err(Failure::usage(format!("{flag} {}: the file is empty", file.display())))
    } else {
        Ok(secret)
    }
}
