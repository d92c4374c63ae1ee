//! A door that uses the Redis protocol, with a client that knows nothing of Artillery.

use std::{net::SocketAddr, time::Duration};

use artillery_ddata::Version;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, Value, aio::MultiplexedConnection, cmd};

use super::{ANSWER_TIMEOUT, Ask, Door, Reply, number, text};

/// Error codes that promise that nothing was applied.
const REFUSALS: [&str; 3] = ["NOLEASE", "NOCHAIN", "BUSY"];
const UNKNOWN: &str = "UNKNOWN";
const CONFLICT: &str = "CONFLICT";

/// A connection to one node, reopened after each operation with an unknown outcome.
pub(crate) struct Resp {
    addr: SocketAddr,
    patience: Duration,
    connection: Option<MultiplexedConnection>,
}

impl Resp {
    pub(crate) fn new(addr: SocketAddr) -> Self {
        Self { addr, patience: ANSWER_TIMEOUT, connection: None }
    }

    /// Sets the timeout of a connection attempt (at most [`ANSWER_TIMEOUT`]) and of an answer.
    pub(crate) fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    async fn connected(&mut self) -> Result<&mut MultiplexedConnection, RedisError> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let client = Client::open((self.addr.ip().to_string(), self.addr.port()))?;
                let config = AsyncConnectionConfig::new();
                let config = config
                    .set_connection_timeout(self.patience.min(ANSWER_TIMEOUT))
                    .set_response_timeout(self.patience);
                client.get_multiplexed_async_connection_with_config(&config).await?
            }
        };
        Ok(self.connection.insert(connection))
    }
}

impl Door for Resp {
    // `SET` and `DEL` don't return the version.
    const PUTS: bool = false;

    async fn ask(&mut self, key: &str, ask: Ask) -> Reply {
        let Some(command) = command(key, ask) else { return Reply::Odd(format!("{ask:?} isn't for this door")) };
        let connection = match self.connected().await {
            Ok(connection) => connection,
            // Nothing was sent.
            Err(error) => return Reply::Refused(format!("no connection: {error}")),
        };
        let reply = match command.query_async::<Value>(connection).await {
            Ok(value) => answer(ask, &value),
            Err(error) => failure(&error),
        };
        if reply == Reply::Unknown {
            // The next operation opens a new connection.
            self.connection = None;
        }
        reply
    }
}

fn command(key: &str, ask: Ask) -> Option<Cmd> {
    let mut command = match ask {
        Ask::Set(_) => cmd("SET"),
        Ask::Get | Ask::Count => cmd("GET"),
        Ask::Swap(..) => cmd("VSET"),
        Ask::Look => cmd("VGET"),
        Ask::Add => cmd("INCR"),
        Ask::Put(_) | Ask::Delete => return None,
    };
    command.arg(key);
    match ask {
        Ask::Set(value) => command.arg(text(value)),
        Ask::Swap(expected, value) => command.arg(expected.to_string()).arg(text(value)),
        _ => &mut command,
    };
    Some(command)
}

fn answer(ask: Ask, value: &Value) -> Reply {
    let reply = match (ask, value) {
        (Ask::Set(_), Value::Okay) => Some(Reply::Written(None)),
        (Ask::Swap(..), value) => version(value).map(|version| Reply::Written(Some(version))),
        (Ask::Get, Value::Nil) => Some(Reply::Found(None)),
        (Ask::Get, Value::BulkString(bytes)) => Some(Reply::Found(Some((None, number(bytes))))),
        (Ask::Look, Value::Array(parts)) => look(parts),
        (Ask::Add, Value::Int(count)) => u64::try_from(*count).ok().map(Reply::Counted),
        (Ask::Count, Value::Nil) => Some(Reply::Counted(0)),
        (Ask::Count, Value::BulkString(bytes)) => {
            str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).map(Reply::Counted)
        }
        _ => None,
    };
    reply.unwrap_or_else(|| Reply::Odd(format!("{ask:?} was answered by {value:?}")))
}

/// The parts are the value, the version, and whether a version query was needed, which is ignored.
fn look(parts: &[Value]) -> Option<Reply> {
    let [value, at, Value::Int(_)] = parts else { return None };
    match (value, version(at)?) {
        (Value::Nil, Version::NONE) => Some(Reply::Found(None)),
        (Value::BulkString(bytes), at) => Some(Reply::Found(Some((Some(at), number(bytes))))),
        _ => None,
    }
}

fn version(value: &Value) -> Option<Version> {
    match value {
        Value::SimpleString(text) => text.parse().ok(),
        Value::BulkString(bytes) => str::from_utf8(bytes).ok()?.parse().ok(),
        _ => None,
    }
}

fn failure(error: &RedisError) -> Reply {
    let detail = error.detail().unwrap_or_default();
    match error.code() {
        Some(code) if REFUSALS.contains(&code) => Reply::Refused(format!("{code} {detail}")),
        Some(UNKNOWN) => Reply::Unknown,
        Some(CONFLICT) => match detail.parse() {
            Ok(version) => Reply::Conflict(version),
            Err(_) => Reply::Odd(format!("{CONFLICT} {detail}")),
        },
        Some(code) => Reply::Odd(format!("{code} {detail}")),
        // The connection broke, or the operation timed out.
        None if error.is_io_error() || error.is_timeout() || error.is_connection_dropped() => Reply::Unknown,
        None => Reply::Odd(error.to_string()),
    }
}
