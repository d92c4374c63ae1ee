//! A simulated connection. Its sides may report different close reasons. Side 0 dialled, side 1 accepted.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Medium;
use crate::{
    error::CloseReason,
    id::NodeId,
    transport::{CloseCode, waiters::Waiters},
};

#[derive(Debug)]
pub(in crate::transport) struct SimulatedLine {
    medium: Arc<Medium>,
    nodes: [NodeId; 2],
    closed: Mutex<[Option<CloseReason>; 2]>,
    waiters: Waiters,
    idle_timeout: Duration,
}

impl SimulatedLine {
    pub(in crate::transport) fn new(medium: Arc<Medium>, nodes: [NodeId; 2], idle_timeout: Duration) -> Self {
        Self { medium, nodes, closed: Mutex::default(), waiters: Waiters::default(), idle_timeout }
    }

    fn lock(&self) -> MutexGuard<'_, [Option<CloseReason>; 2]> {
        // No code that holds the lock can panic halfway through a change.
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether messages from `side` arrive.
    fn is_open(&self, side: usize) -> bool {
        self.medium.is_open(self.nodes[side], self.nodes[1 - side])
    }

    fn set(&self, side: usize, reason: CloseReason) {
        self.lock()[side].get_or_insert(reason);
        self.waiters.wake();
    }

    /// Closes the connection on one side. The other side is notified unless that direction is cut.
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

    /// Closes the connection on both sides, as after a timeout.
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

    /// Waits until a piece sent by `side` arrives, or the connection is closed.
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

    /// The arrival time of a piece that is sent now. The connection may break instead.
    pub(super) fn departure(&self) -> Instant {
        let (delay, broken) = self.medium.draw_delay();
        if broken {
            self.break_off();
        }
        Instant::now() + delay
    }

    /// Waits until a datagram that the dialling side sends now arrives. Returns whether it does.
    pub(super) async fn carry_datagram(&self, delay: Option<Duration>) -> bool {
        let Some(delay) = delay else { return false };
        sleep(delay).await;
        self.is_open(0) && self.close_reason(1).is_none()
    }

    /// Draws the delay of a datagram; `None` if it is lost.
    pub(super) fn draw_datagram(&self) -> Option<Duration> {
        self.medium.draw_datagram()
    }

    /// Closes the connection once either direction was cut for the idle timeout. Returns the accepting side's reason
    /// when the connection is closed.
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
        // Where the path is cut, the other side learns of it only by its idle timeout, or once the path is mended.
        if !self.is_open(1) {
            let mended = self.medium.until(|_| self.is_open(1));
            drop(timeout(self.idle_timeout, mended).await);
        }
        self.break_off();
        reason
    }
}
