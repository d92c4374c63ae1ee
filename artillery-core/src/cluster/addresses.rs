//! Notices that this machine's addresses have changed, and tells the other nodes.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::mpsc, time::sleep};

use super::driver::MembershipInput;
use crate::{
    discovery::{Announcement, Combined, Discovery},
    transport::Endpoint,
};

/// How often the addresses of this machine are looked at.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// An IP that this node advertises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Advertised {
    ip: IpAddr,
    /// No route leads to the outside world, so this is just one of the machine's addresses: it may be that of a bridge.
    is_guess: bool,
}

/// Which IP this node advertises. `present` is the one that it advertises now, `outward` the one from which packets to
/// the outside world leave, and `local` are those that this machine has. The present one stays for as long as the machine
/// has it: a machine with several addresses must not change between them. A guess stays until there is a route.
fn choose(present: Option<Advertised>, outward: Option<IpAddr>, local: &[IpAddr]) -> Option<Advertised> {
    let kept = present.filter(|present| local.contains(&present.ip) && (outward.is_none() || !present.is_guess));
    let known = || outward.map(|ip| Advertised { ip, is_guess: false });
    let guess = || local.iter().copied().filter(is_reachable).min().map(|ip| Advertised { ip, is_guess: true });
    kept.or_else(known).or_else(guess)
}

/// Whether other machines may reach a node there.
fn is_reachable(ip: &IpAddr) -> bool {
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !ip.is_loopback() && !ip.is_unspecified() && !is_link_local
}

/// The IP to advertise of a node that listens on all addresses of this family.
pub(super) fn advertisable(listen: SocketAddr) -> Option<IpAddr> {
    look(None, listen).map(|advertised| advertised.ip)
}

fn look(present: Option<Advertised>, listen: SocketAddr) -> Option<Advertised> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let local: Vec<_> =
        interfaces.iter().map(if_addrs::Interface::ip).filter(|ip| ip.is_ipv4() == listen.is_ipv4()).collect();
    choose(present, outward(listen), &local)
}

/// The address that packets to the outside world leave from. No packet is sent: connecting a UDP socket only picks a
/// route.
fn outward(listen: SocketAddr) -> Option<IpAddr> {
    // Addresses reserved for documentation, routed like any address that is not on a local network.
    let (any, outside): (IpAddr, IpAddr) = match listen {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((outside, 9)).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_unspecified()).then_some(ip)
}

/// Tells discovery and the membership of each change of the advertised address.
pub(super) async fn announce_changes(
    endpoint: Endpoint,
    discovery: Arc<Combined>,
    me: Announcement,
    inputs: mpsc::Sender<MembershipInput>,
) {
    let mut advertised = endpoint.watch_advertised_addr();
    // The endpoint must not live on for this task.
    drop(endpoint);
    while advertised.changed().await.is_ok() {
        let addr = *advertised.borrow_and_update();
        tracing::info!(%addr, "this node has another address");
        discovery.announce(&Announcement { addrs: vec![addr], ..me.clone() });
        if inputs.send(MembershipInput::Moved(addr)).await.is_err() {
            return;
        }
    }
}

/// Has the endpoint advertise the address that this machine has now, for ever.
pub(super) async fn follow_interfaces(endpoint: Endpoint) {
    let listen = endpoint.local_addr();
    let mut is_guess = outward(listen).is_none_or(|ip| ip != endpoint.advertised_addr().ip());
    loop {
        sleep(LOOK_PERIOD).await;
        let before = endpoint.advertised_addr();
        if let Some(advertised) = look(Some(Advertised { ip: before.ip(), is_guess }), listen) {
            is_guess = advertised.is_guess;
            endpoint.set_advertised_addr((advertised.ip, before.port()).into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_stays_until_it_is_gone() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let (lan, other, wan) = (ip("10.0.0.2"), ip("10.0.0.7"), ip("203.0.113.5"));
        let loopback = ip("127.0.0.1");
        let known = |ip: IpAddr| Some(Advertised { ip, is_guess: false });
        let guessed = |ip: IpAddr| Some(Advertised { ip, is_guess: true });
        assert_eq!(choose(known(lan), Some(wan), &[loopback, lan, wan]), known(lan));
        assert_eq!(choose(known(lan), Some(wan), &[loopback, wan]), known(wan));
        assert_eq!(choose(known(lan), None, &[loopback, ip("169.254.1.1"), wan, other]), guessed(other));
        assert_eq!(choose(known(lan), None, &[loopback]), None);
        assert_eq!(choose(None, Some(wan), &[lan, wan]), known(wan));
    }

    /// Between two leases of an address a machine may have no other one than that of a bridge.
    #[test]
    fn a_guess_gives_way_to_a_route() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let (docker, lan) = (ip("172.17.0.1"), ip("192.168.1.9"));
        let guess = choose(Some(Advertised { ip: ip("192.168.1.5"), is_guess: false }), None, &[docker]);
        assert_eq!(guess, Some(Advertised { ip: docker, is_guess: true }));
        assert_eq!(choose(guess, None, &[docker, lan]), guess);
        assert_eq!(choose(guess, Some(lan), &[docker, lan]), Some(Advertised { ip: lan, is_guess: false }));
    }
}
