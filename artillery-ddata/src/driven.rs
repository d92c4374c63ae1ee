//! A runtime on a thread of its own.

use std::{
    io,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// The time in which tasks can send their last messages to peers, once the last clone of their [`Driven`] is dropped.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(100);

/// A runtime that one thread drives until the last clone is dropped. A clone may be dropped on any thread.
#[derive(Clone, Debug)]
pub(crate) struct Driven {
    handle: Handle,
    _until_dropped: Arc<oneshot::Sender<()>>,
}

impl Driven {
    /// Starts a thread with this name.
    ///
    /// The new thread builds the runtime. If the caller built it and no thread could be started, the caller would drop
    /// it, and dropping a runtime within another one panics.
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        let (until_dropped, dropped) = oneshot::channel::<()>();
        let (made, runtime) = mpsc::sync_channel(1);
        let drive = move || {
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(made.send(Err(error))),
            };
            if made.send(Ok(runtime.handle().clone())).is_ok() {
                runtime.block_on(async {
                    // Nothing is ever sent: this returns when the last clone drops its sender.
                    let _ = dropped.await;
                    tokio::time::sleep(SHUTDOWN_GRACE).await;
                });
            }
            // Don't wait for blocking tasks: they would keep this thread alive.
            runtime.shutdown_background();
        };
        thread::Builder::new().name(name.to_owned()).spawn(drive)?;
        let handle = runtime.recv().map_err(io::Error::other)??;
        Ok(Self { handle, _until_dropped: Arc::new(until_dropped) })
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}
