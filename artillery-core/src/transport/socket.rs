//! The UDP socket below QUIC: counts what passes and, in tests, drops what a filter stops.
//!
//! All that depends on quinn's `AsyncUdpSocket` stands here, since that trait changes with its next release.

use std::{
    fmt,
    io::{self, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use quinn::{
    AsyncUdpSocket, Runtime, TokioRuntime, UdpPoller,
    udp::{RecvMeta, Transmit},
};
use socket2::{Domain, Protocol, Socket, Type};

use super::{LinkFilter, counters::Cells};

/// Binds a socket with buffers of `buffer_bytes`, as far as the system grants them.
pub(super) fn bind(addr: SocketAddr, buffer_bytes: usize) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    for set in [Socket::set_recv_buffer_size, Socket::set_send_buffer_size] {
        if buffer_bytes > 0
            && let Err(error) = set(&socket, buffer_bytes)
        {
            tracing::debug!(%error, buffer_bytes, "the system refuses such socket buffers");
        }
    }
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    Ok(socket.into())
}

/// Hands `socket` to the runtime, wrapped.
pub(super) fn wrap(
    socket: UdpSocket,
    counters: Arc<Cells>,
    filter: Option<LinkFilter>,
) -> io::Result<Arc<dyn AsyncUdpSocket>> {
    Ok(Arc::new(FilteredSocket { inner: TokioRuntime.wrap_udp_socket(socket)?, counters, filter }))
}

struct FilteredSocket {
    inner: Arc<dyn AsyncUdpSocket>,
    counters: Arc<Cells>,
    filter: Option<LinkFilter>,
}

impl FilteredSocket {
    fn passes(&self, addr: SocketAddr) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter(addr))
    }

    /// Moves the packets that pass to the front, and returns how many they are.
    fn keep_passing(&self, received: usize, bufs: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta]) -> usize {
        let mut kept = 0;
        for at in 0..received {
            if self.passes(meta[at].addr) {
                bufs.swap(kept, at);
                meta.swap(kept, at);
                kept += 1;
            }
        }
        kept
    }
}

impl fmt::Debug for FilteredSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilteredSocket").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl AsyncUdpSocket for FilteredSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        if !self.passes(transmit.destination) {
            return Ok(());
        }
        self.inner.try_send(transmit)?;
        self.counters.udp_sends.add(1);
        self.counters.udp_bytes_sent.add(transmit.contents.len() as u64);
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            let received = ready!(self.inner.poll_recv(cx, bufs, meta))?;
            self.counters.udp_receives.add(1);
            self.counters.udp_bytes_received.add(meta[..received].iter().map(|meta| meta.len as u64).sum());
            if self.filter.is_none() {
                return Poll::Ready(Ok(received));
            }
            let kept = self.keep_passing(received, bufs, meta);
            if kept > 0 {
                return Poll::Ready(Ok(kept));
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}
