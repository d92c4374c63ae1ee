//! One client of the port: its settings, and the execution of its commands.

mod own;
mod pending;
mod transaction;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use artillery_ddata::Version;
use bytes::Bytes;
use tokio::{net::tcp::OwnedWriteHalf, task::coop, time::timeout};

use self::{pending::Pending, transaction::Transaction};
use super::{
    PortShared, about,
    ask::{AboutNode, Ask, Own, understand},
    foreign::is_foreign,
    frame::{Bounds, Words},
    keys,
    output::Output,
    reply::{Protocol, Reply},
    table::{self, Kind},
};

/// The timeout of this node's own status, which normally arrives at once.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Client {
    shared: Arc<PortShared>,
    id: u64,
    protocol: Protocol,
    /// Whether the client has sent the password, or needs none.
    trusted: bool,
    name: Option<Bytes>,
    pending: Pending,
    transaction: Option<Transaction>,
    /// Watched keys and their versions at the time of WATCH.
    watched: BTreeMap<Bytes, Version>,
    pub(super) output: Output,
}

/// The next action of the connection after a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Next,
    Leave,
    /// Wait until this many other members serve, for up to `ms` milliseconds, or without limit if `ms` is 0.
    Wait {
        copies: i64,
        ms: u64,
    },
}

impl Client {
    pub(super) fn new(shared: Arc<PortShared>, id: u64, socket: OwnedWriteHalf) -> Self {
        let trusted = shared.secret.is_none();
        let mut output = Output::new(socket, shared.answers.clone(), shared.backlog.clone());
        output.let_wait(trusted);
        Self {
            output,
            trusted,
            shared,
            id,
            protocol: Protocol::Two,
            name: None,
            pending: Pending::default(),
            transaction: None,
            watched: BTreeMap::new(),
        }
    }

    fn trust(&mut self, trusted: bool) {
        self.trusted = trusted;
        self.output.let_wait(trusted);
    }

    pub(super) fn bounds(&self) -> Bounds {
        let limits = &self.shared.limits;
        Bounds { word: limits.word_bytes, command: limits.command_bytes, trusted: self.trusted }
    }

    pub(super) fn queued_bytes(&self) -> usize {
        self.transaction.as_ref().map_or(0, Transaction::bytes)
    }

    /// Runs a command, or adds it to the pending ones, which [`flush`](Self::flush) executes and answers.
    pub(super) async fn execute(&mut self, words: &Words) -> Then {
        // Without this, a client whose reads are all ready at once would starve other connections.
        coop::consume_budget().await;
        if words.first().is_some_and(|name| is_foreign(name)) {
            self.shared.warnings.warn(self.id);
            return Then::Leave;
        }
        let spec = match table::find(words) {
            Ok(spec) => spec,
            Err(error) => {
                self.misspelt(words, error);
                return Then::Next;
            }
        };
        if !self.trusted && !spec.is_for_strangers() {
            self.say(Reply::Error("NOAUTH Authentication required.".into()));
            return Then::Next;
        }
        let at_once =
            matches!(spec.kind, Kind::Exec | Kind::Discard | Kind::Multi | Kind::Watch | Kind::Quit | Kind::Reset);
        if self.transaction.is_some() && !at_once {
            self.queue(spec, words);
            return Then::Next;
        }
        match understand(spec, words, &self.shared.limits) {
            Err(reply) | Ok(Ask::Say(reply)) => self.say(reply),
            Ok(Ask::Read(read)) => self.read(read).await,
            Ok(Ask::Write(write)) => self.write(write).await,
            Ok(Ask::Own(own)) => return self.own(own).await,
            Ok(Ask::Node(about)) => return self.about(about).await,
        }
        Then::Next
    }

    /// Adds a small answer after those of all earlier commands.
    pub(super) fn say(&mut self, reply: Reply) {
        if let Some(reply) = self.pending.behind(reply) {
            self.output.say(&reply, self.protocol);
        }
    }

    /// Adds an answer after those of all earlier commands. `applied`: the command has taken effect even if the answer
    /// is lost.
    async fn tell(&mut self, reply: Reply, applied: bool) {
        self.flush().await;
        self.output.tell(vec![reply], self.protocol, applied).await;
    }

    async fn own(&mut self, own: Own) -> Then {
        match own {
            Own::Auth(words) => self.auth(&words).await,
            Own::Hello(words) => self.hello(&words).await,
            Own::Client(words) => self.client(&words),
            Own::Quit => {
                self.say(Reply::OK);
                return Then::Leave;
            }
            Own::Reset => self.reset().await,
            Own::Multi => self.multi(),
            Own::Exec => self.exec().await,
            Own::Discard => self.discard(),
            Own::Watch(keys) => self.watch(keys).await,
            Own::Unwatch => {
                self.watched.clear();
                self.say(Reply::OK);
            }
        }
        Then::Next
    }

    async fn about(&mut self, about: AboutNode) -> Then {
        self.flush().await;
        if let AboutNode::Scan(scan) = about {
            let reply = scan.ask(&self.shared.kv).await;
            self.tell(reply, false).await;
            return Then::Next;
        }
        if let AboutNode::Wait { copies, ms } = about {
            match self.copies() {
                others if copies > others => return Then::Wait { copies, ms },
                others => self.say(Reply::Number(others)),
            }
            return Then::Next;
        }
        if let AboutNode::Flush = about {
            let reply = keys::flush(&self.shared.kv).await;
            self.say(reply);
            return Then::Next;
        }
        let Ok(status) = timeout(STATUS_TIMEOUT, self.shared.node.status()).await else {
            self.say(Reply::Error("BUSY this node's status is not available in time".into()));
            return Then::Next;
        };
        let reply = match about {
            AboutNode::Info(sections) => about::info(&status, &self.shared, &sections),
            AboutNode::DbSize => about::size(&status),
            AboutNode::Role => about::role(&status),
            AboutNode::Keys(_) if about::keys(&status) > keys::MAX_KEYS as u64 => keys::too_many(),
            AboutNode::Keys(pattern) => {
                let reply = keys::matching(&self.shared.kv, &self.shared.limits, &self.shared.keys, &pattern).await;
                self.tell(reply, false).await;
                return Then::Next;
            }
            AboutNode::Scan(_) | AboutNode::Wait { .. } | AboutNode::Flush => return Then::Next,
        };
        self.say(reply);
        Then::Next
    }

    /// The number of copies of acknowledged writes beyond the first.
    pub(super) fn copies(&self) -> i64 {
        about::others(&self.shared.node)
    }
}
