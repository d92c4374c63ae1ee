//! MULTI, EXEC, DISCARD and WATCH: commands are gathered and run as one update, provided that the watched keys still
//! have their recorded versions.

use artillery_ddata::{
    Script,
    kv::{Expected, Group},
};
use bytes::Bytes;

use super::{Client, Reply, Words};
use crate::resp::{
    ask::{AboutNode, Ask, Own, understand},
    failure::{told, told_of_read},
    read::Read,
    script::{self, Results},
    table::Spec,
    write::Write,
};

/// Maximum number of commands of a transaction, and of watched keys.
const MAX_COMMANDS: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Transaction {
    queued: Vec<Queued>,
    bytes: usize,
    /// One of its commands was invalid, so EXEC will fail.
    spoilt: bool,
}

#[derive(Debug)]
enum Queued {
    Say(Reply),
    Read(Read),
    Write(Write),
    /// WAIT: answered by the number of other members that hold the writes.
    Copies,
}

impl Transaction {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Client {
    pub(super) fn multi(&mut self) {
        if self.transaction.is_some() {
            return self.say(Reply::error("MULTI calls can not be nested"));
        }
        self.transaction = Some(Transaction::default());
        self.say(Reply::OK);
    }

    pub(super) fn discard(&mut self) {
        if self.transaction.take().is_none() {
            return self.say(Reply::error("DISCARD without MULTI"));
        }
        self.watched.clear();
        self.say(Reply::OK);
    }

    /// Handles an unknown command, or one with a wrong number of words: in a transaction it makes EXEC fail. An invalid
    /// EXEC itself ends the transaction.
    pub(super) fn misspelt(&mut self, words: &Words, error: Reply) {
        if let Some(transaction) = &mut self.transaction {
            transaction.spoilt = true;
        }
        match error {
            Reply::Error(text) if words.first().is_some_and(|name| name.eq_ignore_ascii_case(b"exec")) => {
                self.transaction = None;
                self.watched.clear();
                let why = text.strip_prefix("ERR ").unwrap_or(&text);
                self.say(Reply::Error(format!("EXECABORT Transaction discarded because of: {why}").into()));
            }
            error => self.say(error),
        }
    }

    pub(super) fn queue(&mut self, spec: &Spec, words: &Words) {
        let bytes = words.iter().map(Bytes::len).sum::<usize>();
        let most = self.shared.limits.command_bytes;
        let Some(transaction) = &mut self.transaction else { return };
        let queued = match understand(spec, words, &self.shared.limits) {
            _ if !spec.fits_transactions() => {
                Err(Reply::error(format_args!("{} is not allowed in transactions", spec.name.to_uppercase())))
            }
            _ if transaction.bytes + bytes > most || transaction.queued.len() >= MAX_COMMANDS => Err(Reply::error(
                format_args!("a transaction may have at most {MAX_COMMANDS} commands and {most} bytes"),
            )),
            // As in Redis, invalid arguments are reported by EXEC.
            Ok(Ask::Say(reply)) | Err(reply) => Ok(Queued::Say(reply)),
            Ok(Ask::Read(read)) => Ok(Queued::Read(read)),
            Ok(Ask::Write(write)) => Ok(Queued::Write(write)),
            Ok(Ask::Node(AboutNode::Wait { .. })) => Ok(Queued::Copies),
            Ok(Ask::Own(Own::Unwatch)) => Ok(Queued::Say(Reply::OK)),
            Ok(Ask::Node(_) | Ask::Own(_)) => Err(Reply::error("this command is not allowed in transactions")),
        };
        match queued {
            Ok(queued) => {
                transaction.queued.push(queued);
                transaction.bytes += bytes;
                self.say(Reply::Word("QUEUED"));
            }
            Err(error) => {
                transaction.spoilt = true;
                self.say(error);
            }
        }
    }

    pub(super) async fn exec(&mut self) {
        let Some(transaction) = self.transaction.take() else {
            return self.say(Reply::error("EXEC without MULTI"));
        };
        let watched = std::mem::take(&mut self.watched);
        if transaction.spoilt {
            let text = "EXECABORT Transaction discarded because of previous errors.";
            return self.say(Reply::Error(text.into()));
        }
        self.flush().await;
        let script = transaction.queued.iter().flat_map(groups).collect::<Script>();
        let script = watched.iter().fold(script, |script, (key, version)| {
            script.require(key, if version.is_none() { Expected::Absent } else { Expected::Version(*version) })
        });
        let copies =
            if transaction.queued.iter().any(|queued| matches!(queued, Queued::Copies)) { self.copies() } else { 0 };
        if script.is_empty() && watched.is_empty() {
            return self.say(Reply::List(transaction.queued.into_iter().map(|queued| queued.plain(copies)).collect()));
        }
        let reply = match self.shared.kv.run(script).await {
            Ok(done) => {
                let mut results = Results { version: done.version, outcomes: done.result.iter() };
                let answer = |queued: Queued| match queued {
                    Queued::Read(read) => results.of_read(&read),
                    Queued::Write(write) => results.of_write(&write),
                    other => other.plain(copies),
                };
                Reply::List(transaction.queued.into_iter().map(answer).collect())
            }
            Err(error) => match error.into_conflict() {
                // A watched key has changed.
                Ok(_) => Reply::NoList,
                Err(error) => told(&error),
            },
        };
        self.tell(reply, true).await;
    }

    pub(super) async fn watch(&mut self, keys: Vec<Bytes>) {
        if self.transaction.is_some() {
            return self.say(Reply::error("WATCH inside MULTI is not allowed"));
        }
        self.flush().await;
        for key in keys {
            if self.watched.contains_key(&key) {
                continue;
            }
            if self.watched.len() >= MAX_COMMANDS {
                return self.say(Reply::error(format_args!("at most {MAX_COMMANDS} keys can be watched")));
            }
            match self.shared.kv.get(&key).await {
                Ok(read) => self.watched.insert(key, read.version()),
                Err(error) => return self.say(told_of_read(&self.shared.kv, &key, &error)),
            };
        }
        self.say(Reply::OK);
    }
}

fn groups(queued: &Queued) -> Vec<Group> {
    match queued {
        Queued::Read(read) => vec![script::of_read(read)],
        Queued::Write(write) => script::of_write(write),
        Queued::Say(_) | Queued::Copies => Vec::new(),
    }
}

impl Queued {
    /// The answer to a command that is not part of the script.
    fn plain(self, copies: i64) -> Reply {
        match self {
            Self::Say(reply) => reply,
            Self::Copies => Reply::Number(copies),
            Self::Read(_) | Self::Write(_) => Reply::Absent,
        }
    }
}
