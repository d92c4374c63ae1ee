//! The values that a watch reports as previous ones: a copy of the watched keys.

use std::{collections::BTreeMap, time::Duration};

use artillery_proto::{
    follower::{Copy, CopyEntry, CopyFeed, Follower},
    guards::Guards,
};
use bytes::Bytes;
use tokio::time::{Instant, sleep};

use super::target::{WatchTarget, follow};
use crate::{
    Error, Frontier, Refusal, Routing,
    error::{Advice, NotApplied},
    kv::{Change, Versioned},
};

/// The pause after an error.
const PAUSE: Duration = Duration::from_millis(20);

/// The value of each watched key as of the changes that the watch has returned.
pub(super) struct PreviousValues(BTreeMap<Bytes, Versioned<Bytes>>);

impl PreviousValues {
    /// Reads all watched keys. Returns them with the position whose state they show.
    pub(super) async fn read(target: &WatchTarget, deadline: Instant) -> Result<(Self, Frontier), Error> {
        let router = &target.kv.router;
        loop {
            let routing = router.routing_of(target.how.history_id(), deadline).await?;
            match read(target, &routing, deadline).await {
                // The routing is outdated: the refusal has let the router fetch a newer one, or soon will.
                Err(Error::Refused { reason: Refusal::OtherHistory, .. }) if Instant::now() < deadline => {
                    sleep(PAUSE).await;
                }
                read => return read,
            }
        }
    }

    /// Completes a change with the previous value of its key.
    pub(super) fn complete(&mut self, change: &mut Change) {
        let key = change.key.clone();
        change.previous = match change.value.clone() {
            Some(value) => self.0.insert(key, Versioned { version: change.version, value }),
            None => self.0.remove(&key),
        };
    }
}

async fn read(target: &WatchTarget, routing: &Routing, deadline: Instant) -> Result<(PreviousValues, Frontier), Error> {
    let (mut values, mut position) = (BTreeMap::new(), Frontier::default());
    for chain in target.chains(routing) {
        let (mut follower, mut feed) = (Follower::new(target.prefix.clone(), Guards::ALL), CopyFeed::default());
        let (mut copy, mut reports) = (Copy::new(Guards::ALL), Vec::new());
        let level = loop {
            if let Some(level) = follower.level() {
                break level;
            }
            match follow(&target.kv, routing, chain, follower.next(), deadline).await {
                Ok(reply) => follower.answer(reply, &mut reports),
                Err(Error::Refused { reason: Refusal::Compacted { .. }, .. }) => follower.fell_behind(),
                Err(error) if error.way_on() == Advice::Retry && Instant::now() < deadline => sleep(PAUSE).await,
                Err(error) => return Err(error),
            }
            if Instant::now() >= deadline {
                return Err(Error::not_applied(NotApplied::TimedOut));
            }
            for report in reports.drain(..) {
                feed.edits(report, |edit| drop(copy.edit(edit)));
            }
        };
        let value = |(key, entry): (&Bytes, &CopyEntry)| {
            (key.clone(), Versioned { version: entry.version, value: entry.value.clone() })
        };
        values.extend(copy.iter().map(value));
        position.raise(routing.history_id(), chain, level);
    }
    Ok((PreviousValues(values), position))
}
