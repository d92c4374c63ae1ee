//! Client sessions (docs/DESIGN.md §9): one in each chain, opened when the first write needs it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

use super::request_numbers::{MAX_UNDER_WAY, Numbers};
use crate::{ChainId, Version, types::update::RequestKey};

#[derive(Debug, Default)]
pub(super) struct Requests {
    by_chain: Mutex<BTreeMap<ChainId, ChainSessions>>,
}

#[derive(Debug, Default)]
struct ChainSessions {
    now: Arc<ClientSession>,
    /// The previous session, which may still have requests in flight.
    former: Option<Arc<ClientSession>>,
}

#[derive(Debug)]
pub(super) struct ClientSession {
    pub(super) id: OnceCell<Version>,
    numbers: Mutex<Numbers>,
    places: Arc<Semaphore>,
}

impl Default for ClientSession {
    fn default() -> Self {
        let places = Arc::new(Semaphore::new(MAX_UNDER_WAY));
        Self { id: OnceCell::new(), numbers: Mutex::default(), places }
    }
}

/// A request in flight. Dropping it marks it as answered: its caller will never query the outcome.
#[derive(Debug)]
pub(super) struct Numbered {
    session: Arc<ClientSession>,
    pub(super) key: RequestKey,
    _place: RequestSlot,
}

/// A slot for a request in flight in a session. Dropping it frees the slot.
pub(super) type RequestSlot = OwnedSemaphorePermit;

impl Requests {
    /// The session in a chain. The caller opens it if necessary.
    pub(super) fn session(&self, chain: ChainId) -> Arc<ClientSession> {
        lock(&self.by_chain).entry(chain).or_default().now.clone()
    }

    /// Drops a session that the chain has evicted: the next write opens another one.
    pub(super) fn forget(&self, chain: ChainId, session: Version) {
        if let Some(sessions) = lock(&self.by_chain).get_mut(&chain)
            && sessions.now.is(session)
        {
            sessions.now = Arc::default();
        }
    }

    /// Called when a session is full. Returns whether requests may use another session: this one was left now or
    /// before.
    ///
    /// A session is left if it [is stuck](Numbers::are_stuck); its open requests are still settled in it. It is not
    /// left while requests are in flight in the previous session: a third session could evict the records that those
    /// requests need.
    pub(super) fn leave(&self, chain: ChainId, session: Version) -> bool {
        let mut by_chain = lock(&self.by_chain);
        let Some(sessions) = by_chain.get_mut(&chain) else { return false };
        if !sessions.now.is(session) {
            return true;
        }
        let is_over = sessions.former.as_ref().is_none_or(|former| lock(&former.numbers).are_over());
        let leaves = is_over && lock(&sessions.now.numbers).are_stuck();
        if leaves {
            sessions.former = Some(std::mem::take(&mut sessions.now));
        }
        leaves
    }

    /// Called when the unknown outcome of a request has become known.
    pub(super) fn settled(&self, chain: ChainId, session: Version, number: u64) {
        if let Some(session) = self.known(chain, session) {
            lock(&session.numbers).settle(number);
        }
    }

    /// The lowest open number of a session; 0 if no number is open, or the session isn't known here.
    pub(super) fn lowest(&self, chain: ChainId, session: Version) -> u64 {
        let lowest = self.known(chain, session).and_then(|session| lock(&session.numbers).lowest());
        lowest.unwrap_or(0)
    }

    fn known(&self, chain: ChainId, session: Version) -> Option<Arc<ClientSession>> {
        let by_chain = lock(&self.by_chain);
        let ChainSessions { now, former } = by_chain.get(&chain)?;
        [Some(now), former.as_ref()].into_iter().flatten().find(|known| known.is(session)).cloned()
    }
}

impl ClientSession {
    fn is(&self, id: Version) -> bool {
        self.id.get() == Some(&id)
    }

    pub(super) fn try_place(&self) -> Option<RequestSlot> {
        self.places.clone().try_acquire_owned().ok()
    }

    /// Waits for a slot, in the order of the calls. `None`: no slot will ever be free.
    pub(super) async fn place(&self) -> Option<RequestSlot> {
        self.places.clone().acquire_owned().await.ok()
    }

    pub(super) fn begin(self: &Arc<Self>, id: Version, place: RequestSlot) -> Numbered {
        let (number, lowest) = lock(&self.numbers).begin();
        Numbered { session: self.clone(), key: RequestKey { session: id, number, lowest }, _place: place }
    }
}

impl Numbered {
    /// The request's key, with the current lowest open number.
    pub(super) fn renewed(&self) -> RequestKey {
        let lowest = lock(&self.session.numbers).lowest().unwrap_or(self.key.number);
        RequestKey { lowest, ..self.key }
    }

    /// Called when the request's outcome is unknown and its caller got its id. The outcome can then be queried until it
    /// is too old.
    pub(super) fn keep(self) {
        lock(&self.session.numbers).keep(self.key.number);
        // Clear the number: dropping this must not end the request.
        let mut this = self;
        this.key.number = 0;
    }
}

impl Drop for Numbered {
    fn drop(&mut self) {
        lock(&self.session.numbers).end(self.key.number);
    }
}

/// No code that holds the lock can panic halfway through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(session: &Arc<ClientSession>, id: Version) -> Numbered {
        session.begin(id, session.try_place().unwrap())
    }

    #[test]
    fn a_dropped_request_holds_nothing_back() {
        let (requests, id) = (Requests::default(), Version::new(1, 7));
        let session = requests.session(ChainId(3));
        let (dropped, unknown) = (begin(&session, id), begin(&session, id));
        assert_eq!((dropped.key.number, unknown.key.number), (1, 2));
        drop(dropped);
        unknown.keep();
        assert_eq!(begin(&session, id).key, RequestKey { session: id, number: 3, lowest: 2 });
        assert!(Arc::ptr_eq(&session, &requests.session(ChainId(3))));
        requests.forget(ChainId(3), Version::new(1, 8));
        assert!(Arc::ptr_eq(&session, &requests.session(ChainId(3))), "another session was forgotten");
        session.id.set(id).unwrap();
        requests.forget(ChainId(3), id);
        assert!(!Arc::ptr_eq(&session, &requests.session(ChainId(3))));
    }

    #[test]
    fn a_stuck_session_is_left_once_the_previous_one_is_over() {
        let (requests, chain) = (Requests::default(), ChainId(0));
        let opened = |sequence| {
            let (session, id) = (requests.session(chain), Version::new(1, sequence));
            session.id.set(id).unwrap();
            (session, id)
        };
        let use_up = |session: &Arc<ClientSession>, id| (0..20).for_each(|_| drop(begin(session, id)));
        let (session, first) = opened(7);
        assert!(!requests.leave(chain, first), "no request holds it up");
        let slow = begin(&session, first);
        use_up(&session, first);
        assert!(requests.leave(chain, first) && requests.leave(chain, first), "it was left already");
        let (session, second) = opened(8);
        let unknown = begin(&session, second);
        use_up(&session, second);
        assert!(!requests.leave(chain, second), "a request is still in flight in the first session");
        slow.keep();
        assert!(requests.leave(chain, second), "the caller may ask for its outcome now");
        let (session, third) = opened(9);
        use_up(&session, third);
        assert!(!requests.leave(chain, third));
        drop(unknown);
    }

    #[test]
    fn requests_of_a_left_session_are_settled_there() {
        let (requests, chain, id) = (Requests::default(), ChainId(0), Version::new(1, 7));
        let session = requests.session(chain);
        session.id.set(id).unwrap();
        let unknown: Vec<_> = (0..20).map(|_| begin(&session, id)).step_by(2).collect();
        unknown.into_iter().for_each(Numbered::keep);
        assert!(requests.leave(chain, id));
        assert_eq!(requests.lowest(chain, id), 1);
        requests.settled(chain, id, 1);
        assert_eq!(requests.lowest(chain, id), 3);
        assert_eq!(requests.lowest(chain, Version::new(1, 8)), 0);
    }

    #[tokio::test]
    async fn requests_under_way_are_bounded() {
        let (session, id) = (Arc::new(ClientSession::default()), Version::new(1, 7));
        let mut all: Vec<_> = (0..MAX_UNDER_WAY).map(|_| begin(&session, id)).collect();
        assert!(session.try_place().is_none());
        let (mut first, mut second) = (Box::pin(session.place()), Box::pin(session.place()));
        assert!(poll_once(first.as_mut()).is_pending() && poll_once(second.as_mut()).is_pending());
        all.pop().unwrap().keep();
        let place = first.await.unwrap();
        assert!(poll_once(second.as_mut()).is_pending());
        assert_eq!(session.begin(id, place).key.number, MAX_UNDER_WAY as u64 + 1);
        drop(second.await.unwrap());
    }

    fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> std::task::Poll<F::Output> {
        future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
    }
}
