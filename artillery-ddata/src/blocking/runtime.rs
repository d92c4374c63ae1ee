//! A runtime on a thread of its own.

use std::{io, sync::Arc, thread};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// A runtime that one thread drives until the last clone is gone. It ends on that thread, so that the last clone may be
/// dropped anywhere.
#[derive(Clone, Debug)]
pub(super) struct Driven {
    handle: Handle,
    _until_dropped: Arc<oneshot::Sender<()>>,
}

impl Driven {
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (until_dropped, dropped) = oneshot::channel();
        let drive = move || drop(runtime.block_on(dropped));
        thread::Builder::new().name("artillery-client".to_owned()).spawn(drive)?;
        Ok(Self { handle, _until_dropped: Arc::new(until_dropped) })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }
}

/// Whether this thread is a runtime's, so that it must not wait.
pub(super) fn within_runtime() -> bool {
    Handle::try_current().is_ok()
}
