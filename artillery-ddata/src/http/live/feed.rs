//! What viewers receive: the history first, then messages as they are published.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::{
    Notify,
    broadcast::{self, Receiver, Sender},
};

use super::{history::PageHistory, sample::Sample, snapshot::PageSnapshot, unix_ms};
use crate::node::NodeEvent;

/// A viewer that is further behind skips messages, and receives the history again.
const MAX_QUEUED: usize = 16;

#[derive(Debug)]
pub(super) struct Feed {
    state: Mutex<FeedState>,
    arrivals: Notify,
}

#[derive(Debug)]
struct FeedState {
    history: PageHistory,
    /// The last snapshot as a message.
    snapshot: Bytes,
    /// `None`: the node has stopped.
    viewers: Option<Sender<Bytes>>,
}

impl Default for Feed {
    fn default() -> Self {
        let viewers = Some(broadcast::channel(MAX_QUEUED).0);
        let state = FeedState { history: PageHistory::default(), snapshot: Bytes::new(), viewers };
        Self { state: Mutex::new(state), arrivals: Notify::new() }
    }
}

impl Feed {
    fn state(&self) -> MutexGuard<'_, FeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a viewer. Returns the messages that it receives first. `None`: the node has stopped.
    pub(super) fn join(&self) -> Option<([Bytes; 2], Receiver<Bytes>)> {
        let state = self.state();
        let receiver = state.viewers.as_ref()?.subscribe();
        self.arrivals.notify_one();
        Some((state.first(), receiver))
    }

    /// The messages that bring a viewer up to date.
    pub(super) fn first(&self) -> [Bytes; 2] {
        self.state().first()
    }

    /// Waits for a viewer to arrive.
    pub(super) async fn arrival(&self) {
        self.arrivals.notified().await;
    }

    pub(super) fn is_viewed(&self) -> bool {
        self.state().viewers.as_ref().is_some_and(|viewers| viewers.receiver_count() > 0)
    }

    pub(super) fn record(&self, sample: Sample) {
        self.state().history.record(sample);
    }

    pub(super) fn event(&self, event: &NodeEvent) {
        let mut state = self.state();
        let message = message("event", state.history.event(event, unix_ms()));
        state.send(message);
    }

    pub(super) fn snapshot(&self, snapshot: &PageSnapshot) {
        let message = message("snapshot", snapshot);
        let mut state = self.state();
        state.snapshot = message.clone();
        state.send(message);
    }

    /// Drops the last snapshot, so that a later viewer doesn't receive an old one.
    pub(super) fn forget_snapshot(&self) {
        self.state().snapshot = Bytes::new();
    }

    /// Ends all streams once the viewers have received their messages.
    pub(super) fn close(&self) {
        self.state().viewers = None;
    }
}

impl FeedState {
    fn first(&self) -> [Bytes; 2] {
        [message("history", &self.history), self.snapshot.clone()]
    }

    fn send(&self, message: Bytes) {
        if let Some(viewers) = &self.viewers {
            // There may be no viewer.
            let _ = viewers.send(message);
        }
    }
}

/// A server-sent event. JSON text has no line breaks.
fn message(name: &str, data: impl Serialize) -> Bytes {
    // Plain data with string keys always has a JSON form.
    let json = serde_json::to_string(&data).unwrap_or_default();
    format!("event: {name}\ndata: {json}\n\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_viewer_skips_messages_and_none_receives_any_after_the_end() {
        let feed = Feed::default();
        let (first, mut receiver) = feed.join().unwrap();
        assert!(first[0].starts_with(b"event: history\n"));
        for _ in 0..MAX_QUEUED * 3 {
            feed.event(&NodeEvent::ServesAgain);
        }
        assert!(matches!(receiver.try_recv(), Err(broadcast::error::TryRecvError::Lagged(_))));
        let queued = std::iter::from_fn(|| receiver.try_recv().ok()).count();
        assert_eq!(queued, MAX_QUEUED);
        feed.close();
        assert!(matches!(receiver.try_recv(), Err(broadcast::error::TryRecvError::Closed)));
        assert!(feed.join().is_none() && !feed.is_viewed());
    }

    #[test]
    fn a_text_with_line_breaks_stays_one_message() {
        let text = message("event", "a\n\ndata: b\r\n<script>");
        assert_eq!(text, "event: event\ndata: \"a\\n\\ndata: b\\r\\n<script>\"\n\n");
    }
}
