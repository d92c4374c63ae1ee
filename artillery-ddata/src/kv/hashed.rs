//! Pages of keys in hash order, by a stateless cursor.

use bytes::Bytes;

use super::{Call, get::no_read, handle::how_to_read};
use crate::{
    Error, Kv,
    api::{HashedQuery, HashedReply, Query, Reply},
    rpc::router::{CallAnswer, HowToRead, from_now},
    store::position,
};

const LIMIT: u32 = 10;

/// A page of keys in hash order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyPage {
    /// The keys. A page may be empty even if more pages follow.
    pub keys: Vec<Bytes>,
    /// The cursor of the next page. 0: this was the last page.
    pub next: u64,
}

/// A call for a page of keys in hash order. Set the options that differ from the handle's defaults, and await it.
#[derive(Debug, Clone)]
#[must_use = "a call does nothing until it is awaited"]
pub struct ScanHashed {
    kv: Kv,
    cursor: u64,
    limit: u32,
    how: HowToRead,
}

impl ScanHashed {
    pub(super) fn new(kv: &Kv, cursor: u64) -> Self {
        Self { kv: kv.clone(), cursor, limit: LIMIT, how: how_to_read(kv) }
    }

    /// Sets the maximum number of keys per page; 10 by default, at least 1. Members apply their own limits, too, so a
    /// page may hold fewer keys, or none. Keys with the same hash are never split between pages, so a page may hold
    /// more.
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }

    read_options! {
        /// Sets the mode. [`ReadMode::Eventual`](crate::ReadMode::Eventual) returns committed keys only, perhaps of an
        /// old state: it may miss a recently created key.
    }

    async fn run(self) -> Result<KeyPage, Error> {
        let Self { kv, cursor: from, limit, how } = self;
        kv.router.begin_call().await?;
        let deadline = from_now(how.timeout);
        let routing = kv.router.routing_of(how.history_id(), deadline).await?;
        let (mut keys, mut next) = (Vec::new(), 0);
        for config in &routing.chains {
            let query = Query::Hashed(HashedQuery { from, limit });
            let CallAnswer { reply, node, .. } =
                kv.router.read_in(&routing, config.chain, query, &how, None, deadline).await?;
            let Reply::Hashed(HashedReply { keys: found, next: at, .. }) = reply else {
                return Err(no_read(&reply, node));
            };
            keys.extend(found);
            next = earlier(next, at);
        }
        Ok(if routing.chains.len() == 1 { KeyPage { keys, next } } else { merged(keys, next, limit) })
    }
}

/// The earlier of two cursors. 0 is the end, after all others.
fn earlier(a: u64, b: u64) -> u64 {
    if a == 0 || b != 0 && b < a { b } else { a }
}

/// Merges the pages of several chains into one of at most `limit` keys, apart from keys with the same hash. `next` is
/// the earliest of their cursors. Keys from there on, and keys beyond the limit, are left to the next page.
fn merged(keys: Vec<Bytes>, next: u64, limit: u32) -> KeyPage {
    let mut placed: Vec<(u64, Bytes)> = keys.into_iter().map(|key| (position(&key), key)).collect();
    placed.retain(|&(at, _)| next == 0 || at < next);
    placed.sort_unstable();
    let last = placed.get((limit.max(1) as usize).saturating_sub(1)).map(|&(at, _)| at);
    let end = last.map_or(placed.len(), |last| placed.partition_point(|&(at, _)| at <= last));
    let next = placed.get(end).map_or(next, |&(at, _)| at);
    placed.truncate(end);
    KeyPage { keys: placed.into_iter().map(|(_, key)| key).collect(), next }
}

impl IntoFuture for ScanHashed {
    type Output = Result<KeyPage, Error>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_comes_after_all_cursors() {
        assert_eq!([earlier(0, 0), earlier(0, 3), earlier(3, 0), earlier(3, 2), earlier(2, 3)], [0, 3, 3, 2, 2]);
    }

    #[test]
    fn pages_of_several_chains_are_merged() {
        let mut keys: Vec<Bytes> = (0..9).map(|n| Bytes::from(format!("key-{n}"))).collect();
        keys.sort_by_key(|key| position(key));
        let shuffled = || keys.iter().rev().cloned().collect();
        let at = |n: usize| position(&keys[n]);
        assert_eq!(merged(shuffled(), 0, 9), KeyPage { keys: keys.clone(), next: 0 });
        assert_eq!(merged(shuffled(), at(8) + 1, 99), KeyPage { keys: keys.clone(), next: at(8) + 1 });
        assert_eq!(merged(shuffled(), 0, 4), KeyPage { keys: keys[..4].to_vec(), next: at(4) });
        assert_eq!(merged(shuffled(), at(3), 4), KeyPage { keys: keys[..3].to_vec(), next: at(3) });
        assert_eq!(merged(shuffled(), at(0), 4), KeyPage { keys: Vec::new(), next: at(0) });
        assert_eq!(merged(shuffled(), 0, 0).keys, keys[..1]);
    }
}
