//! A UDP socket that receives and sends trains of datagrams.

use std::{
    io::{self, IoSliceMut},
    net::{SocketAddr, UdpSocket as StdSocket},
};

use quinn::udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use tokio::{io::Interest, net::UdpSocket};

use super::train::Train;

/// Maximum length of a train, in bytes.
const TRAIN_BYTES: usize = 64 << 10;

/// Requested size of each socket buffer, in bytes. The system may grant less.
const SOCKET_BYTES: usize = 16 << 20;

#[derive(Debug)]
pub(super) struct Socket {
    socket: UdpSocket,
    state: UdpSocketState,
}

/// Buffers for one batch of trains.
pub(super) struct Buffers {
    bytes: Vec<u8>,
    metas: Vec<RecvMeta>,
}

impl Buffers {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; TRAIN_BYTES * BATCH_SIZE], metas: vec![RecvMeta::default(); BATCH_SIZE] }
    }
}

impl Socket {
    pub(super) fn bind(addr: SocketAddr) -> io::Result<Self> {
        let socket = StdSocket::bind(addr)?;
        let state = UdpSocketState::new((&socket).into())?;
        // Errors are ignored: smaller buffers only mean more losses under load, which the figures show.
        let _ = state.set_recv_buffer_size((&socket).into(), SOCKET_BYTES);
        let _ = state.set_send_buffer_size((&socket).into(), SOCKET_BYTES);
        Ok(Self { socket: UdpSocket::from_std(socket)?, state })
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Receives trains of datagrams, with the source of each.
    pub(super) async fn receive<'a>(
        &self,
        buffers: &'a mut Buffers,
    ) -> io::Result<impl Iterator<Item = (Train, SocketAddr)> + use<'a>> {
        let Buffers { bytes, metas } = buffers;
        let receive = || {
            let mut slices: Vec<_> = bytes.chunks_mut(TRAIN_BYTES).map(IoSliceMut::new).collect();
            self.state.recv((&self.socket).into(), &mut slices, metas)
        };
        let trains = self.socket.async_io(Interest::READABLE, receive).await?;
        let received = bytes.chunks(TRAIN_BYTES).zip(metas.iter()).take(trains);
        Ok(received.map(|(bytes, meta)| (Train::new(bytes[..meta.len].to_vec(), meta.stride, meta.ecn), meta.addr)))
    }

    /// Sends a train, in as few pieces as the system allows.
    pub(super) async fn send(&self, train: &Train, destination: SocketAddr) -> io::Result<()> {
        let piece = train.stride() * self.state.max_gso_segments().max(1);
        if train.bytes().is_empty() {
            return self.send_piece(train, train.bytes(), destination).await;
        }
        for bytes in train.bytes().chunks(piece) {
            self.send_piece(train, bytes, destination).await?;
        }
        Ok(())
    }

    async fn send_piece(&self, train: &Train, contents: &[u8], destination: SocketAddr) -> io::Result<()> {
        let segment_size = (contents.len() > train.stride()).then_some(train.stride());
        let transmit = Transmit { destination, ecn: train.ecn, contents, segment_size, src_ip: None };
        self.socket.async_io(Interest::WRITABLE, || self.state.try_send((&self.socket).into(), &transmit)).await
    }
}
