//! The task that keeps the copy of one chain's keys.

use std::{
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

use artillery_proto::follower::{CopyChange, CopyEdit, CopyEntry, CopyFeed, Followed, Follower, FollowerQuery};
use bytes::Bytes;
use tokio::time::sleep;

use super::{
    ViewChange, ViewError,
    listener::Listener,
    shared::{ChainCopy, SharedView, versioned},
};
use crate::{
    ChainId, ClusterId, Error, Kv, Refusal, Version,
    api::{Query, Reply, WatchQuery},
    error::NotApplied,
    kv::{self, DEFAULT_TIMEOUT, Versioned},
    rpc::router::from_now,
};

/// How long one query waits for changes.
const WATCH_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it waits while callers wait for a position: members report a position without a change only when a query
/// ends.
const HURRIED_TIMEOUT: Duration = Duration::from_millis(400);
/// The pause after an error. It doubles with each further error.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Keeps the copy with this index until the view ends.
pub(super) async fn follow(kv: Kv, shared: Arc<SharedView>, index: usize) {
    let end = EndOnDrop(shared.clone());
    let mut task = ChainTask {
        follower: Follower::new(shared.prefix.clone(), artillery_proto::guards::Guards::ALL),
        feed: CopyFeed::default(),
        history: None,
        listeners: Vec::new(),
        pause: FIRST_PAUSE,
        hurried: HURRIED_TIMEOUT,
        kv,
        shared,
        index,
    };
    let error = task.run().await;
    end.0.end_with(error);
}

/// A runtime that shuts down drops its tasks. Then the views must end too.
struct EndOnDrop(Arc<SharedView>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end_with(Error::not_applied(NotApplied::Stopped).into());
    }
}

struct ChainTask {
    kv: Kv,
    shared: Arc<SharedView>,
    index: usize,
    follower: Follower,
    feed: CopyFeed,
    /// The history of the follower's position; `None`: it has no position.
    history: Option<ClusterId>,
    listeners: Vec<Weak<Listener>>,
    pause: Duration,
    /// The timeout of the next hurried query. It doubles while answers are slower than that.
    hurried: Duration,
}

impl ChainTask {
    async fn run(&mut self) -> ViewError {
        let shared = self.shared.clone();
        let copy = &shared.copies[self.index];
        loop {
            if let Some(end) = shared.end() {
                return end.clone();
            }
            self.introduce(copy);
            if let Err(error) = self.kv.router.begin_call().await {
                return error.into();
            }
            let known = self.kv.router.known();
            if known.is_some_and(|routing| routing.chains.len() as u32 != shared.chains) {
                return Error::refused(Refusal::OtherHistory, None).into();
            }
            let asked = self.follower.next();
            let waits = matches!(asked.query, Query::Changes(WatchQuery { after: Some(_), .. }));
            let is_hurried = waits && copy.is_in_hurry();
            let timeout = match waits {
                true if is_hurried => self.hurried,
                true => WATCH_TIMEOUT,
                false => DEFAULT_TIMEOUT,
            };
            let mut answer = pin!(ask(self.kv.clone(), copy.chain, shared.chains, self.history, asked, timeout));
            let answer = loop {
                tokio::select! {
                    biased;
                    answer = &mut answer => break Some(answer),
                    () = copy.wake.notified() => {
                        if let Some(end) = shared.end() {
                            return end.clone();
                        }
                        self.introduce(copy);
                        if waits && !is_hurried && copy.is_in_hurry() {
                            break None;
                        }
                    }
                }
            };
            let Some(answer) = answer else { continue };
            let error = match answer {
                Ok((history, reply)) => {
                    let asked = self.follower.next();
                    if let Err(end) = self.answered(copy, history, reply) {
                        return end;
                    }
                    // A member that is behind has answered: the same query follows.
                    if !waits && self.follower.next() == asked {
                        self.wait(copy).await;
                    }
                    continue;
                }
                Err(error) => error,
            };
            match &error {
                Error::NotApplied { reason: NotApplied::Stopped } => return error.into(),
                // A member that is slower than the short query has only not answered yet.
                Error::NotApplied { reason: NotApplied::TimedOut } if is_hurried && timeout < WATCH_TIMEOUT => {
                    self.hurried = (timeout * 2).min(WATCH_TIMEOUT);
                    continue;
                }
                Error::Refused { reason: Refusal::Compacted { .. }, .. } => self.follower.fell_behind(),
                Error::Refused { reason: Refusal::OtherHistory, .. } => {
                    self.follower.restart();
                    self.history = None;
                }
                _ => {}
            }
            copy.standing().failed(error);
            shared.progressed(false);
            self.wait(copy).await;
        }
    }

    /// Waits before the next attempt.
    async fn wait(&mut self, copy: &ChainCopy) {
        let mut over = pin!(sleep(self.pause));
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        loop {
            tokio::select! {
                biased;
                () = &mut over => return,
                () = copy.wake.notified() => {
                    if self.shared.end().is_some() {
                        return;
                    }
                    self.introduce(copy);
                }
            }
        }
    }

    /// Shows all entries to new callbacks.
    fn introduce(&mut self, copy: &ChainCopy) {
        self.listeners.retain(|listener| listener.strong_count() > 0);
        for weak in copy.take_new() {
            let Some(listener) = weak.upgrade() else { continue };
            self.listeners.push(weak);
            // Callbacks that are added earlier see the entries as changes.
            if let Some(entries) = entries(copy) {
                listener.call(&entries);
                listener.complete_one();
                self.shared.progressed(false);
            }
        }
    }

    fn answered(&mut self, copy: &ChainCopy, history: ClusterId, reply: Reply) -> Result<(), ViewError> {
        self.history = Some(history);
        self.hurried = HURRIED_TIMEOUT;
        let mut reports = Vec::new();
        self.follower.answer(reply, &mut reports);
        for report in reports {
            self.apply(copy, report)?;
        }
        let is_level = self.follower.level().is_some();
        if is_level {
            self.pause = FIRST_PAUSE;
        }
        copy.standing().answered(is_level);
        self.shared.progressed(false);
        Ok(())
    }

    fn apply(&mut self, copy: &ChainCopy, report: Followed) -> Result<(), ViewError> {
        let mut edits = Vec::new();
        self.feed.edits(report, |edit| edits.push(edit));
        let mut replaced = None;
        for edit in edits {
            match edit {
                CopyEdit::Replace(read) => {
                    let newest = read.values().map(|entry| entry.version).max();
                    // Built outside of the lock: readers don't wait for it.
                    let mut next = copy.shown().copy.clone();
                    let changes = next.edit(CopyEdit::Replace(read));
                    replaced = Some((next, changes, newest));
                }
                CopyEdit::Reach(at) => match replaced.take() {
                    Some((mut next, changes, newest)) => {
                        next.edit(CopyEdit::Reach(at));
                        let mut shown = copy.change();
                        shown.history = self.history;
                        shown.newest = shown.newest.max(newest.unwrap_or(Version::NONE));
                        let former = std::mem::replace(&mut shown.copy, next);
                        drop(shown);
                        let is_first = former.at().is_none();
                        self.report(changes);
                        if is_first {
                            self.alive().iter().for_each(|listener| listener.complete_one());
                        } else {
                            copy.standing().resyncs += 1;
                        }
                    }
                    None => drop(copy.change().copy.edit(CopyEdit::Reach(at))),
                },
                CopyEdit::Update(records) => {
                    let newest = records.iter().map(|record| record.held.version).max();
                    let mut shown = copy.change();
                    shown.newest = shown.newest.max(newest.unwrap_or(Version::NONE));
                    let changes = shown.copy.edit(CopyEdit::Update(records));
                    drop(shown);
                    self.report(changes);
                }
            }
        }
        let bytes = copy.shown().copy.bytes() + self.feed.bytes();
        self.shared.measure(copy, bytes)
    }

    fn report(&mut self, changes: Vec<CopyChange>) {
        if changes.is_empty() {
            return;
        }
        self.shared.progressed(true);
        let listeners = self.alive();
        if listeners.is_empty() {
            return;
        }
        let changes: Vec<_> = changes.into_iter().map(change).collect();
        listeners.iter().for_each(|listener| listener.call(&changes));
    }

    fn alive(&mut self) -> Vec<Arc<Listener>> {
        self.listeners.retain(|listener| listener.strong_count() > 0);
        self.listeners.iter().filter_map(Weak::upgrade).collect()
    }
}

/// All entries, as changes in key order. `None`: the copy was never complete.
fn entries(copy: &ChainCopy) -> Option<Vec<ViewChange>> {
    let shown = copy.shown();
    shown.copy.at()?;
    let new = |(key, entry): (&Bytes, &CopyEntry)| ViewChange::new(key.clone(), None, Some(versioned(entry)));
    let mut entries: Vec<_> = shown.copy.iter().map(new).collect();
    drop(shown);
    entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    Some(entries)
}

fn change(change: CopyChange) -> ViewChange {
    let CopyChange { key, before, after, expired } = change;
    let value = |entry: CopyEntry| Versioned { version: entry.version, value: entry.value };
    ViewChange { key, previous: before.map(value), value: after.map(value), expired }
}

/// Makes one read in the history `history`, if one is named. Returns the history in which it was answered.
async fn ask(
    kv: Kv,
    chain: ChainId,
    chains: u32,
    history: Option<ClusterId>,
    asked: FollowerQuery,
    timeout: Duration,
) -> Result<(ClusterId, Reply), Error> {
    let deadline = from_now(timeout);
    let routing = kv.router.routing_of(history, deadline).await?;
    if routing.chains.len() as u32 != chains {
        return Err(Error::refused(Refusal::OtherHistory, None));
    }
    let reply = kv::follow(&kv, &routing, chain, asked, deadline).await?;
    Ok((routing.history_id(), reply))
}
