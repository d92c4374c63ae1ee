//! What an endpoint has sent and received since it was opened.

/// A reading of an endpoint's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Frames handed to QUIC.
    pub frames_sent: u64,
    /// Bytes of these frames.
    pub frame_bytes_sent: u64,
    /// Writes that these frames were handed over in.
    pub writes: u64,
    /// Frames taken out of streams.
    pub frames_received: u64,
    /// Bytes of these frames.
    pub frame_bytes_received: u64,
    /// Datagrams handed to QUIC.
    pub datagrams_sent: u64,
    /// Datagrams that did not fit or had no connection, and were dropped.
    pub datagrams_dropped: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Connections that peers dialled and that were accepted.
    pub accepted: u64,
    /// Connections that peers dialled and that were refused, whatever the reason.
    pub refused: u64,
    /// Connections dialled with success.
    pub dialled: u64,
    /// Dials that failed.
    pub dial_failures: u64,
    /// Calls of the system to send UDP packets.
    pub udp_sends: u64,
    /// Bytes in these packets.
    pub udp_bytes_sent: u64,
    /// Calls of the system that received UDP packets.
    pub udp_receives: u64,
    /// Bytes in these packets.
    pub udp_bytes_received: u64,
}
