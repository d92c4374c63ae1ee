//! The history of a node. Messages of another history are ignored.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use artillery_core::internal::watch;

use crate::control::{History, Met};

/// The history in which an incarnation takes part. `None`: it started after the founding and has met no member yet.
/// Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Histories {
    mine: Arc<Mutex<Option<History>>>,
    newer: watch::Sender<Option<History>>,
    parted: watch::Sender<Option<History>>,
}

impl Histories {
    pub(crate) fn new(mine: Option<History>) -> Self {
        Self { mine: Arc::new(Mutex::new(mine)), newer: watch::Sender::new(None), parted: watch::Sender::new(None) }
    }

    /// The histories of a node that has recovered into `next`. `self` keeps the former history, for messages still in
    /// flight.
    pub(crate) fn followed_by(&self, next: History) -> Self {
        Self { mine: Arc::new(Mutex::new(Some(next))), newer: self.newer.clone(), parted: watch::Sender::new(None) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<History>> {
        self.mine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn mine(&self) -> Option<History> {
        *self.lock()
    }

    /// Whether messages of the history `theirs` may be handled. A node without a history adopts `theirs`.
    ///
    /// # Errors
    /// `Some`: the peer's history is over. The value is this node's history, as the answer to the peer. `None`:
    /// `theirs` is newer or has diverged. The peer gets no answer.
    pub(crate) fn meet(&self, theirs: History) -> Result<(), Option<History>> {
        // Release the lock before anything else happens.
        let met = History::meet(&mut self.lock(), theirs);
        match met {
            Met::Same => Ok(()),
            Met::Over(mine) => Err(Some(mine)),
            Met::LeftBehind => {
                self.newer.send_if_modified(|newer| newer.replace(theirs) != Some(theirs));
                Err(None)
            }
            Met::Parted => {
                if self.parted.send_if_modified(|parted| parted.replace(theirs) != Some(theirs)) {
                    let mine = self.mine();
                    tracing::error!(?mine, %theirs, "the cluster was recovered twice: stop the nodes of one of the two histories");
                }
                Err(None)
            }
        }
    }

    /// The last history met that has diverged from this node's: neither gives way to the other.
    pub(crate) fn parted(&self) -> Option<History> {
        *self.parted.borrow()
    }

    /// Waits until a message shows that the cluster was recovered without this node, in a history other than `known`.
    pub(crate) async fn left_behind(&self, known: Option<History>) -> History {
        let mut newer = self.newer.subscribe();
        match newer.wait_for(|newer| newer.is_some() && *newer != known).await.map(|newer| *newer) {
            Ok(Some(newer)) => newer,
            // `self` owns the sender.
            _ => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClusterId;

    #[test]
    fn a_newer_history_ends_an_older_one_and_is_never_ended_by_it() {
        let first = History::first(ClusterId(1));
        let (one, other) = (first.next(1), first.next(2));
        let node = Histories::new(Some(first));
        assert_eq!((node.meet(first), *node.newer.borrow()), (Ok(()), None));
        assert_eq!((node.meet(one), *node.newer.borrow()), (Err(None), Some(one)));
        assert_eq!(node.mine(), Some(first), "this incarnation keeps its history");
        let recovered = Histories::new(Some(first)).followed_by(one);
        assert_eq!((recovered.meet(first), *recovered.newer.borrow()), (Err(Some(one)), None));
        assert_eq!((recovered.meet(other), *recovered.newer.borrow()), (Err(None), None), "neither history yields");
    }

    #[test]
    fn a_late_node_adopts_the_first_history_that_it_meets() {
        let first = History::first(ClusterId(1));
        let node = Histories::new(None);
        assert_eq!(node.meet(first.next(1)), Ok(()));
        assert_eq!(node.meet(first), Err(Some(first.next(1))));
    }
}
