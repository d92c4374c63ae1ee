//! Whether a head that is silent is still the head.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::{Router, routes::Routes};
use crate::{ChainId, Epoch, MemberId};

/// While calls are in doubt the routing is asked for after so long again.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// The calls of a router that have been without an answer for long. One task asks for the routing for all of them: with thousands
/// of calls in flight each would ask for the same, and cost more than the calls themselves.
#[derive(Debug, Default)]
pub(super) struct DoubtfulCalls {
    /// As `is_asking`, changed and looked at in one order for all threads: the task that ends and the call that begins each look at
    /// what the other has changed, and one of them must see it.
    calls: AtomicUsize,
    is_asking: AtomicBool,
}

/// A call in doubt.
struct InDoubt<'a>(&'a DoubtfulCalls);

impl Drop for InDoubt<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::SeqCst);
    }
}

impl DoubtfulCalls {
    /// Whether any call is still in doubt; otherwise the task that asks ends.
    fn go_on(&self) -> bool {
        let any = || self.calls.load(Ordering::SeqCst) > 0;
        if any() {
            return true;
        }
        self.is_asking.store(false, Ordering::SeqCst);
        // A call that came just before relied on this task.
        any() && !self.is_asking.swap(true, Ordering::SeqCst)
    }
}

impl Router {
    /// Waits until a configuration that is newer than `epoch` has another head than this one.
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
        // A node hears of a new routing without asking.
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
