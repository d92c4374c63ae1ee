//! Checks whether a silent head is still the head.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::{Router, routes::Routes};
use crate::{ChainId, Epoch, MemberId};

/// While calls are in doubt, the routing is queried at this interval.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// The calls of a router that have been unanswered for long. One task queries the routing for all of them: with
/// thousands of calls in flight, a query for each would cost more than the calls themselves.
#[derive(Debug, Default)]
pub(super) struct DoubtfulCalls {
    /// SeqCst, like `is_asking`: an ending task clears `is_asking`, then reads `calls`; a new call raises `calls`, then
    /// reads `is_asking`. One of them must see the other's change.
    calls: AtomicUsize,
    is_asking: AtomicBool,
}

/// A call in doubt, counted until it is dropped.
struct InDoubt<'a>(&'a DoubtfulCalls);

impl Drop for InDoubt<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::SeqCst);
    }
}

impl DoubtfulCalls {
    /// Whether any call is still in doubt. Otherwise the asking task ends.
    fn go_on(&self) -> bool {
        let any = || self.calls.load(Ordering::SeqCst) > 0;
        if any() {
            return true;
        }
        self.is_asking.store(false, Ordering::SeqCst);
        // A call that arrived just before the store relied on this task.
        any() && !self.is_asking.swap(true, Ordering::SeqCst)
    }
}

impl Router {
    /// Waits until a configuration newer than `epoch` has a head other than `head`.
    pub(super) async fn deposed(&self, chain: ChainId, epoch: Epoch, head: MemberId) {
        let _in_doubt = self.doubt();
        let deposed = self
            .routes
            .wait_for(|routing| routing.chain(chain).is_some_and(|now| now.epoch > epoch && now.head() != Some(head)));
        deposed.await;
    }

    fn doubt(&self) -> InDoubt<'_> {
        let doubts = &self.doubts;
        doubts.calls.fetch_add(1, Ordering::SeqCst);
        // Only a client must query the routing. A node gets new routing from the configuration log.
        if matches!(self.routes, Routes::Asked(_)) && !doubts.is_asking.swap(true, Ordering::SeqCst) {
            let me = self.me.clone();
            self.carrier.runtime.spawn(async move {
                while let Some(router) = me.upgrade().filter(|router| router.doubts.go_on()) {
                    router.refresh_routing(Instant::now() + ASK_EVERY * 10).await;
                    drop(router);
                    sleep(ASK_EVERY).await;
                }
            });
        }
        InDoubt(doubts)
    }
}
