//! The threads that a node works on (docs/adr/0039-threads-of-a-node.md).

use std::{io, thread, time::Duration};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

use crate::config::Threads;

/// The runtimes of one node. Those of its own end when this is dropped, and all tasks in them.
pub(super) struct Workers {
    sockets: Handle,
    chains: Vec<Handle>,
    /// The ends of the threads.
    _own: Vec<oneshot::Sender<()>>,
}

impl Workers {
    /// To be called within a runtime, which may be the one to use.
    pub(super) fn start(threads: Threads, chains: u32) -> io::Result<Self> {
        let count = match threads {
            Threads::Shared => {
                let sockets = Handle::current();
                return Ok(Self { chains: vec![sockets.clone()], sockets, _own: Vec::new() });
            }
            Threads::Own { chains: most } => most.min(chains as usize),
        };
        let (sockets, end) = thread("artillery")?;
        let mut workers = Self { sockets, chains: Vec::new(), _own: vec![end] };
        for number in 0..count {
            let (chains, end) = thread(&format!("artillery-{number}"))?;
            workers.chains.push(chains);
            workers._own.push(end);
        }
        if workers.chains.is_empty() {
            workers.chains.push(workers.sockets.clone());
        }
        Ok(workers)
    }

    /// Where everything runs that isn't a chain.
    pub(super) fn sockets(&self) -> Handle {
        self.sockets.clone()
    }

    /// Where the tasks of chains run; at least one.
    pub(super) fn chains(&self) -> Vec<Handle> {
        self.chains.clone()
    }
}

/// What was told to stop when the node was dropped has so long for its last words to peers.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// A thread with a runtime that lives until the sender is dropped.
///
/// The runtime is made on its thread: where there is no thread to be had it would be dropped within the caller's runtime, which panics.
fn thread(name: &str) -> io::Result<(Handle, oneshot::Sender<()>)> {
    let (end, ended) = oneshot::channel::<()>();
    let (made, runtime) = std::sync::mpsc::sync_channel(1);
    let run = move || {
        let runtime = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(made.send(Err(error))),
        };
        if made.send(Ok(runtime.handle().clone())).is_ok() {
            runtime.block_on(async {
                // The sender says nothing; it is only dropped.
                let _ = ended.await;
                tokio::time::sleep(LAST_WORDS).await;
            });
        }
        // A name that is just being looked up must not keep the thread.
        runtime.shutdown_background();
    };
    thread::Builder::new().name(name.to_owned()).spawn(run)?;
    let handle = runtime.recv().map_err(io::Error::other)??;
    Ok((handle, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_runs_on_threads_of_a_node_ends_with_it() {
        let workers = Workers::start(Threads::Own { chains: 2 }, 9).unwrap();
        let all = [workers.chains(), vec![workers.sockets()]].concat();
        let tasks: Vec<_> = all.iter().map(|thread| thread.spawn(std::future::pending::<()>())).collect();
        let mut names = Vec::new();
        for thread in &all {
            names.push(thread.spawn(async { thread::current().name().map(str::to_owned) }).await.unwrap().unwrap());
        }
        assert_eq!(names, ["artillery-0", "artillery-1", "artillery"]);
        drop(workers);
        for task in tasks {
            assert!(task.await.is_err_and(|ended| ended.is_cancelled()));
        }
    }

    #[tokio::test]
    async fn there_are_no_more_threads_than_chains() {
        assert_eq!(Workers::start(Threads::Own { chains: 7 }, 1).unwrap().chains().len(), 1);
        let shared = Workers::start(Threads::Own { chains: 0 }, 7).unwrap();
        assert_eq!(shared.chains().iter().map(Handle::id).collect::<Vec<_>>(), [shared.sockets().id()]);
        let here = Workers::start(Threads::Shared, 7).unwrap();
        assert_eq!(here.chains().iter().map(Handle::id).collect::<Vec<_>>(), [Handle::current().id()]);
    }
}
