//! Tasks that may have a key to delete: the end of a client or a node waits for them.

use std::{sync::Arc, time::Duration};

use artillery_core::internal::watch;
use tokio::time::timeout;

use crate::rpc::router::Router;

/// The longest wait of [`Leaving::close`]. A key that isn't deleted by then expires.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// One for each router.
#[derive(Default)]
pub(crate) struct Leaving {
    tasks: watch::Sender<usize>,
    is_closing: watch::Sender<bool>,
}

/// A contender, or a dropped guard, until it has no key.
pub(super) struct LeavingTask(Arc<Leaving>);

impl Leaving {
    pub(super) fn begin(router: &Router) -> LeavingTask {
        let leaving = router.attached(Self::default);
        leaving.tasks.send_modify(|tasks| *tasks += 1);
        LeavingTask(leaving)
    }

    /// Ends all contenders, and waits until their keys and those of dropped guards are deleted.
    pub(crate) async fn close(router: &Router) {
        let leaving = router.attached(Self::default);
        leaving.is_closing.send_replace(true);
        let _ = timeout(CLOSE_TIMEOUT, leaving.tasks.subscribe().wait_for(|tasks| *tasks == 0)).await;
    }
}

impl LeavingTask {
    /// Waits until [`Leaving::close`] was called.
    pub(super) async fn closing(&self) {
        // The sender is alive as long as this task.
        let _ = self.0.is_closing.subscribe().wait_for(|is_closing| *is_closing).await;
    }
}

impl Drop for LeavingTask {
    fn drop(&mut self) {
        self.0.tasks.send_modify(|tasks| *tasks -= 1);
    }
}
