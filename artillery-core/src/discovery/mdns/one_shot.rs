//! Queries all nodes once, from an ephemeral port (RFC 6762, section 5.1).
//!
//! A responder multicasts a record at most once a second, so a search that starts within a second after an answer to
//! another search would be answered up to a second later. A query from any port other than the multicast DNS port is
//! answered at once, to the querying socket alone (section 6.7).

use std::{
    collections::BTreeSet,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket},
    task::{Context, Poll},
    time::Duration,
};

use if_addrs::Interface;
use rand::RngExt;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::{
    net,
    runtime::Handle,
    sync::mpsc,
    task::{JoinSet, spawn_blocking},
    time::{Instant, sleep_until, timeout_at},
};
use tracing::debug;

use super::{Interfaces, MdnsSettings, answer, found};
use crate::discovery::Candidate;

/// When the query is sent. It is repeated because packets may be lost.
const SENT_AFTER: [Duration; 3] = [Duration::ZERO, Duration::from_millis(50), Duration::from_millis(200)];

const ANSWER_TIME: Duration = Duration::from_secs(1);

/// Maximum number of sockets, one per interface and family.
const MAX_SOCKETS: usize = 32;

/// Capacity of the channel of candidates. Further ones are left to the continuous search.
const MAX_WAITING: usize = 256;

/// Maximum number of packets read between two queries: a flood must not keep a task busy.
const MAX_ANSWERS: usize = 256;

/// Maximum size of an answer in bytes (RFC 6762, section 17).
const MAX_ANSWER_BYTES: usize = 9000;

const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);

/// The answers to a query, which is sent on the first poll: a stream may be created outside the runtime that polls it.
pub(super) enum FirstAnswers {
    Unasked(MdnsSettings),
    Asked(mpsc::Receiver<Candidate>),
}

impl FirstAnswers {
    pub(super) fn new(settings: &MdnsSettings) -> Self {
        Self::Unasked(settings.clone())
    }

    /// Ends about a second after the first poll.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Candidate>> {
        if let Self::Unasked(settings) = self {
            *self = Self::Asked(ask(settings));
        }
        match self {
            Self::Unasked(_) => Poll::Ready(None),
            Self::Asked(candidates) => candidates.poll_recv(context),
        }
    }
}

/// The nodes of this cluster that answer within about a second. None outside a tokio runtime.
pub(in crate::discovery) fn ask(settings: &MdnsSettings) -> mpsc::Receiver<Candidate> {
    let (found, candidates) = mpsc::channel(MAX_WAITING);
    if let Ok(runtime) = Handle::try_current() {
        // The task ends within about a second, or as soon as the receiver is dropped.
        runtime.spawn(ask_everywhere(settings.clone(), found));
    }
    candidates
}

#[allow(clippy::disallowed_methods, reason = "an attacker who forges answers must not know the id of the query")]
async fn ask_everywhere(settings: MdnsSettings, found: mpsc::Sender<Candidate>) {
    let MdnsSettings { cluster, interfaces, port } = settings;
    // The system call blocks, and takes longer with many interfaces.
    let opened = spawn_blocking(move || sockets(&interfaces)).await.unwrap_or_default();
    let mut questions = JoinSet::new();
    for (socket, group, interface) in opened {
        let Ok(socket) = net::UdpSocket::from_std(socket) else { continue };
        let id = rand::rng().random();
        let question = Question { socket, group: at_port(group, port), interface, id, cluster: cluster.clone() };
        let found = found.clone();
        questions.spawn(async move { question.ask(&found).await });
    }
    tokio::select! {
        () = async { while questions.join_next().await.is_some() {} } => {}
        () = found.closed() => {}
    }
}

fn at_port(group: SocketAddr, port: u16) -> SocketAddr {
    let mut group = group;
    group.set_port(port);
    group
}

/// Whether multicast DNS uses an interface: it must be selected by `interfaces` and, as in `mdns-sd`, be up and not
/// point-to-point.
fn is_used(one: &Interface, interfaces: &Interfaces) -> bool {
    let is_meant = match interfaces {
        Interfaces::All => true,
        Interfaces::Loopback => one.is_loopback(),
        Interfaces::Named(names) => names.contains(&one.name),
    };
    is_meant && one.is_oper_up() && !one.is_p2p()
}

/// One socket per interface and family, with the multicast group and the interface's index.
fn sockets(interfaces: &Interfaces) -> Vec<(UdpSocket, SocketAddr, u32)> {
    let here = if_addrs::get_if_addrs().unwrap_or_default();
    let mut asked = BTreeSet::new();
    let mut opened = Vec::new();
    for one in here.iter().filter(|one| is_used(one, interfaces)) {
        let interface = one.index.unwrap_or(0);
        if opened.len() >= MAX_SOCKETS || asked.contains(&(interface, one.ip().is_ipv4())) {
            continue;
        }
        match open(one.ip(), interface) {
            Ok((socket, group)) => {
                asked.insert((interface, one.ip().is_ipv4()));
                opened.push((socket, group, interface));
            }
            Err(error) => debug!(%error, interface = one.name, "cannot query by multicast DNS"),
        }
    }
    opened
}

fn open(ip: IpAddr, interface: u32) -> io::Result<(UdpSocket, SocketAddr)> {
    let socket = Socket::new(Domain::for_address((ip, 0).into()), Type::DGRAM, Some(Protocol::UDP))?;
    let (any, group): (SocketAddr, SocketAddr) = match ip {
        IpAddr::V4(ip) => {
            socket.set_multicast_if_v4(&ip)?;
            socket.set_multicast_ttl_v4(255)?;
            ((Ipv4Addr::UNSPECIFIED, 0).into(), (GROUP_V4, 0).into())
        }
        IpAddr::V6(_) => {
            socket.set_only_v6(true)?;
            socket.set_multicast_if_v6(interface)?;
            socket.set_multicast_hops_v6(255)?;
            ((Ipv6Addr::UNSPECIFIED, 0).into(), SocketAddrV6::new(GROUP_V6, 0, 0, interface).into())
        }
    };
    socket.set_nonblocking(true)?;
    socket.bind(&any.into())?;
    Ok((socket.into(), group))
}

struct Question {
    socket: net::UdpSocket,
    group: SocketAddr,
    interface: u32,
    id: u16,
    cluster: String,
}

impl Question {
    async fn ask(self, found: &mpsc::Sender<Candidate>) {
        let (question, began) = (answer::question(self.id), Instant::now());
        let ends = SENT_AFTER.into_iter().skip(1).chain([ANSWER_TIME]);
        for end in ends {
            // An interface without a route to the group has no nodes. A full queue or a firewall may let the next query
            // pass.
            if let Err(error) = self.socket.send_to(&question, self.group).await {
                debug!(%error, group = %self.group, interface = self.interface, "cannot send a query by multicast DNS");
            }
            // A socket error ends this wait early. The next wait receives again.
            if let Err(error) = self.receive(began + end, found).await {
                debug!(%error, interface = self.interface, "cannot receive answers by multicast DNS");
            }
        }
    }

    async fn receive(&self, until: Instant, found: &mpsc::Sender<Candidate>) -> io::Result<()> {
        let mut memory = vec![0; MAX_ANSWER_BYTES];
        for _ in 0..MAX_ANSWERS {
            let Ok(received) = timeout_at(until, self.socket.recv_from(&mut memory)).await else { return Ok(()) };
            let (len, from) = received?;
            // Only a responder answers from this port (section 6).
            if from.port() != self.group.port() {
                continue;
            }
            for instance in answer::read(&memory[..len], self.id) {
                if let Some(candidate) = found::answered(instance, &self.cluster, self.interface) {
                    let _ = found.try_send(candidate);
                }
            }
        }
        sleep_until(until).await;
        Ok(())
    }
}
