//! TCP with only the standard library: no runtime; at each end a thread blocks in a system call.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    thread,
};

use super::{Shape, answer, check};

/// A connection on which requests are made one at a time.
#[derive(Debug)]
pub struct BlockingTcp {
    stream: TcpStream,
    request: Vec<u8>,
    response: Vec<u8>,
    sent: u64,
}

impl BlockingTcp {
    /// Starts a server, and connects to it.
    pub fn connect(shape: Shape) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let addr = listener.local_addr()?;
        thread::Builder::new().name("raw server".into()).spawn(move || serve(&listener, shape))?;
        Self::connect_to(addr, shape)
    }

    /// Connects to a running server.
    pub fn connect_to(addr: SocketAddr, shape: Shape) -> io::Result<Self> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, request: vec![b'.'; shape.request], response: vec![0; shape.response], sent: 0 })
    }

    /// Makes a request and waits for its response.
    pub fn ask(&mut self) -> io::Result<()> {
        let number = self.sent;
        self.sent += 1;
        self.request[..8].copy_from_slice(&number.to_le_bytes());
        self.stream.write_all(&self.request)?;
        self.stream.read_exact(&mut self.response)?;
        check(&self.response, number)
    }
}

/// Serves one connection until it ends.
fn serve(listener: &TcpListener, shape: Shape) -> io::Result<()> {
    answer_all(listener.accept()?.0, shape)
}

/// Answers on one connection until it ends.
pub(crate) fn answer_all(mut stream: TcpStream, shape: Shape) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut request = vec![0; shape.request];
    let mut response = Vec::new();
    loop {
        stream.read_exact(&mut request)?;
        response.clear();
        answer(&request, shape, &mut response);
        stream.write_all(&response)?;
    }
}
