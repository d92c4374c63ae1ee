//! The bytes of the protocol, without a client library.

use artillery_processes::TEST_TIMEOUT;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpSocket, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinHandle,
    time::timeout,
};

pub(crate) struct Wire {
    input: OwnedReadHalf,
    /// `None` while a task writes.
    output: Option<OwnedWriteHalf>,
    read: Vec<u8>,
}

pub(crate) fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend(*word);
        bytes.extend(b"\r\n");
    }
    bytes
}

impl Wire {
    pub(crate) async fn to(addr: &str) -> Self {
        Self::of(TcpStream::connect(addr).await.unwrap())
    }

    fn of(stream: TcpStream) -> Self {
        let (input, output) = stream.into_split();
        Self { input, output: Some(output), read: Vec::new() }
    }

    /// Like [`Wire::to`], with small buffers, so that hardly any bytes are in flight to a client that doesn't read.
    pub(crate) async fn narrow(addr: &str) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        Self::of(socket.connect(addr.parse().unwrap()).await.unwrap())
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        let output = self.output.as_mut().unwrap();
        for part in bytes.chunks(64 << 10) {
            timeout(TEST_TIMEOUT, output.write_all(part)).await.expect("nothing more is read").unwrap();
        }
    }

    /// Ends the stream to the node.
    pub(crate) async fn end(&mut self) {
        self.output.as_mut().unwrap().shutdown().await.unwrap();
    }

    /// Writes in a task. The task returns the writing half, so that the node sees no end of the stream.
    pub(crate) fn write_aside(&mut self, bytes: Vec<u8>) -> JoinHandle<OwnedWriteHalf> {
        let mut output = self.output.take().unwrap();
        tokio::spawn(async move {
            output.write_all(&bytes).await.unwrap();
            output
        })
    }

    /// Writes as much as the node reads before it closes the connection.
    pub(crate) async fn burden(&mut self, bytes: &[u8]) {
        drop(self.output.as_mut().unwrap().write_all(bytes).await);
    }

    pub(crate) async fn send(&mut self, commands: &[&[&str]]) {
        let bytes = |words: &&[&str]| command(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
        let all: Vec<_> = commands.iter().flat_map(bytes).collect();
        self.write(&all).await;
    }

    pub(crate) async fn call(&mut self, words: &[&str]) -> String {
        self.send(&[words]).await;
        self.reply().await
    }

    /// The bytes of the next answer as text, decoded as Latin-1.
    pub(crate) async fn reply(&mut self) -> String {
        loop {
            if let Some(end) = end(&self.read, 0) {
                return latin(self.read.drain(..end).as_slice());
            }
            assert!(self.more().await, "closed after {:?}", latin(&self.read));
        }
    }

    /// The next `len` bytes; fewer if the connection ends before.
    pub(crate) async fn bytes(&mut self, len: usize) -> Vec<u8> {
        while self.read.len() < len && self.more().await {}
        let len = len.min(self.read.len());
        self.read.drain(..len).collect()
    }

    /// Whether the stream ends without further bytes.
    pub(crate) async fn is_closed(&mut self) -> bool {
        !self.more().await && self.read.is_empty()
    }

    async fn more(&mut self) -> bool {
        let read = timeout(TEST_TIMEOUT, self.input.read_buf(&mut self.read)).await.expect("no answer came");
        // A client that is disconnected while it sends may see a reset instead of an end.
        read.unwrap_or(0) > 0
    }
}

pub(crate) fn latin(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// The end of the answer that begins at `at`, if it is complete.
fn end(bytes: &[u8], at: usize) -> Option<usize> {
    let line = bytes[at..].windows(2).position(|pair| pair == b"\r\n")? + at;
    let number = || std::str::from_utf8(&bytes[at + 1..line]).unwrap().parse::<i64>().unwrap();
    let behind = line + 2;
    match bytes[at] {
        b'$' | b'=' if number() < 0 => Some(behind),
        b'$' | b'=' => Some(behind + number() as usize + 2).filter(|end| *end <= bytes.len()),
        b'*' => (0..number().max(0)).try_fold(behind, |at, _| begun(bytes, at)),
        b'%' => (0..number() * 2).try_fold(behind, |at, _| begun(bytes, at)),
        _ => Some(behind),
    }
}

fn begun(bytes: &[u8], at: usize) -> Option<usize> {
    if at < bytes.len() { end(bytes, at) } else { None }
}
