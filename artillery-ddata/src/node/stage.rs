//! The states of a node, and the present one.
//!
//! ```text
//! Opened      settings, store, directory; no socket                             opened.rs
//!   │ start: the sockets are bound
//! Started     membership, lanes, router, server; the node looks for a cluster   opened.rs
//!   │ formed: the cluster is known, from a peer or from the directory
//! Formed      bootstrap, readiness of each chain, state of the control task     formed.rs
//!   │ follow: the node's part of the configuration log runs
//! Following   log, calls to other nodes, queue of the control task              following.rs
//! ```
//!
//! `Formed` and `Following` contain the state before them, so a caller that has a state needs no further check. A
//! transition makes the next state from complete parts and enters it here, once. Values for one transition only
//! (receivers of queues, the store that is not loaded yet) are moved to it and are never shared. A node with a fixed
//! configuration stays in `Formed`.
//!
//! Whether a node is ready, has failed or has stopped is separate: see [`NodePhase`](crate::driver::phase::NodePhase).
//! A node never returns to an earlier state, so the cluster of a stopped node is still known.

use std::sync::{Arc, PoisonError, RwLock};

use artillery_core::Cluster;
use artillery_core::internal::watch;

use crate::{
    control::{Bootstrap, ConfigLog, Configs},
    driver::{
        chain::ChainReadiness,
        control::{ControlCalls, ControlEndpoint, NodeState},
        lanes::Hub,
        serve::Server,
    },
    rpc::router::Router,
};

/// A node with sockets, which looks for its cluster.
pub(crate) struct Started {
    pub(super) cluster: Cluster,
    pub(super) router: Arc<Router>,
    pub(super) hub: Arc<Hub>,
    pub(super) server: Arc<Server>,
}

/// A node of a cluster.
pub(crate) struct Formed {
    pub(super) started: Arc<Started>,
    pub(super) founding: Arc<Bootstrap>,
    /// The readiness of each chain; with a fixed configuration, of each chain served here.
    pub(super) standings: Vec<watch::Receiver<ChainReadiness>>,
    /// The state that the control task publishes; `None`: the configuration is fixed.
    pub(super) state: Option<watch::Receiver<NodeState>>,
}

/// A node that keeps the configuration log with others, or follows it.
pub(crate) struct Following {
    pub(super) formed: Arc<Formed>,
    pub(super) state: watch::Receiver<NodeState>,
    pub(super) control: Arc<ControlEndpoint>,
    pub(super) calls: Arc<ControlCalls>,
    /// Held while a recovery or a replacement of the cluster is decided: one at a time.
    pub(super) turn: tokio::sync::Mutex<()>,
}

impl Following {
    /// The newer of two configurations: that in the log, and `acted`, by which the chains act.
    pub(super) fn configs(&self, acted: &Arc<Configs>) -> Arc<Configs> {
        let logged = self.control.log.configs();
        if logged.applied() > acted.applied() { logged } else { acted.clone() }
    }
}

/// The present state of a node.
#[derive(Default)]
pub(crate) struct Stage(RwLock<Reached>);

#[derive(Clone, Default)]
pub(super) enum Reached {
    #[default]
    Opened,
    Started(Arc<Started>),
    Formed(Arc<Formed>),
    Following(Arc<Following>),
}

impl Stage {
    pub(super) fn enter(&self, next: Reached) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = next;
    }

    /// `None` before the sockets are bound.
    pub(super) fn started(&self) -> Option<Arc<Started>> {
        match self.reached() {
            Reached::Opened => None,
            Reached::Started(started) => Some(started),
            Reached::Formed(formed) => Some(formed.started.clone()),
            Reached::Following(following) => Some(following.formed.started.clone()),
        }
    }

    /// `None` before the cluster is known.
    pub(super) fn formed(&self) -> Option<Arc<Formed>> {
        match self.reached() {
            Reached::Opened | Reached::Started(_) => None,
            Reached::Formed(formed) => Some(formed),
            Reached::Following(following) => Some(following.formed.clone()),
        }
    }

    /// `None` before the configuration log runs here, and always with a fixed configuration.
    pub(super) fn following(&self) -> Option<Arc<Following>> {
        if let Reached::Following(following) = self.reached() { Some(following) } else { None }
    }

    fn reached(&self) -> Reached {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
