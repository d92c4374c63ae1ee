//! The Redis protocol: any client of Redis can try the cluster, at any node.
//!
//! One task for each connection reads what is there, makes commands in their order, gathers the answers and writes them at
//! once. What a connection may hold is bounded, bytes that come and answers that wait; so is what is large at all of them together,
//! and how many there are.

mod about;
mod ask;
mod client;
mod connection;
mod failure;
mod frame;
mod glob;
mod inline;
mod number;
mod output;
mod plain;
mod read;
mod reply;
mod room;
mod scan;
mod script;
mod table;
mod together;
mod write;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use artillery_ddata::{Kv, Node};
use bytes::BytesMut;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};

use self::{
    connection::Connection,
    reply::{Protocol, Reply},
    room::Room,
    together::Together,
};
use super::{args::NodeArgs, port::Bound};

/// Connections at a time.
const MAX_CLIENTS: usize = 4096;
/// The longest that a command may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);
/// Room of a command beside its largest value: for its key and other words.
const MARGIN: usize = 1 << 20;
/// The pause of a port that can't accept a connection, for want of file descriptors as a rule, before it tries again.
const BREATH: Duration = Duration::from_millis(100);

/// Bounds of what the port takes in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Bytes of a value.
    value_bytes: usize,
    /// Bytes of a word of a command.
    word_bytes: usize,
    /// Bytes of a command, and of a transaction.
    command_bytes: usize,
    /// Bytes of the large commands of all connections together, and of their large answers.
    large_bytes: usize,
}

impl Limits {
    pub(super) fn new(args: &NodeArgs) -> Self {
        let value_bytes = args.max_value_bytes.0;
        let command_bytes = value_bytes.saturating_add(MARGIN);
        let large_bytes = args.queue_bytes.0.max(command_bytes.saturating_mul(2));
        Self { value_bytes, word_bytes: command_bytes, command_bytes, large_bytes }
    }
}

/// What all connections share.
struct PortShared {
    node: Node,
    kv: Kv,
    /// Makes writes of many connections together.
    together: Together,
    limits: Limits,
    secret: Option<Arc<[u8]>>,
    places: Arc<Semaphore>,
    /// Room for large commands, and for large answers.
    commands: Room,
    answers: Arc<Room>,
    last_id: AtomicU64,
}

impl PortShared {
    /// The number of connections.
    fn clients(&self) -> usize {
        taken(&self.places)
    }
}

/// The number of places of connections that are taken.
fn taken(places: &Semaphore) -> usize {
    MAX_CLIENTS - places.available_permits()
}

/// Serves the port from now on, in tasks that end with the program. Returns the address.
pub(super) fn serve(port: Bound, node: Node, limits: Limits) -> String {
    let kv = node.kv().with_timeout(COMMAND_TIMEOUT);
    let places = Arc::new(Semaphore::new(MAX_CLIENTS));
    let together = Together::new(&kv, {
        let places = places.clone();
        move || taken(&places)
    });
    let (commands, answers) = (Room::new(limits.large_bytes), Arc::new(Room::new(limits.large_bytes)));
    let (secret, last_id) = (port.secret, AtomicU64::new(0));
    let shared = PortShared { node, kv, together, limits, secret, places, commands, answers, last_id };
    tokio::spawn(accept(port.listener, Arc::new(shared)));
    port.addr.to_string()
}

async fn accept(listener: TcpListener, shared: Arc<PortShared>) {
    loop {
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            Err(error) => {
                tracing::warn!(%error, "a connection to the Redis port wasn't taken in");
                tokio::time::sleep(BREATH).await;
                continue;
            }
        };
        match shared.places.clone().try_acquire_owned() {
            Ok(place) => drop(tokio::spawn(served(socket, shared.clone(), place))),
            Err(_) => turn_away(&socket),
        }
    }
}

async fn served(socket: TcpStream, shared: Arc<PortShared>, place: OwnedSemaphorePermit) {
    let id = shared.last_id.fetch_add(1, Ordering::Relaxed) + 1;
    if let Err(error) = Connection::new(socket, shared, id).run().await {
        tracing::debug!(%error, id, "a connection to the Redis port was lost");
    }
    drop(place);
}

/// Tells a client that there are too many connections, as far as the socket takes the text at once.
fn turn_away(socket: &TcpStream) {
    let mut text = BytesMut::new();
    Reply::error("max number of clients reached").encode(&mut text, Protocol::Two);
    let _ = socket.try_write(&text);
}
