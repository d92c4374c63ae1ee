//! A process that answers every request immediately: the limit of bare sockets with the same callers.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::Command,
    thread,
};

use serde::{Deserialize, Serialize};
use tokio::runtime::Builder;

use super::{Failed, processes::Process};
use crate::raw::{Shape, answer_blocking, quic};

/// The sizes: a small request and a value.
pub const SHAPE: Shape = Shape::READ;

/// The addresses of the servers.
#[derive(Debug, Serialize, Deserialize)]
pub struct Addresses {
    /// TCP: a thread for each connection.
    pub tcp: SocketAddr,
    /// QUIC, with a node's settings.
    pub quic: SocketAddr,
    /// The certificate to trust.
    pub certificate: Vec<u8>,
}

/// Runs the servers: prints their addresses, and ends with standard input.
pub fn serve() -> Result<(), Failed> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let tcp = listener.local_addr()?;
    thread::Builder::new().name("accept".into()).spawn(move || accept(&listener))?;
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let (endpoint, certificate) = runtime.block_on(async { quic::bind() })?;
    let addresses = Addresses { tcp, quic: endpoint.local_addr()?, certificate };
    runtime.spawn(quic::accept_all(endpoint, SHAPE));
    println!("{}", serde_json::to_string(&addresses)?);
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn accept(listener: &TcpListener) {
    let serve = |stream: io::Result<TcpStream>| {
        let stream = stream?;
        thread::Builder::new().name("echo".into()).spawn(move || answer_blocking(stream, SHAPE)).map(drop)
    };
    if let Err(error) = listener.incoming().try_for_each(serve) {
        eprintln!("no further TCP connection is accepted: {error}");
    }
    io::stderr().flush().unwrap_or_default();
}

/// The process, for its clients.
#[derive(Debug)]
pub struct Echo {
    /// The running `program echo`.
    pub process: Process,
    /// The addresses of its servers.
    pub addresses: Addresses,
}

impl Echo {
    /// Starts `program echo`.
    pub fn start(program: &Path) -> Result<Self, Failed> {
        let process = Process::start(Command::new(program).arg("echo"))?;
        let addresses = serde_json::from_str(&process.said()?)?;
        Ok(Self { process, addresses })
    }
}
