//! The threads that a node works on (docs/adr/0039-threads-of-a-node.md).

use std::io;

use tokio::runtime::Handle;

use crate::{config::Threads, driven::Driven};

/// The runtimes of one node. Dropping this ends the node's own runtimes, with all their tasks.
pub(super) struct Workers {
    sockets: Handle,
    chains: Vec<Handle>,
    _own: Vec<Driven>,
}

impl Workers {
    /// Starts the threads. Call it within a runtime, which [`Threads::Shared`] uses.
    pub(super) fn start(threads: Threads, chains: u32) -> io::Result<Self> {
        let count = match threads {
            Threads::Shared => {
                let sockets = Handle::current();
                return Ok(Self { chains: vec![sockets.clone()], sockets, _own: Vec::new() });
            }
            Threads::Own { chains: most } => most.min(chains as usize),
        };
        let sockets = Driven::start("artillery")?;
        let chains = (0..count).map(|number| Driven::start(&format!("artillery-{number}")));
        let chains = chains.collect::<io::Result<Vec<_>>>()?;
        let handles = |threads: &[Driven]| threads.iter().map(|thread| thread.handle().clone()).collect();
        let sharing = std::slice::from_ref(&sockets);
        Ok(Self {
            sockets: sockets.handle().clone(),
            chains: handles(if chains.is_empty() { sharing } else { &chains }),
            _own: chains.into_iter().chain([sockets]).collect(),
        })
    }

    /// The runtime of all tasks but the chains'.
    pub(super) fn sockets(&self) -> Handle {
        self.sockets.clone()
    }

    /// The runtimes of the chains' tasks; at least one.
    pub(super) fn chains(&self) -> Vec<Handle> {
        self.chains.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_on_own_threads_end_with_the_node() {
        let workers = Workers::start(Threads::Own { chains: 2 }, 9).unwrap();
        let all = [workers.chains(), vec![workers.sockets()]].concat();
        let tasks: Vec<_> = all.iter().map(|thread| thread.spawn(std::future::pending::<()>())).collect();
        let mut names = Vec::new();
        for thread in &all {
            names
                .push(thread.spawn(async { std::thread::current().name().map(str::to_owned) }).await.unwrap().unwrap());
        }
        assert_eq!(names, ["artillery-0", "artillery-1", "artillery"]);
        drop(workers);
        for task in tasks {
            assert!(task.await.is_err_and(|ended| ended.is_cancelled()));
        }
    }

    #[tokio::test]
    async fn chain_threads_are_at_most_as_many_as_chains() {
        assert_eq!(Workers::start(Threads::Own { chains: 7 }, 1).unwrap().chains().len(), 1);
        let shared = Workers::start(Threads::Own { chains: 0 }, 7).unwrap();
        assert_eq!(shared.chains().iter().map(Handle::id).collect::<Vec<_>>(), [shared.sockets().id()]);
        let here = Workers::start(Threads::Shared, 7).unwrap();
        assert_eq!(here.chains().iter().map(Handle::id).collect::<Vec<_>>(), [Handle::current().id()]);
    }
}
