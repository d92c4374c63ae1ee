//! The TCP ports of a node: their addresses and the password that they require.

use std::{net::SocketAddr, sync::Arc};

use artillery_programs::{exit::Failure, secret};
use tokio::net::TcpListener;

use super::args::NodeArgs;

#[derive(Debug)]
pub(super) struct Ports {
    pub(super) http: Option<Plan>,
    pub(super) resp: Option<Plan>,
}

impl Ports {
    pub(super) fn new(args: &NodeArgs) -> Result<Self, Failure> {
        let file = args.port_password_file.as_deref();
        let secret = file.map(|file| secret::from_file(file, "--port-password-file")).transpose()?;
        let secret = secret.map(Arc::from);
        if args.http.or(args.resp).is_none() {
            let idle = [(secret.is_some(), "--port-password-file"), (args.open, "--open")];
            if let Some((_, flag)) = idle.iter().find(|(given, _)| *given) {
                return Err(Failure::usage(format!("{flag} needs --resp or --http")));
            }
        }
        let plan = |flag, addr: Option<SocketAddr>, what| {
            addr.map(|addr| Plan::new(flag, addr, &secret, args.open, what)).transpose()
        };
        Ok(Self {
            http: plan("--http", args.http, "read the node's status and metrics")?,
            resp: plan("--resp", args.resp, "read and write all data")?,
        })
    }
}

/// A port before it is bound.
#[derive(Debug)]
pub(super) struct Plan {
    flag: &'static str,
    addr: SocketAddr,
    secret: Option<Arc<[u8]>>,
}

impl Plan {
    fn new(
        flag: &'static str,
        addr: SocketAddr,
        secret: &Option<Arc<[u8]>>,
        open: bool,
        what: &str,
    ) -> Result<Self, Failure> {
        if !addr.ip().is_loopback() && secret.is_none() {
            if !open {
                let way = "beyond loopback, --port-password-file or --open is required";
                return Err(Failure::usage(format!("{flag} {addr}: {way}")));
            }
            tracing::warn!(%addr, "--open: any client that reaches this address can {what}");
        }
        Ok(Self { flag, addr, secret: secret.clone() })
    }

    pub(super) async fn bind(self) -> Result<Bound, Failure> {
        let bound = async {
            let listener = TcpListener::bind(self.addr).await?;
            let addr = listener.local_addr()?;
            Ok::<_, std::io::Error>((listener, addr))
        };
        let (listener, addr) =
            bound.await.map_err(|error| Failure::failed(format!("{} {}: {error}", self.flag, self.addr)))?;
        Ok(Bound { listener, addr, secret: self.secret })
    }
}

/// A port that is bound but not served yet.
pub(super) struct Bound {
    pub(super) listener: TcpListener,
    pub(super) addr: SocketAddr,
    pub(super) secret: Option<Arc<[u8]>>,
}

/// Compares in a time that depends only on the length, so that an attacker learns nothing else about the secret.
pub(super) fn same(given: &[u8], secret: &[u8]) -> bool {
    given.len() == secret.len() && given.iter().zip(secret).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn ports(flags: &[&str]) -> Result<Ports, Failure> {
        Ports::new(&NodeArgs::parse_from(["node"].iter().chain(flags)))
    }

    #[test]
    fn ports_beyond_loopback_need_a_password_or_open() {
        let none = ports(&[]).unwrap();
        assert!(none.http.is_none() && none.resp.is_none());
        assert!(ports(&["--open"]).unwrap_err().is_usage());
        for flag in ["--http", "--resp"] {
            let given = |ports: Ports| ports.http.is_some() != ports.resp.is_some();
            assert!(given(ports(&[flag, "127.0.0.1:0"]).unwrap()));
            assert!(ports(&[flag, "0.0.0.0:0"]).unwrap_err().to_string().contains(flag));
            assert!(given(ports(&[flag, "0.0.0.0:0", "--open"]).unwrap()));
        }
    }

    #[test]
    fn secrets_are_compared_whole() {
        assert!(same(b"token", b"token"));
        for other in [b"Token".as_slice(), b"toke", b"tokens", b""] {
            assert!(!same(other, b"token"));
        }
    }
}
