//! Client sessions (docs/DESIGN.md §9): one in each chain, opened when the first write needs it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::OnceCell;

use super::numbers::Numbers;
use crate::{ChainId, Version, update::RequestKey};

/// The sessions of one client.
#[derive(Debug, Default)]
pub(super) struct Requests {
    by_chain: Mutex<BTreeMap<ChainId, Arc<ClientSession>>>,
}

/// One of them.
#[derive(Debug, Default)]
pub(super) struct ClientSession {
    /// Its id, once it is open.
    pub(super) id: OnceCell<Version>,
    numbers: Mutex<Numbers>,
}

/// A request that is under way. Dropped, it counts as answered: nobody will ask for it.
#[derive(Debug)]
pub(super) struct Numbered {
    session: Arc<ClientSession>,
    pub(super) key: RequestKey,
}

impl Requests {
    /// The session in a chain; the caller sees to its being opened.
    pub(super) fn session(&self, chain: ChainId) -> Arc<ClientSession> {
        lock(&self.by_chain).entry(chain).or_default().clone()
    }

    /// Lets go of a session that the chain has evicted, or in which an outcome is to be settled before there is room again: the next
    /// write opens another one.
    pub(super) fn forget(&self, chain: ChainId, session: Version) {
        let mut sessions = lock(&self.by_chain);
        if sessions.get(&chain).is_some_and(|known| known.id.get() == Some(&session)) {
            sessions.remove(&chain);
        }
    }
}

impl Requests {
    /// The outcome of a request, which was unknown, is known by now.
    pub(super) fn settled(&self, chain: ChainId, session: Version, number: u64) {
        let known = lock(&self.by_chain).get(&chain).filter(|known| known.id.get() == Some(&session)).cloned();
        if let Some(known) = known {
            lock(&known.numbers).settle(number);
        }
    }
}

impl ClientSession {
    pub(super) fn begin(self: &Arc<Self>, id: Version) -> Numbered {
        let (number, lowest) = lock(&self.numbers).begin();
        Numbered { session: self.clone(), key: RequestKey { session: id, number, lowest } }
    }
}

impl Numbered {
    /// Whether its session has room for no more before an unknown outcome is settled.
    pub(super) fn is_stuck(&self) -> bool {
        lock(&self.session.numbers).are_stuck()
    }

    /// Its outcome is unknown, and its id is told to the caller: it stays askable for a while.
    pub(super) fn keep(self) {
        lock(&self.session.numbers).keep(self.key.number);
        // The number stays open, so this isn't its end.
        let mut this = self;
        this.key.number = 0;
    }
}

impl Drop for Numbered {
    fn drop(&mut self) {
        lock(&self.session.numbers).end(self.key.number);
    }
}

/// A panic leaves nothing half done in there.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_nobody_waits_for_holds_nothing_back() {
        let (requests, id) = (Requests::default(), Version::new(1, 7));
        let session = requests.session(ChainId(3));
        let (dropped, unknown) = (session.begin(id), session.begin(id));
        assert_eq!((dropped.key.number, unknown.key.number), (1, 2));
        drop(dropped);
        unknown.keep();
        assert_eq!(session.begin(id).key, RequestKey { session: id, number: 3, lowest: 2 });
        assert!(Arc::ptr_eq(&session, &requests.session(ChainId(3))));
        requests.forget(ChainId(3), Version::new(1, 8));
        assert!(Arc::ptr_eq(&session, &requests.session(ChainId(3))), "another one was meant");
        session.id.set(id).unwrap();
        requests.forget(ChainId(3), id);
        assert!(!Arc::ptr_eq(&session, &requests.session(ChainId(3))));
    }
}
