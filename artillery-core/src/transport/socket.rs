//! The UDP socket below QUIC. It counts system calls and bytes, avoids superfluous system calls and, in tests, drops
//! the packets that a filter rejects.
//!
//! All code that depends on quinn's `AsyncUdpSocket` is here, since that trait changes with quinn's next release.

use std::{
    fmt,
    io::{self, IoSliceMut},
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use quinn::{
    AsyncUdpSocket, UdpPoller,
    udp::{self, RecvMeta, Transmit, UdpSocketState},
};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::{io::Interest, net};

use super::{counters::CounterCells, reach::canonical};

/// Whether packets to and from an address pass. Tests use it to cut links.
pub type LinkFilter = Arc<dyn Fn(SocketAddr) -> bool + Send + Sync>;

/// Binds a socket with buffers of `buffer_bytes`, or the largest that the system allows. `[::]` means all addresses of
/// both families, or all IPv4 addresses on a machine without IPv6.
pub(super) fn bind(addr: SocketAddr, buffer_bytes: usize) -> io::Result<UdpSocket> {
    let is_for_both = addr.is_ipv6() && addr.ip().is_unspecified();
    match open(addr, is_for_both) {
        Err(_) if is_for_both => {
            let addr = (Ipv4Addr::UNSPECIFIED, addr.port()).into();
            bind_opened(open(addr, false)?, addr, buffer_bytes)
        }
        opened => bind_opened(opened?, addr, buffer_bytes),
    }
}

fn open(addr: SocketAddr, is_for_both: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    if is_for_both {
        socket.set_only_v6(false)?;
    }
    Ok(socket)
}

fn bind_opened(socket: Socket, addr: SocketAddr, buffer_bytes: usize) -> io::Result<UdpSocket> {
    for set in [Socket::set_recv_buffer_size, Socket::set_send_buffer_size] {
        if buffer_bytes > 0
            && let Err(error) = set(&socket, buffer_bytes)
        {
            tracing::debug!(%error, buffer_bytes, "the system rejects socket buffers of this size");
        }
    }
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    Ok(socket.into())
}

pub(super) fn wrap(
    socket: UdpSocket,
    counters: Arc<CounterCells>,
    filter: Option<LinkFilter>,
) -> io::Result<Arc<dyn AsyncUdpSocket>> {
    let state = UdpSocketState::new((&socket).into())?;
    Ok(Arc::new(FilteredSocket { io: net::UdpSocket::from_std(socket)?, state, counters, filter }))
}

struct FilteredSocket {
    io: net::UdpSocket,
    state: UdpSocketState,
    counters: Arc<CounterCells>,
    filter: Option<LinkFilter>,
}

/// Where one call can return many packets, a call that returns fewer than its maximum has emptied the socket.
const SHORT_MEANS_EMPTY: bool = cfg!(target_os = "linux") && udp::BATCH_SIZE > 1;

impl FilteredSocket {
    fn passes(&self, addr: SocketAddr) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter(canonical(addr)))
    }

    /// Receives the available packets.
    ///
    /// If the call has emptied the socket, it reports `WouldBlock` to tokio. The next call then waits until the system
    /// reports more packets, where quinn would otherwise make a superfluous call. A packet that arrives in between is
    /// not missed: tokio clears only the readiness that it knew before the call.
    fn receive(&self, bufs: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta]) -> io::Result<usize> {
        let most = bufs.len().min(udp::BATCH_SIZE);
        let mut short = None;
        let received = self.io.try_io(Interest::READABLE, || {
            let received = self.state.recv((&self.io).into(), bufs, meta)?;
            if SHORT_MEANS_EMPTY && received < most {
                short = Some(received);
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(received)
        });
        short.map_or(received, Ok)
    }

    /// Moves the packets that pass the filter to the front, and returns their number.
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
        f.debug_struct("FilteredSocket").field("io", &self.io).finish_non_exhaustive()
    }
}

impl AsyncUdpSocket for FilteredSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Writable { socket: self, waiting: None })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        if !self.passes(transmit.destination) {
            return Ok(());
        }
        self.io.try_io(Interest::WRITABLE, || self.state.send((&self.io).into(), transmit))?;
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
            ready!(self.io.poll_recv_ready(cx))?;
            // Either there was no packet, or the system reports that a packet sent earlier was refused. The socket
            // stays usable.
            let Ok(received) = self.receive(bufs, meta) else { continue };
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
        self.io.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.state.gro_segments()
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }
}

struct Writable {
    socket: Arc<FilteredSocket>,
    waiting: Option<WritableFuture>,
}

type WritableFuture = Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>;

impl fmt::Debug for Writable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writable").finish_non_exhaustive()
    }
}

impl UdpPoller for Writable {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The socket is usually known to be writable, which avoids the allocation of a future.
        if self.waiting.is_none() && self.socket.io.try_io(Interest::WRITABLE, || Ok(())).is_ok() {
            return Poll::Ready(Ok(()));
        }
        let socket = Arc::clone(&self.socket);
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(async move { socket.io.writable().await }));
        let writable = ready!(waiting.as_mut().poll(cx));
        self.waiting = None;
        Poll::Ready(writable)
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, time::Duration};

    use super::*;

    fn socket() -> (Arc<dyn AsyncUdpSocket>, UdpSocket) {
        let socket = bind((Ipv4Addr::LOCALHOST, 0).into(), 0).unwrap();
        let to = socket.local_addr().unwrap();
        let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        peer.connect(to).unwrap();
        (wrap(socket, Arc::default(), None).unwrap(), peer)
    }

    async fn receive(socket: &Arc<dyn AsyncUdpSocket>) -> usize {
        let mut memory = [[0; 64]; udp::BATCH_SIZE];
        let mut meta = [RecvMeta::default(); udp::BATCH_SIZE];
        let received = poll_fn(|cx| {
            let mut bufs = memory.each_mut().map(|memory| IoSliceMut::new(memory));
            socket.poll_recv(cx, &mut bufs, &mut meta)
        });
        tokio::time::timeout(Duration::from_secs(30), received).await.expect("the packet arrives").unwrap()
    }

    #[tokio::test]
    async fn packets_after_an_emptied_socket_are_read() {
        let (socket, peer) = socket();
        for round in 0..500 {
            let sent = 1 + round % (2 * udp::BATCH_SIZE);
            let mut received = 0;
            for packet in 0..sent {
                peer.send(&[7; 32]).unwrap();
                if packet == sent / 2 {
                    received += receive(&socket).await;
                }
            }
            while received < sent {
                received += receive(&socket).await;
            }
            assert_eq!(received, sent);
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_system_is_not_asked_again_for_what_a_short_call_left() {
        let (socket, peer) = socket();
        peer.send(&[7; 32]).unwrap();
        assert_eq!(receive(&socket).await, 1);
        // The runtime does not know of this packet, since no task has waited for it: only a system call would find it.
        peer.send(&[7; 32]).unwrap();
        let mut memory = [0; 64];
        let mut meta = [RecvMeta::default()];
        let at_once = poll_fn(|cx| Poll::Ready(socket.poll_recv(cx, &mut [IoSliceMut::new(&mut memory)], &mut meta)));
        assert!(at_once.await.is_pending());
        assert_eq!(receive(&socket).await, 1);
    }
}
