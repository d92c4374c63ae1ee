//! The Redis protocol: any Redis client can use the cluster, at any node.
//!
//! One task per connection reads the received bytes, executes commands in order, gathers the answers and writes them
//! together. The bytes of commands and of waiting answers are bounded per connection, and those of large ones also
//! across all connections. The number of connections is bounded too.

mod about;
mod ask;
mod backlog;
mod client;
mod connection;
mod expiry;
mod failure;
mod foreign;
mod frame;
mod glob;
mod inline;
mod keys;
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
use tokio::{
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
};

use self::{connection::Connection, foreign::Warnings, room::Room, together::Together};
use super::{
    args::NodeArgs,
    descriptors,
    door::{Door, Places},
    port::Bound,
};

/// The answer to a client above the limit.
const REFUSAL: &str = "-ERR max number of clients reached\r\n";
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of a command in addition to its largest value: for its key and other words.
const MARGIN: usize = 1 << 20;
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    value_bytes: usize,
    word_bytes: usize,
    /// Maximum bytes of a command, and of a transaction.
    command_bytes: usize,
    /// Maximum bytes of all connections' large commands, and separately of their large answers.
    large_bytes: usize,
    /// Maximum bytes of answers that wait while further commands of their clients are read.
    backlog_bytes: usize,
    /// `--max-memory-bytes`; 0: none.
    memory_bytes: usize,
    /// Whether FLUSHALL deletes all keys.
    allow_flush: bool,
}

impl Limits {
    pub(super) fn new(args: &NodeArgs) -> Self {
        let value_bytes = args.max_value_bytes.0;
        let command_bytes = value_bytes.saturating_add(MARGIN);
        let large_bytes = args.queue_bytes.0.max(command_bytes.saturating_mul(2));
        let backlog_bytes = args.queue_bytes.0;
        let memory_bytes = args.max_memory_bytes.map_or(0, |bytes| bytes.0);
        let (word_bytes, allow_flush) = (command_bytes, args.allow_flush);
        Self { value_bytes, word_bytes, command_bytes, large_bytes, backlog_bytes, memory_bytes, allow_flush }
    }
}

struct PortShared {
    node: Node,
    kv: Kv,
    together: Together,
    limits: Limits,
    secret: Option<Arc<[u8]>>,
    places: Arc<Places>,
    /// Permits for large commands; `answers` holds those for large answers.
    commands: Room,
    answers: Arc<Room>,
    /// Permits for answers that wait while further commands of their client are read.
    backlog: Arc<Room>,
    last_id: AtomicU64,
    /// Held while KEYS is executed.
    keys: Semaphore,
    warnings: Warnings,
}

/// Starts tasks that serve the port until the program ends. Returns the address.
pub(super) fn serve(port: Bound, node: Node, limits: Limits) -> String {
    let kv = node.kv().with_timeout(COMMAND_TIMEOUT);
    let door = Door::new(port.listener, descriptors::Shares::here().resp, REFUSAL);
    let places = door.places().clone();
    let together = Together::new(&kv, {
        let places = places.clone();
        move || places.taken()
    });
    let (commands, answers) = (Room::new(limits.large_bytes), Arc::new(Room::new(limits.large_bytes)));
    let backlog = Arc::new(Room::new(limits.backlog_bytes));
    let (secret, last_id) = (port.secret, AtomicU64::new(0));
    let (keys, warnings) = (Semaphore::new(1), Warnings::default());
    let shared =
        PortShared { node, kv, together, limits, secret, places, commands, answers, backlog, last_id, keys, warnings };
    tokio::spawn(accept(door, Arc::new(shared)));
    port.addr.to_string()
}

async fn accept(mut door: Door, shared: Arc<PortShared>) {
    loop {
        let (socket, place) = door.next().await;
        tokio::spawn(served(socket, shared.clone(), place));
    }
}

async fn served(socket: TcpStream, shared: Arc<PortShared>, place: OwnedSemaphorePermit) {
    let id = shared.last_id.fetch_add(1, Ordering::Relaxed) + 1;
    if let Err(error) = Connection::new(socket, shared, id).run().await {
        tracing::debug!(%error, id, "a connection to the Redis port was lost");
    }
    drop(place);
}
