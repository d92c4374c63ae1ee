//! An endpoint's port on a simulated network.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{Medium, SimulatedLine};
use crate::{id::NodeId, transport::CloseCode};

#[derive(Debug)]
pub(in crate::transport) struct SimulatedPort {
    pub(in crate::transport) medium: Arc<Medium>,
    pub(in crate::transport) name: String,
    pub(in crate::transport) node: NodeId,
    pub(in crate::transport) addr: SocketAddr,
    closed: AtomicBool,
    /// Connections that the endpoint has dialled or accepted, and its side of each.
    lines: Mutex<Vec<(Weak<SimulatedLine>, usize)>>,
}

impl SimulatedPort {
    pub(in crate::transport) fn new(medium: Arc<Medium>, name: &str, node: NodeId, addr: SocketAddr) -> Self {
        Self { medium, name: name.to_owned(), node, addr, closed: AtomicBool::new(false), lines: Mutex::default() }
    }

    /// Closes all connections, and prevents new ones in either direction.
    pub(in crate::transport) fn close(&self, code: CloseCode) {
        self.closed.store(true, Ordering::Relaxed);
        let lines = std::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner));
        for (line, side) in lines.iter().filter_map(|(line, side)| Some((line.upgrade()?, *side))) {
            line.close(side, code, "");
        }
    }

    pub(in crate::transport) fn chance(&self) -> f64 {
        self.medium.chance()
    }

    pub(in crate::transport) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Registers a connection, to be closed with the port.
    pub(in crate::transport) fn keep(&self, line: &Arc<SimulatedLine>, side: usize) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.retain(|(line, _)| line.strong_count() > 0);
        lines.push((Arc::downgrade(line), side));
    }
}
