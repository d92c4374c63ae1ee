//! The data of the page: a task samples the node, keeps the last five minutes, and publishes to all viewers. However many
//! viewers there are, the node is queried once a second; without viewers, every five seconds, so that a page that is
//! opened later has a history. Other nodes are queried only while the page is viewed.

mod feed;
mod history;
mod reports;
mod sample;
mod sampler;
mod snapshot;
mod stream;

use std::{
    sync::{Arc, OnceLock},
    time::SystemTime,
};

use tokio::{runtime::Handle, sync::Semaphore, task::JoinHandle};

pub(super) use self::stream::{NoStream, PageStream};
use self::{feed::Feed, sampler::Sampler};
use super::slot::NodeSlot;

/// Ends its task when it is dropped.
#[derive(Debug)]
struct OwnedTask(JoinHandle<()>);

impl Drop for OwnedTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Debug)]
pub(super) struct Live {
    slot: NodeSlot,
    feed: Arc<Feed>,
    places: Arc<Semaphore>,
    task: OnceLock<OwnedTask>,
}

impl Live {
    pub(super) fn new(slot: NodeSlot, viewers: usize) -> Self {
        let places = Arc::new(Semaphore::new(viewers.min(Semaphore::MAX_PERMITS)));
        let live = Self { slot, feed: Arc::default(), places, task: OnceLock::new() };
        if Handle::try_current().is_ok() {
            live.begin();
        }
        live
    }

    fn begin(&self) {
        self.task.get_or_init(|| OwnedTask(tokio::spawn(Sampler::new(self.slot.clone(), self.feed.clone()).run())));
    }

    /// The messages for one more viewer.
    pub(super) fn stream(self: &Arc<Self>) -> Result<PageStream, NoStream> {
        self.begin();
        let place = self.places.clone().try_acquire_owned().map_err(|_| NoStream::Full)?;
        PageStream::new(self.feed.clone(), (self.clone(), place)).ok_or(NoStream::Stopped)
    }
}

/// Milliseconds since 1970 by this machine's clock, for people.
#[expect(clippy::disallowed_methods, reason = "shown to people, and never compared with another node's clock")]
fn unix_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
