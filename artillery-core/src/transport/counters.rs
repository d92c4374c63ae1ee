use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::Refusal;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Values of an endpoint's counters since it was opened. They are read one by one, not as a consistent
        /// snapshot.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The cells that [`Counters`] are read from.
        #[derive(Debug, Default)]
        pub(crate) struct CounterCells {
            $(pub(crate) $name: CounterCell,)*
        }

        impl CounterCells {
            pub(crate) fn read(&self) -> Counters {
                Counters { $($name: self.$name.0.load(Relaxed),)* }
            }
        }
    };
}

#[derive(Debug, Default)]
pub(crate) struct RefusalCounters([CounterCell; Refusal::WORDS.len()]);

impl RefusalCounters {
    pub(crate) fn add(&self, reason: &Refusal) {
        self.0[reason.index()].add(1);
    }

    pub(crate) fn read(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Refusal::WORDS.iter().copied().zip(self.0.iter().map(|cell| cell.0.load(Relaxed)))
    }
}

#[derive(Debug, Default)]
pub(crate) struct CounterCell(AtomicU64);

impl CounterCell {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }
}

counters! {
    /// Frames passed to QUIC, without hellos.
    frames_sent,
    /// Bytes of the frames passed to QUIC, including eight bytes of lengths per frame.
    frame_bytes_sent,
    /// Writes by which frames were passed to QUIC. One write may pass several frames.
    writes,
    /// Complete frames read from streams, without hellos.
    frames_received,
    /// Bytes of the frames read, including eight bytes of lengths per frame.
    frame_bytes_received,
    /// Datagrams passed to QUIC.
    datagrams_sent,
    /// Datagrams that were not passed to QUIC: too large, not supported by the peer, or without an open connection. A
    /// membership packet that is too large is included, although a stream may carry it instead. Datagrams that QUIC
    /// dropped later are not included.
    datagrams_dropped,
    /// Non-empty datagrams received on connections that peers dialled.
    datagrams_received,
    /// Connections that peers dialled and that were accepted.
    accepted,
    /// Connections that this node refused, for any reason: when a peer dialled (including failed handshakes), or later
    /// because the formations differ. Peers that this node refused after dialling them are included in
    /// [`dial_failures`](Self::dial_failures) instead.
    refused,
    /// Dialled connections that were established.
    dialled,
    /// Dials of one address that failed, for any reason. A dial that was abandoned, for instance because another
    /// address answered first, is in neither counter.
    dial_failures,
    /// System calls that sent UDP packets.
    udp_sends,
    /// Bytes in the UDP packets sent, without UDP and IP headers.
    udp_bytes_sent,
    /// System calls that received UDP packets.
    udp_receives,
    /// Bytes in the UDP packets received, without UDP and IP headers.
    udp_bytes_received,
}
