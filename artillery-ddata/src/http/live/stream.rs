//! The stream of one viewer.

use std::{collections::VecDeque, convert::Infallible, sync::Arc};

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::{
    OwnedSemaphorePermit,
    broadcast::{Receiver, error::RecvError},
};

use super::{Live, feed::Feed};

/// Why a viewer gets no stream.
#[derive(Debug, PartialEq)]
pub(in crate::http) enum NoStream {
    /// There are as many viewers as permitted.
    Full,
    /// The node has stopped.
    Stopped,
}

/// The viewer's permit. It also keeps the sampling task, which ends with the last router or stream.
type ViewerPermit = (Arc<Live>, OwnedSemaphorePermit);

#[derive(Debug)]
pub(in crate::http) struct PageStream {
    feed: Arc<Feed>,
    /// Messages before those of `receiver`.
    first: VecDeque<Bytes>,
    receiver: Receiver<Bytes>,
    _permit: ViewerPermit,
}

impl PageStream {
    /// `None`: the node has stopped.
    pub(super) fn new(feed: Arc<Feed>, permit: ViewerPermit) -> Option<Self> {
        let (first, receiver) = feed.join()?;
        Some(Self { feed, first: first.into(), receiver, _permit: permit })
    }

    /// `None`: the node has stopped.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            while let Some(message) = self.first.pop_front() {
                // There may be no snapshot yet.
                if !message.is_empty() {
                    return Some(message);
                }
            }
            match self.receiver.recv().await {
                Ok(message) => return Some(message),
                // The viewer is slow, and may have missed events.
                Err(RecvError::Lagged(_)) => {
                    self.receiver = self.receiver.resubscribe();
                    self.first = self.feed.first().into();
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }

    pub(in crate::http) fn into_body(self) -> Body {
        Body::from_stream(stream::unfold(self, async |mut stream| {
            let message = stream.next().await?;
            Some((Ok::<_, Infallible>(message), stream))
        }))
    }
}
