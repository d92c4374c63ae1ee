//! A relay of UDP datagrams that delays, drops and slows them: a long link on one machine.
//!
//! Clients send to the relay's address. The relay forwards their datagrams to one target, from a separate socket for
//! each client, and forwards the answers back. Each direction has a delay line ([`pipe`]) with a loss rate, a rate
//! limit, and bounds on its content. Trains of datagrams that the system receives as one buffer (GRO) are forwarded as
//! one (GSO).

mod flows;
pub mod pipe;
mod socket;
pub mod train;

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use artillery_core::{Timestamp, internal::clock};
use tokio::{sync::Notify, task::JoinSet};

use self::{
    flows::{Flow, Flows},
    pipe::{Next, Pipe, Shape},
    socket::Socket,
    train::Train,
};

/// The destination of a train.
#[derive(Debug, Clone)]
enum Destination {
    /// To the target, from the socket of a client.
    Target(Arc<Flow>),
    /// To a client.
    Client(SocketAddr),
}

impl PartialEq for Destination {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Target(own), Self::Target(others)) => Arc::ptr_eq(own, others),
            (Self::Client(own), Self::Client(others)) => own == others,
            _ => false,
        }
    }
}

/// What happened to the datagrams of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams that were forwarded.
    pub passed: u64,
    /// Datagrams that were dropped at random.
    pub lost: u64,
    /// Datagrams that exceeded a length or a capacity.
    pub dropped: u64,
    /// Datagrams that the system refused to send.
    pub refused: u64,
}

struct Way {
    pipe: Mutex<Pipe<Destination>>,
    has_more: Notify,
    refused: AtomicU64,
}

impl Way {
    fn new(shape: &Shape, seed: u64) -> Self {
        let pipe = Mutex::new(Pipe::new(shape, seed));
        Self { pipe, has_more: Notify::new(), refused: AtomicU64::new(0) }
    }

    fn with_pipe<T>(&self, what: impl FnOnce(&mut Pipe<Destination>) -> T) -> T {
        what(&mut self.pipe.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn enter(&self, now: Timestamp, trains: impl Iterator<Item = (Train, Destination)>) {
        self.with_pipe(|pipe| trains.for_each(|(train, to)| pipe.enter(now, train, to)));
        self.has_more.notify_one();
    }

    /// Sends all trains as they become due. Never returns.
    async fn send_on(&self, front: &Socket) {
        loop {
            match self.with_pipe(|pipe| pipe.next(clock::now())) {
                Next::Due(train, to) => {
                    let sent = match &to {
                        Destination::Target(flow) => flow.socket.send(&train, flow.target).await,
                        Destination::Client(client) => front.send(&train, *client).await,
                    };
                    // UDP allows loss, so a refused train is only counted.
                    if sent.is_err() {
                        self.refused.fetch_add(train.datagrams() as u64, Relaxed);
                    }
                }
                Next::At(due) => tokio::time::sleep(due.saturating_since(clock::now())).await,
                Next::Nothing => self.has_more.notified().await,
            }
        }
    }

    fn counts(&self) -> Counts {
        let refused = self.refused.load(Relaxed);
        let counts = self.with_pipe(|pipe| pipe.counts());
        Counts { refused, passed: counts.passed.saturating_sub(refused), ..counts }
    }
}

/// A relay that is bound but not started: its target may need to know its address first.
#[derive(Debug)]
pub struct Bound {
    front: Socket,
    /// The address to which clients send.
    pub addr: SocketAddr,
}

/// A running relay. Dropping it stops the relay.
pub struct Relay {
    there: Arc<Way>,
    back: Arc<Way>,
    _tasks: JoinSet<()>,
}

impl Relay {
    /// Binds an address.
    pub fn bind(listen: SocketAddr) -> io::Result<Bound> {
        let front = Socket::bind(listen)?;
        Ok(Bound { addr: front.local_addr()?, front })
    }

    /// What happened to the datagrams, to the target and back.
    pub fn counts(&self) -> [Counts; 2] {
        [self.there.counts(), self.back.counts()]
    }
}

impl Bound {
    /// Starts relaying to this target, in tasks of the current runtime. Each direction has this shape.
    pub fn start(self, target: SocketAddr, shape: &Shape) -> Relay {
        let (there, back) = (Arc::new(Way::new(shape, shape.seed)), Arc::new(Way::new(shape, !shape.seed)));
        let front = Arc::new(self.front);
        let mut tasks = JoinSet::new();
        for way in [&there, &back] {
            let (way, front) = (way.clone(), front.clone());
            tasks.spawn(async move { way.send_on(&front).await });
        }
        tasks.spawn(take_in(front, target, there.clone(), back.clone()));
        Relay { there, back, _tasks: tasks }
    }
}

/// Receives the datagrams of clients. One task per client receives the answers of the target.
async fn take_in(front: Arc<Socket>, target: SocketAddr, there: Arc<Way>, back: Arc<Way>) {
    let (mut flows, mut buffers) = (Flows::new(target), socket::Buffers::new());
    loop {
        let Ok(received) = front.receive(&mut buffers).await else { continue };
        let now = clock::now();
        let trains = received.filter_map(|(train, client)| {
            let flow = flows.of(client, |flow| answers(flow, client, back.clone()));
            // If no socket can be created for this client, its datagrams are lost.
            Some((train, Destination::Target(flow.ok()?)))
        });
        there.enter(now, trains);
    }
}

/// Receives the answers of the target to one client.
async fn answers(flow: Arc<Flow>, client: SocketAddr, back: Arc<Way>) {
    let mut buffers = socket::Buffers::new();
    loop {
        let Ok(received) = flow.socket.receive(&mut buffers).await else { continue };
        let from_target = received.filter(|(_, from)| *from == flow.target);
        back.enter(clock::now(), from_target.map(|(train, _)| (train, Destination::Client(client))));
    }
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, time::Duration};

    use tokio::{net::UdpSocket, time::timeout};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    async fn echo(socket: UdpSocket) {
        let mut buffer = [0; 2048];
        while let Ok((len, from)) = socket.recv_from(&mut buffer).await {
            let _ = socket.send_to(&buffer[..len], from).await;
        }
    }

    #[tokio::test]
    async fn datagrams_go_there_and_back_and_take_their_time() {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = UdpSocket::bind(local).await.unwrap();
        let target = server.local_addr().unwrap();
        let echo = tokio::spawn(echo(server));
        let bound = Relay::bind(local).unwrap();
        let addr = bound.addr;
        let shape = Shape { delay: Duration::from_millis(30), ..Shape::default() };
        let relay = bound.start(target, &shape);
        for number in [1u8, 2] {
            let client = UdpSocket::bind(local).await.unwrap();
            let began = clock::now();
            client.send_to(&[number; 100], addr).await.unwrap();
            let mut buffer = [0; 2048];
            let (len, from) = timeout(PATIENCE, client.recv_from(&mut buffer)).await.unwrap().unwrap();
            assert_eq!((&buffer[..len], from), (&[number; 100][..], addr));
            assert!(clock::now() - began >= Duration::from_millis(60));
        }
        let all = Counts { passed: 2, ..Counts::default() };
        assert_eq!(relay.counts(), [all, all]);
        echo.abort();
    }
}
