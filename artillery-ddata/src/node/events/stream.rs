//! The stream of events.

use std::{
    future::Future,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
};

use futures_core::Stream;
use tokio::sync::broadcast::{self, Receiver, Sender, error::RecvError};

use super::{NodeEvent, Weight};

/// The most events that are kept for a slow reader.
const MAX_KEPT: usize = 256;

/// Logs events, and sends them to all readers.
#[derive(Debug)]
pub(crate) struct EventHub {
    /// `None`: the node has stopped.
    readers: Mutex<Option<Sender<NodeEvent>>>,
}

impl Default for EventHub {
    fn default() -> Self {
        Self { readers: Mutex::new(Some(broadcast::channel(MAX_KEPT).0)) }
    }
}

impl EventHub {
    /// Logs an event and sends it to each reader. All events of the node pass through this function.
    pub(crate) fn report(&self, event: NodeEvent) {
        match event.weight() {
            Weight::Orderly => tracing::debug!(target: "artillery_ddata::events", "{event}"),
            Weight::Good => tracing::info!(target: "artillery_ddata::events", "{event}"),
            Weight::Bad => tracing::warn!(target: "artillery_ddata::events", "{event}"),
        }
        if let Some(readers) = &*self.readers.lock().unwrap_or_else(PoisonError::into_inner) {
            // There may be no reader.
            let _ = readers.send(event);
        }
    }

    pub(crate) fn close(&self) {
        *self.readers.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) fn subscribe(&self) -> NodeEvents {
        match &*self.readers.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(readers) => NodeEvents::of(readers.subscribe()),
            None => NodeEvents::of(broadcast::channel(1).1),
        }
    }
}

type NextEvent = Pin<Box<dyn Future<Output = (Result<NodeEvent, RecvError>, Receiver<NodeEvent>)> + Send + Sync>>;

/// The events of a node since the subscription. The stream ends when the node stops. For a slow reader, the newest 256
/// events are kept: see [`NodeEvent::Lagged`].
pub struct NodeEvents {
    /// `None`: the stream has ended.
    next: Option<NextEvent>,
}

impl std::fmt::Debug for NodeEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeEvents").finish_non_exhaustive()
    }
}

async fn receive(mut receiver: Receiver<NodeEvent>) -> (Result<NodeEvent, RecvError>, Receiver<NodeEvent>) {
    let received = receiver.recv().await;
    (received, receiver)
}

impl NodeEvents {
    fn of(receiver: Receiver<NodeEvent>) -> Self {
        Self { next: Some(Box::pin(receive(receiver))) }
    }

    /// The next event; `None` when the node has stopped. Cancelling the call loses no event.
    pub async fn next(&mut self) -> Option<NodeEvent> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for NodeEvents {
    type Item = NodeEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<NodeEvent>> {
        let Some(next) = &mut self.next else { return Poll::Ready(None) };
        let Poll::Ready((received, receiver)) = next.as_mut().poll(cx) else { return Poll::Pending };
        let event = match received {
            Ok(event) => event,
            Err(RecvError::Lagged(missed)) => NodeEvent::Lagged { missed },
            Err(RecvError::Closed) => {
                self.next = None;
                return Poll::Ready(None);
            }
        };
        self.next = Some(Box::pin(receive(receiver)));
        Poll::Ready(Some(event))
    }
}
