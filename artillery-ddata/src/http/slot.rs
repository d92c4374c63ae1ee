//! The node that is served, which may start later than the port.

use std::sync::Arc;

use tokio::sync::watch;

use crate::{Node, node::Loading};

/// The node that a router serves. It may start later than the router: until then the router reports the progress of
/// loading the node's directory. Clones refer to the same slot.
///
/// A slot keeps its node alive, and the router keeps the slot.
#[derive(Clone, Debug, Default)]
pub struct NodeSlot(Arc<watch::Sender<SlotState>>);

#[derive(Debug, Default)]
struct SlotState {
    node: Option<Node>,
    loading: Option<Loading>,
}

impl NodeSlot {
    /// A slot whose node hasn't started yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Serves this node from now on. Call it once; a later call is ignored.
    pub fn started(&self, node: &Node) {
        self.0.send_if_modified(|state| {
            let is_first = state.node.is_none();
            if is_first {
                state.node = Some(node.clone());
            }
            is_first
        });
    }

    /// Records the progress of loading the directory: for [`NodeBuilder::on_loading`](crate::NodeBuilder::on_loading).
    pub fn loads(&self, loading: Loading) {
        self.0.send_modify(|state| state.loading = Some(loading));
    }

    /// The node; `None` until it has started.
    pub fn node(&self) -> Option<Node> {
        self.0.borrow().node.clone()
    }

    /// The progress of loading the directory, as last reported.
    pub fn loading(&self) -> Option<Loading> {
        self.0.borrow().loading
    }

    /// Wakes at each change.
    pub(super) fn changes(&self) -> SlotChanges {
        SlotChanges(self.0.subscribe())
    }
}

impl From<&Node> for NodeSlot {
    fn from(node: &Node) -> Self {
        let slot = Self::new();
        slot.started(node);
        slot
    }
}

#[derive(Debug)]
pub(super) struct SlotChanges(watch::Receiver<SlotState>);

impl SlotChanges {
    /// Waits for a change. Cancelling the call loses none.
    pub(super) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
