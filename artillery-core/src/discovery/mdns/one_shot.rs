//! Asks once for all nodes, from a port of its own (RFC 6762, section 5.1).
//!
//! A responder sends a record by multicast once a second at most. So a search that begins within a second of another one's answer
//! would get its own answer a second later. A question from another port than that of multicast DNS is answered at once, to
//! the asking socket alone (section 6.7).

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::{
    net,
    sync::mpsc,
    time::{Instant, sleep_until, timeout_at},
};

use super::{Interfaces, answer};
use crate::discovery::Candidate;

/// When the question is sent: packets may be lost.
const SENT_AFTER: [Duration; 3] = [Duration::ZERO, Duration::from_millis(50), Duration::from_millis(200)];

/// How long answers are awaited.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// The most addresses of this machine that are asked from.
const MAX_SOCKETS: usize = 32;

/// The most candidates of one search.
const MAX_FOUND: usize = 256;

/// The longest answer.
const MAX_ANSWER_BYTES: usize = 9000;

const GROUP_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(224, 0, 0, 251));
const GROUP_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb));

/// The nodes of this cluster that answer, for about a second. Empty without a tokio runtime. Call it in one.
pub(in crate::discovery) fn ask(cluster: &str, interfaces: &Interfaces, port: u16) -> mpsc::Receiver<Candidate> {
    let (found, candidates) = mpsc::channel(MAX_FOUND);
    for (socket, group) in sockets(interfaces, port) {
        let (found, cluster) = (found.clone(), cluster.to_owned());
        // It ends by itself soon, and at once when the candidates are no longer wanted.
        tokio::spawn(async move {
            if let Err(error) = ask_from(socket, group, &cluster, &found).await {
                tracing::debug!(%error, %group, "a question by multicast DNS");
            }
        });
    }
    candidates
}

/// A socket for each address of the interfaces, and the group to ask there.
fn sockets(interfaces: &Interfaces, port: u16) -> Vec<(UdpSocket, SocketAddr)> {
    let is_meant = |one: &if_addrs::Interface| match interfaces {
        Interfaces::All => true,
        Interfaces::Loopback => one.is_loopback(),
        Interfaces::Named(names) => names.contains(&one.name),
    };
    let here = if_addrs::get_if_addrs().unwrap_or_default();
    let opened = here.into_iter().filter(|one| one.is_oper_up() && is_meant(one)).filter_map(|one| {
        let socket = open(one.ip(), one.index.unwrap_or(0)).ok()?;
        let group = if one.ip().is_ipv4() { GROUP_V4 } else { GROUP_V6 };
        Some((socket, SocketAddr::from((group, port))))
    });
    opened.take(MAX_SOCKETS).collect()
}

fn open(ip: IpAddr, interface: u32) -> io::Result<UdpSocket> {
    let any: IpAddr = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let any = SocketAddr::from((any, 0));
    let socket = Socket::new(Domain::for_address(any), Type::DGRAM, Some(Protocol::UDP))?;
    match ip {
        IpAddr::V4(ip) => {
            socket.set_multicast_if_v4(&ip)?;
            socket.set_multicast_ttl_v4(255)?;
        }
        IpAddr::V6(_) => {
            socket.set_only_v6(true)?;
            socket.set_multicast_if_v6(interface)?;
            socket.set_multicast_hops_v6(255)?;
        }
    }
    socket.set_nonblocking(true)?;
    socket.bind(&any.into())?;
    Ok(socket.into())
}

async fn ask_from(
    socket: UdpSocket,
    group: SocketAddr,
    cluster: &str,
    found: &mpsc::Sender<Candidate>,
) -> io::Result<()> {
    let socket = net::UdpSocket::from_std(socket)?;
    let (question, began) = (answer::question(), Instant::now());
    for after in SENT_AFTER {
        sleep_until(began + after).await;
        // An interface without a route for the group has no nodes.
        socket.send_to(&question, group).await?;
        let until = SENT_AFTER.iter().find(|next| **next > after).map_or(ANSWER_TIME, |next| *next);
        receive(&socket, group.port(), began + until, cluster, found).await;
        if found.is_closed() {
            break;
        }
    }
    Ok(())
}

async fn receive(socket: &net::UdpSocket, port: u16, until: Instant, cluster: &str, found: &mpsc::Sender<Candidate>) {
    let mut memory = vec![0; MAX_ANSWER_BYTES];
    loop {
        let received = tokio::select! {
            received = timeout_at(until, socket.recv_from(&mut memory)) => received,
            () = found.closed() => return,
        };
        match received {
            Ok(Ok((len, from))) if from.port() == port => {
                for candidate in answer::read(&memory[..len], cluster) {
                    // Of too many, the last ones are found by the lasting search beside this one.
                    let _ = found.try_send(candidate);
                }
            }
            Ok(Ok(_)) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}
