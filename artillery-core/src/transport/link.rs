//! Links: a connection to one peer that is dialled again when it breaks.

use std::{net::SocketAddr, sync::Arc};

use super::Connection;
use crate::{error::ConnectError, id::NodeId};

/// Whether there is a connection now.
#[derive(Debug, Clone)]
pub enum LinkState {
    /// There is.
    Up(Connection),
    /// There is none; why the last try failed, `None` if there was no try yet.
    Down(Option<Arc<ConnectError>>),
}

/// A link to one peer. Clones are the same link; it is given up when the last one is dropped.
#[derive(Debug, Clone)]
pub struct Link {}

impl Link {
    /// The peer.
    pub fn peer(&self) -> NodeId {
        todo!()
    }

    /// The connection, if there is one now.
    pub fn connection(&self) -> Option<Connection> {
        todo!()
    }

    /// Waits for a connection; an error only when the endpoint is closed.
    ///
    /// # Errors
    /// [`ConnectError::EndpointClosed`].
    pub async fn connected(&self) -> Result<Connection, ConnectError> {
        todo!()
    }

    /// Follows the link. It does not keep it: hold a [`Link`] too.
    pub fn watch(&self) -> LinkWatch {
        todo!()
    }

    /// Sets where the peer may be dialled. New addresses are dialled at once.
    pub fn set_addresses(&self, addresses: Vec<SocketAddr>) {
        let _ = addresses;
        todo!()
    }

    /// Dials at once if there is no connection, instead of after the pause.
    pub fn nudge(&self) {
        todo!()
    }
}

/// Follows a link's state. It may skip states that lasted shortly, never the last one.
#[derive(Debug, Clone)]
pub struct LinkWatch {}

impl LinkWatch {
    /// The state now.
    pub fn current(&self) -> LinkState {
        todo!()
    }

    /// Waits for a state that was not seen yet; `None` when the link is given up.
    pub async fn changed(&mut self) -> Option<LinkState> {
        todo!()
    }
}
