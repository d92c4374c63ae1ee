//! Addresses at which nodes may be found.

use std::{net::SocketAddr, sync::Arc};

use tokio::sync::watch;

/// Addresses that may lead into the cluster: seeds, and what turns up while the client runs. Clones are the same list.
/// None of them is trusted: who answers there must prove who it is.
#[derive(Debug, Clone)]
pub struct Candidates {
    list: Arc<watch::Sender<Vec<SocketAddr>>>,
}

/// More than any sensible list has: discovery is never trusted, not even to end.
const MAX: usize = 1024;

impl Default for Candidates {
    fn default() -> Self {
        Self { list: Arc::new(watch::Sender::new(Vec::new())) }
    }
}

impl Candidates {
    /// No address.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an address; nothing happens if it is there, or if there are more than a thousand.
    pub fn add(&self, addr: SocketAddr) {
        self.list.send_if_modified(|list| {
            let new = list.len() < MAX && !list.contains(&addr);
            if new {
                list.push(addr);
            }
            new
        });
    }

    /// All of them, in the order in which they were added.
    pub fn all(&self) -> Vec<SocketAddr> {
        self.list.borrow().clone()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Vec<SocketAddr>> {
        self.list.subscribe()
    }
}
