//! Addresses at which nodes may be found.

use std::{net::SocketAddr, sync::Arc};

use tokio::sync::watch;

/// Addresses that may lead into the cluster: seeds, and those found while the client runs. Clones share one list. None
/// of them is trusted: a node that answers there must prove its identity.
#[derive(Debug, Clone)]
pub struct Candidates {
    list: Arc<watch::Sender<Vec<SocketAddr>>>,
}

/// The most addresses in a list, far above any sensible use: discovery is untrusted and could add addresses without
/// end.
const MAX: usize = 1024;

impl Default for Candidates {
    fn default() -> Self {
        Self { list: Arc::new(watch::Sender::new(Vec::new())) }
    }
}

impl Candidates {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an address. Does nothing if it is in the list already, or if the list has 1,024 addresses.
    pub fn add(&self, addr: SocketAddr) {
        self.list.send_if_modified(|list| {
            let new = list.len() < MAX && !list.contains(&addr);
            if new {
                list.push(addr);
            }
            new
        });
    }

    /// All addresses, in the order in which they were added.
    pub fn all(&self) -> Vec<SocketAddr> {
        self.list.borrow().clone()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Vec<SocketAddr>> {
        self.list.subscribe()
    }
}
