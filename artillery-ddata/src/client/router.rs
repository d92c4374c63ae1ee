//! Finds who is to be asked, and asks until the answer is certain or the time is up.

use std::{fmt, sync::Arc, time::Duration};

use artillery_core::transport::Endpoint;
use bytes::Bytes;

use super::Spread;
use crate::{
    Error, NodeId, Place, Routing,
    driver::local::Local,
    replica::{ReadMode, Reply, Write},
};

/// A reply and who gave it.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    pub(crate) node: NodeId,
    pub(crate) place: Place,
}

pub(crate) struct Router {
    local: Option<Arc<Local>>,
}

impl Router {
    /// The router of a node: it knows the routing from `local`.
    pub(crate) fn of_node(local: Arc<Local>, endpoint: Endpoint, max_value_bytes: usize) -> Arc<Self> {
        let _ = (local, endpoint, max_value_bytes);
        todo!()
    }

    /// What is served in this process.
    pub(crate) fn local(&self) -> Option<&Local> {
        self.local.as_deref()
    }

    pub(crate) fn known(&self) -> Option<Arc<Routing>> {
        todo!()
    }

    pub(crate) async fn read(&self, key: Bytes, mode: ReadMode, timeout: Duration) -> Result<Answer, Error> {
        let _ = (key, mode, timeout, Spread::Sticky);
        todo!()
    }

    pub(crate) async fn write(&self, write: Write, timeout: Duration) -> Result<Answer, Error> {
        let _ = (write, timeout);
        todo!()
    }

    pub(crate) async fn status(&self, node: NodeId, timeout: Duration) -> Result<String, Error> {
        let _ = (node, timeout);
        todo!()
    }

    pub(crate) async fn refresh_within(&self, timeout: Duration) -> Result<Arc<Routing>, Error> {
        let _ = timeout;
        todo!()
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").finish_non_exhaustive()
    }
}
