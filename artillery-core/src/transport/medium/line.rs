//! A connection: two sides, each of which may know another reason why it is gone. Side 0 dialled, side 1 accepted.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep_until, timeout};

use super::Medium;
use crate::{
    error::CloseReason,
    id::NodeId,
    transport::{CloseCode, waiters::Waiters},
};

#[derive(Debug)]
pub(in crate::transport) struct SimulatedLine {
    medium: Arc<Medium>,
    /// The nodes of both sides.
    nodes: [NodeId; 2],
    /// Why the connection is gone, as each side knows it.
    closed: Mutex<[Option<CloseReason>; 2]>,
    waiters: Waiters,
    idle_timeout: Duration,
}

impl SimulatedLine {
    pub(in crate::transport) fn new(medium: Arc<Medium>, nodes: [NodeId; 2], idle_timeout: Duration) -> Self {
        Self { medium, nodes, closed: Mutex::default(), waiters: Waiters::default(), idle_timeout }
    }

    fn lock(&self) -> MutexGuard<'_, [Option<CloseReason>; 2]> {
        // No code that holds it can panic halfway through a change.
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether what `side` sends arrives.
    fn is_open(&self, side: usize) -> bool {
        self.medium.is_open(self.nodes[side], self.nodes[1 - side])
    }

    fn set(&self, side: usize, reason: CloseReason) {
        self.lock()[side].get_or_insert(reason);
        self.waiters.wake();
    }

    /// One side closes the connection. The other side learns it unless the way there is cut.
    pub(super) fn close(&self, side: usize, code: CloseCode, words: &str) {
        self.set(side, CloseReason::Here);
        if self.is_open(side) {
            let told = match code {
                CloseCode::SHUTDOWN => CloseReason::Shutdown,
                code => CloseReason::Peer { code: code.0, reason: words.to_owned() },
            };
            self.set(1 - side, told);
        }
    }

    /// Neither side hears anything any more.
    fn break_off(&self) {
        self.set(0, CloseReason::TimedOut);
        self.set(1, CloseReason::TimedOut);
    }

    pub(super) fn close_reason(&self, side: usize) -> Option<CloseReason> {
        self.lock()[side].clone()
    }

    pub(super) async fn closed(&self, side: usize) -> CloseReason {
        self.waiters.until(|| self.close_reason(side)).await
    }

    /// Waits until a piece sent by `side` has arrived, or the connection is gone.
    pub(super) async fn arrival(&self, side: usize, at: Instant) -> Result<(), CloseReason> {
        tokio::select! {
            biased;
            reason = self.closed(1 - side) => Err(reason),
            () = async {
                sleep_until(at).await;
                self.medium.until(|_| self.is_open(side)).await;
            } => Ok(()),
        }
    }

    /// When a piece that is sent now arrives. Its connection may break instead.
    pub(super) fn departure(&self) -> Instant {
        let (delay, broken) = self.medium.draw_delay();
        if broken {
            self.break_off();
        }
        Instant::now() + delay
    }

    /// Gives the connection up when nothing has passed for the idle timeout in either direction. Returns when it is gone,
    /// and why, as the accepting side knows it.
    pub(in crate::transport) async fn watch(&self) -> CloseReason {
        let is_whole = |_: &Medium| self.is_open(0) && self.is_open(1);
        let silence = async {
            loop {
                self.medium.until(|medium| !is_whole(medium)).await;
                if timeout(self.idle_timeout, self.medium.until(is_whole)).await.is_err() {
                    return self.break_off();
                }
            }
        };
        let reason = tokio::select! {
            biased;
            reason = self.closed(1) => reason,
            () = silence => CloseReason::TimedOut,
        };
        // A side that had closed the connection while the way was cut could not say so.
        self.break_off();
        reason
    }
}
