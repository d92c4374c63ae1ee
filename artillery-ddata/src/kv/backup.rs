//! Backups: a client copies each chain, part by part.

use std::{fmt, sync::Arc, time::Duration};

use artillery_core::internal::random;
use artillery_proto::{
    backup::{BackupWriter, ChainCopy},
    guards::Guards,
};

use super::{get::no_read, handle::how_to_read};
use crate::{
    ChainId, Error, Kv, MemberId, Mode, Refusal, Routing,
    api::{CopyReply, Reply},
    error::NotApplied,
    rpc::router::{CallAnswer, HowToRead, from_now},
};

/// A chain is begun again this many times if the members no longer keep the updates that the copy needs.
const RESTARTS: u64 = 10;

/// How often in a row a part is asked for without an answer, at one member after the other.
const ATTEMPTS: usize = 6;

/// A backup that is being made. Members keep nothing for it, and wait for nothing: a caller that reads slowly only gets a
/// later point of the history, and more updates to reach it.
///
/// A serving member answers, the head only if no other one does. If a caller is so slow that the members no longer keep the
/// updates since the beginning, the chain begins again: the file then has it twice, and only the second time matters.
pub struct Backup {
    kv: Kv,
    how: HowToRead,
    routing: Option<Arc<Routing>>,
    writer: Option<BackupWriter>,
    /// The chains left, the present one last.
    chains: Vec<ChainId>,
    copy: ChainCopy,
    /// The position among the members of the one to ask.
    turn: usize,
    progress: BackupProgress,
    ended: bool,
}

/// The progress of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BackupProgress {
    /// Bytes of the file.
    pub bytes: u64,
    /// How often a chain was begun again, since the caller was too slow.
    pub restarts: u64,
}

impl Backup {
    pub(super) fn new(kv: &Kv) -> Self {
        Self {
            kv: kv.clone(),
            how: HowToRead { session: None, ..how_to_read(kv) },
            routing: None,
            writer: None,
            chains: Vec::new(),
            copy: ChainCopy::new(Guards::ALL),
            turn: 0,
            progress: BackupProgress::default(),
            ended: false,
        }
    }

    /// Sets how long each request for a part may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.how.timeout = timeout;
        self
    }

    /// The progress until now.
    pub fn progress(&self) -> BackupProgress {
        self.progress
    }

    /// The next bytes of the file. `None` after the last ones, or after an error: then the file is incomplete. Dropping the
    /// future loses nothing.
    ///
    /// # Errors
    /// [`Error::Refused`] or [`Error::NotApplied`].
    pub async fn next(&mut self) -> Option<Result<Vec<u8>, Error>> {
        if self.ended {
            return None;
        }
        let next = self.advance().await;
        match &next {
            Ok(bytes) => self.progress.bytes += bytes.len() as u64,
            Err(_) => self.ended = true,
        }
        Some(next)
    }

    async fn advance(&mut self) -> Result<Vec<u8>, Error> {
        let routing = match &self.routing {
            Some(routing) => routing.clone(),
            None => {
                self.kv.router.begin_call().await?;
                let routing = self.kv.router.routing_of(None, from_now(self.how.timeout)).await?;
                self.chains = routing.chains.iter().rev().map(|config| config.chain).collect();
                self.routing.insert(routing).clone()
            }
        };
        let Some(writer) = &mut self.writer else {
            let (writer, header) = BackupWriter::new(random::wide());
            self.writer = Some(writer);
            return Ok(header);
        };
        loop {
            let Some(&chain) = self.chains.last() else {
                self.ended = true;
                let writer = self.writer.take().ok_or(Error::not_applied(NotApplied::Stopped))?;
                return writer.finish(routing.cluster, routing.history).map_err(unwritten);
            };
            let full = match self.copy.next() {
                Some(query) => {
                    let mode = self.copy.mode();
                    let asked = Asked { kv: &self.kv, how: &self.how, routing: &routing, chain };
                    let reply = match asked.part(query, mode, &mut self.turn).await {
                        Err(Error::Refused {
                            // An update that is larger than a frame is passed over by beginning again after it.
                            reason: Refusal::Compacted { .. } | Refusal::ResultsTooLarge { .. },
                            ..
                        }) if self.progress.restarts < RESTARTS => {
                            self.progress.restarts += 1;
                            self.copy = ChainCopy::new(Guards::ALL);
                            continue;
                        }
                        reply => reply?,
                    };
                    let mut full = Vec::new();
                    for message in self.copy.answer(reply).map_err(unwritten)? {
                        full.extend(writer.message(chain, message).map_err(unwritten)?.unwrap_or_default());
                    }
                    Some(full).filter(|full| !full.is_empty())
                }
                None => {
                    self.chains.pop();
                    let copy = std::mem::replace(&mut self.copy, ChainCopy::new(Guards::ALL));
                    writer.end_chain(chain, copy.at()).map_err(unwritten)?
                }
            };
            if let Some(bytes) = full {
                return Ok(bytes);
            }
        }
    }
}

/// A part that doesn't follow the one before, or that is too large for a file. No member sends one.
fn unwritten(_: impl fmt::Display) -> Error {
    Error::refused(Refusal::SnapshotGone, None)
}

struct Asked<'a> {
    kv: &'a Kv,
    how: &'a HowToRead,
    routing: &'a Arc<Routing>,
    chain: ChainId,
}

impl Asked<'_> {
    /// Asks the members in turn, the head last.
    async fn part(
        &self,
        query: crate::api::Query,
        mode: crate::ReadMode,
        turn: &mut usize,
    ) -> Result<CopyReply, Error> {
        let router = &self.kv.router;
        let mut failed = None;
        for _ in 0..ATTEMPTS {
            router.begin_call().await?;
            let deadline = from_now(self.how.timeout);
            // The members change, the history must not.
            let routing = router.routing_of(Some(self.routing.history_id()), deadline).await?;
            let member = routing.chain(self.chain).and_then(|config| match config.mode {
                // In this mode only the tail serves strong reads.
                Mode::Classic => config.tail(),
                _ => by_turn(config.serving().collect(), *turn),
            });
            let how = HowToRead { mode, ..self.how.clone() };
            match router.read_in(&routing, self.chain, query.clone(), &how, member, deadline).await {
                Ok(CallAnswer { reply: Reply::Copied(reply), .. }) => return Ok(*reply),
                Ok(CallAnswer { reply, node, .. }) => return Err(no_read(&reply, node)),
                Err(
                    error @ Error::Refused {
                        reason: Refusal::Compacted { .. } | Refusal::ResultsTooLarge { .. } | Refusal::OtherHistory,
                        ..
                    },
                )
                | Err(error @ Error::NotApplied { reason: NotApplied::Stopped }) => return Err(error),
                Err(error) => failed = Some(error),
            }
            *turn += 1;
        }
        Err(failed.unwrap_or(Error::not_applied(NotApplied::TimedOut)))
    }
}

/// The members between head and tail first, then the tail, then the head.
fn by_turn(serving: Vec<MemberId>, turn: usize) -> Option<MemberId> {
    let order: Vec<_> = serving.iter().skip(1).chain(serving.first()).copied().collect();
    order.get(turn % order.len().max(1)).copied()
}

impl fmt::Debug for Backup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backup").field("progress", &self.progress).finish_non_exhaustive()
    }
}
