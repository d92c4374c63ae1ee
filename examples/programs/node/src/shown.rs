//! The state that the HTTP port shows: the node or, until it has started, the progress of loading its directory.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use artillery_ddata::{Node, node::Loading, status::LoadingStatus};
use serde::Serialize;

/// The node once it has started, and the progress of loading. Clones share both.
#[derive(Clone, Default)]
pub(super) struct Shown(Arc<ShownNode>);

#[derive(Default)]
struct ShownNode {
    node: OnceLock<Node>,
    loading: Mutex<Option<Loading>>,
}

/// The answer to `/status` while the node loads its directory, as `docs/json.md` describes it.
#[derive(Debug, Serialize)]
pub(super) struct LoadingLine {
    ready: bool,
    loading: LoadingStatus,
}

impl Shown {
    /// The node; `None` until it has started.
    pub(super) fn node(&self) -> Option<&Node> {
        self.0.node.get()
    }

    pub(super) fn started(&self, node: &Node) {
        // Called once, so this can't fail.
        let _ = self.0.node.set(node.clone());
    }

    /// Records and logs the progress of loading.
    pub(super) fn loads(&self, loading: Loading) {
        *self.0.loading.lock().unwrap_or_else(PoisonError::into_inner) = Some(loading);
        let LoadingStatus { step, records, records_per_second, read_bytes, total_bytes, .. } = loading.into();
        tracing::info!(
            step = step.as_str(),
            records,
            records_per_second,
            read_bytes,
            total_bytes,
            seconds = loading.elapsed.as_secs(),
            seconds_left = loading.left.map(|left| left.as_secs()),
            "loading the directory"
        );
    }

    /// The progress of loading; `None` until it is known.
    pub(super) fn loading(&self) -> Option<LoadingLine> {
        let loading = (*self.0.loading.lock().unwrap_or_else(PoisonError::into_inner))?;
        Some(LoadingLine { ready: false, loading: loading.into() })
    }
}
