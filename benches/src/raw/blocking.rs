//! TCP by the standard library alone: no runtime, a thread at each end that waits in the system.

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
    ///
    /// # Errors
    /// What the system says.
    pub fn connect(shape: Shape) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let addr = listener.local_addr()?;
        thread::Builder::new().name("raw server".into()).spawn(move || serve(&listener, shape))?;
        Self::connect_to(addr, shape)
    }

    /// Connects to a server that is there.
    ///
    /// # Errors
    /// What the system says.
    pub fn connect_to(addr: SocketAddr, shape: Shape) -> io::Result<Self> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, request: vec![b'.'; shape.request], response: vec![0; shape.response], sent: 0 })
    }

    /// Makes a request and waits for its response.
    ///
    /// # Errors
    /// What the system says, or that the answer was wrong.
    pub fn ask(&mut self) -> io::Result<()> {
        let number = self.sent;
        self.sent += 1;
        self.request[..8].copy_from_slice(&number.to_le_bytes());
        self.stream.write_all(&self.request)?;
        self.stream.read_exact(&mut self.response)?;
        check(&self.response, number)
    }
}

/// Ends with its connection.
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
