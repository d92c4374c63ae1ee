//! The connections of callers: to a cluster or an echo, for tasks or for blocked threads.

use std::{net::SocketAddr, sync::Arc};

use artillery_ddata::{Client, Kv, NodeId};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::mpsc::Receiver,
};

use super::{
    Failed,
    book::{Ask, Book, Turn},
    echo::SHAPE,
    processes::Contact,
};
use crate::raw::{BlockingTcp, Pipe, Quic, Tcp};

/// One call at a time, awaited. Its answer is checked.
pub trait Line: Send + 'static {
    /// Makes a call.
    fn call(&mut self, ask: Ask) -> impl Future<Output = Result<(), Failed>> + Send;
}

/// One call at a time, for a blocked thread. Its answer is checked.
pub trait Blocking {
    /// Makes a call.
    fn call(&mut self, ask: Ask) -> Result<(), Failed>;

    /// Waits for the next turn. A caller that drives its own connections must keep driving them meanwhile.
    fn rest(&mut self, turns: &mut Receiver<Turn>) -> Option<Turn> {
        turns.blocking_recv()
    }
}

/// A handle to the data of a cluster.
#[derive(Debug, Clone)]
pub struct KvLine {
    kv: Kv,
    book: Arc<Book>,
    copies: u32,
}

impl KvLine {
    /// A line to a chain of `copies` members. A write must be held by all of them.
    pub fn new(kv: Kv, book: Arc<Book>, copies: u32) -> Self {
        Self { kv, book, copies }
    }

    /// Reads a key, and returns the node that served it.
    pub async fn read(&self, at: usize) -> Result<NodeId, Failed> {
        let floor = self.book.floor(at);
        let read = self.kv.get(self.book.name(at)).await.map_err(|error| format!("a read failed: {error}"))?;
        self.book.check(at, floor, read.value())?;
        Ok(read.served.node)
    }

    /// Gives a key its next value.
    ///
    /// # Errors
    /// The write failed, or too few members hold it.
    pub async fn write(&self, at: usize) -> Result<(), Failed> {
        let (number, value) = self.book.issue(at);
        let done = self.kv.put(self.book.name(at), value).await;
        let done = done.map_err(|error| format!("a write failed: {error}"))?;
        if done.copies != self.copies {
            return Err(format!("a write is on {} members of {}", done.copies, self.copies).into());
        }
        self.book.acknowledge(at, number);
        Ok(())
    }
}

impl Line for KvLine {
    async fn call(&mut self, ask: Ask) -> Result<(), Failed> {
        match ask {
            Ask::Read(at) => self.read(at).await.map(drop),
            Ask::Write(at) => self.write(at).await,
        }
    }
}

/// An echo treats every request as a read.
impl Line for Tcp {
    async fn call(&mut self, _ask: Ask) -> Result<(), Failed> {
        Ok(self.run(1, 1).await?)
    }
}

/// A caller's stream of a shared connection.
#[derive(Debug)]
pub struct QuicLine(pub Pipe<quinn::RecvStream, quinn::SendStream>);

impl Line for QuicLine {
    async fn call(&mut self, _ask: Ask) -> Result<(), Failed> {
        Ok(self.0.run(1, 1).await?)
    }
}

/// Connects a client to a cluster.
pub async fn connect(contact: &Contact) -> Result<Client, Failed> {
    let seeds = contact.addrs.iter().copied();
    Ok(Client::builder().cluster(&contact.name).secret(&contact.secret).seeds(seeds).connect().await?)
}

/// Connects a client and makes it read once. That makes it connect to the member that it prefers for reads, which
/// serves its later reads.
pub async fn reader(contact: &Contact, book: &Arc<Book>) -> Result<Client, Failed> {
    let client = connect(contact).await?;
    KvLine::new(client.kv(), book.clone(), contact.members()).read(0).await?;
    Ok(client)
}

/// A separate blocking client for one thread.
pub fn blocking_client(contact: &Contact, book: &Arc<Book>) -> Result<Box<dyn Blocking>, Failed> {
    let runtime = Arc::new(Builder::new_current_thread().enable_all().build()?);
    let client = runtime.block_on(reader(contact, book))?;
    let line = KvLine::new(client.kv(), book.clone(), contact.members());
    Ok(Box::new(CarriedClient { line, runtime, own: Some(client) }))
}

/// A handle of one of the threads that share a client, whose runtime has its own threads.
pub struct SharedClient {
    /// The handle to the data.
    pub line: KvLine,
    /// The runtime of the client.
    pub handle: Handle,
}

impl Blocking for SharedClient {
    fn call(&mut self, ask: Ask) -> Result<(), Failed> {
        self.handle.block_on(self.line.call(ask))
    }
}

/// A thread that has a client, or one of several that share a client and drive it in turn: the thread that waits first
/// drives sockets and tasks for all.
pub struct CarriedClient {
    /// The handle to the data.
    pub line: KvLine,
    /// A current-thread runtime, driven by one of the threads at a time.
    pub runtime: Arc<Runtime>,
    /// The client that is closed with this thread.
    pub own: Option<Client>,
}

impl Blocking for CarriedClient {
    fn call(&mut self, ask: Ask) -> Result<(), Failed> {
        self.runtime.block_on(self.line.call(ask))
    }

    fn rest(&mut self, turns: &mut Receiver<Turn>) -> Option<Turn> {
        self.runtime.block_on(turns.recv())
    }
}

impl Drop for CarriedClient {
    fn drop(&mut self) {
        if let Some(client) = &self.own {
            self.runtime.block_on(client.close());
        }
    }
}

impl Blocking for BlockingTcp {
    fn call(&mut self, _ask: Ask) -> Result<(), Failed> {
        Ok(self.ask()?)
    }
}

/// A QUIC connection with a runtime on the calling thread.
pub struct OwnQuic {
    quic: Quic,
    runtime: Runtime,
}

impl OwnQuic {
    /// Connects to the echo.
    pub fn connect(addr: SocketAddr, certificate: Vec<u8>) -> Result<Self, Failed> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let quic = runtime.block_on(Quic::connect_to(addr, certificate, SHAPE))?;
        Ok(Self { quic, runtime })
    }
}

impl Blocking for OwnQuic {
    fn call(&mut self, _ask: Ask) -> Result<(), Failed> {
        Ok(self.runtime.block_on(self.quic.pipe.run(1, 1))?)
    }

    fn rest(&mut self, turns: &mut Receiver<Turn>) -> Option<Turn> {
        self.runtime.block_on(turns.recv())
    }
}
