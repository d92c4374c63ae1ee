//! What the HTTP port shows: the node, and before it has started how far its directory is loaded.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use artillery_ddata::{Node, node::Loading, status::LoadingStatus};
use serde::Serialize;

/// The node, once it has started. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Shown(Arc<ShownNode>);

#[derive(Default)]
struct ShownNode {
    node: OnceLock<Node>,
    loading: Mutex<Option<Loading>>,
}

/// `GET /status` of a node that loads its directory, as `docs/json.md` describes it.
#[derive(Debug, Serialize)]
pub(super) struct LoadingLine {
    ready: bool,
    loading: LoadingStatus,
}

impl Shown {
    /// The node; `None`: it hasn't started.
    pub(super) fn node(&self) -> Option<&Node> {
        self.0.node.get()
    }

    /// The node has started.
    pub(super) fn started(&self, node: &Node) {
        // It starts once.
        let _ = self.0.node.set(node.clone());
    }

    /// The directory is loaded up to here.
    pub(super) fn loads(&self, loading: Loading) {
        *self.0.loading.lock().unwrap_or_else(PoisonError::into_inner) = Some(loading);
        let LoadingStatus { step, records, records_per_second, read_bytes, total_bytes, .. } = loading.into();
        tracing::info!(
            step,
            records,
            records_per_second,
            read_bytes,
            total_bytes,
            seconds = loading.elapsed.as_secs(),
            seconds_left = loading.left.map(|left| left.as_secs()),
            "loading the directory"
        );
    }

    /// How far the directory is loaded; `None`: that isn't known.
    pub(super) fn loading(&self) -> Option<LoadingLine> {
        let loading = (*self.0.loading.lock().unwrap_or_else(PoisonError::into_inner))?;
        Some(LoadingLine { ready: false, loading: loading.into() })
    }
}
