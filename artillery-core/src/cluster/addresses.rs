//! Which addresses of this machine a node advertises, and how other nodes learn of changes.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::mpsc, time::sleep};

use super::{driver::MembershipInput, member::MAX_ADDRS};
use crate::{
    discovery::{Announcement, Combined, Discovery, Interfaces, Seed},
    transport::{Endpoint, zones::is_internal},
};

/// How often the addresses of this machine are looked at. A change counts once two looks have shown it.
const LOOK_PERIOD: Duration = Duration::from_millis(500);

/// An address of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LocalAddr {
    ip: IpAddr,
    interface: String,
    /// The system's number of the interface.
    index: u32,
}

/// The IPs advertised by a node that listens on all addresses. Which of them a peer reaches is not known here: a host may have a
/// VPN, or a bridge with the same address as every other host. So all are advertised, up to [`MAX_ADDRS`], and peers try them.
/// Those from which packets to the outside world leave (`outward`) are first, link-local ones last. Loopback is used only if
/// there is nothing else, and so are the link-local addresses of IPv6 that lead to containers: these appear and disappear with
/// each container.
fn choose(outward: &[IpAddr], local: &[LocalAddr], interfaces: &Interfaces) -> Vec<IpAddr> {
    let is_meant = |one: &&LocalAddr| match interfaces {
        Interfaces::All => true,
        Interfaces::Loopback => one.ip.is_loopback(),
        Interfaces::Named(names) => names.contains(&one.interface),
    };
    let mut meant: Vec<_> = local.iter().filter(is_meant).filter(|one| !one.ip.is_unspecified()).collect();
    if meant.iter().any(|one| !one.ip.is_loopback()) {
        meant.retain(|one| !one.ip.is_loopback());
    }
    if matches!(interfaces, Interfaces::All) && !meant.iter().all(|one| is_internal_link_local(one)) {
        meant.retain(|one| !is_internal_link_local(one));
    }
    meant.sort_by_key(|one| (Reverse(outward.contains(&one.ip)), is_link_local(one.ip), one.index, one.ip));
    // Several interfaces may have the same address.
    let mut known = BTreeSet::new();
    meant.into_iter().map(|one| one.ip).filter(|&ip| known.insert(ip)).take(MAX_ADDRS).collect()
}

fn is_internal_link_local(one: &LocalAddr) -> bool {
    one.ip.is_ipv6() && is_link_local(one.ip) && is_internal(&one.interface)
}

/// The addresses to advertise after a look at the interfaces has shown `seen`, and the previous look has shown `before`. `None`:
/// no change. Their order is irrelevant. A machine without any network, or with loopback alone, has lost it temporarily: peers
/// keep its addresses until it is back.
fn settle(advertised: &[SocketAddr], before: &[SocketAddr], seen: &[SocketAddr]) -> Option<Vec<SocketAddr>> {
    let is_cut_off = seen.iter().all(|addr| addr.ip().is_loopback());
    if is_cut_off { None } else { agree(advertised, before, seen) }
}

/// As [`settle`], but all addresses count.
fn agree(advertised: &[SocketAddr], before: &[SocketAddr], seen: &[SocketAddr]) -> Option<Vec<SocketAddr>> {
    let set = |addrs: &[SocketAddr]| addrs.iter().copied().collect::<BTreeSet<_>>();
    let changes = set(seen) == set(before) && set(seen) != set(advertised);
    changes.then(|| seen.to_vec())
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// The addresses that a node advertises which listens at `local`, an unspecified address. Their port is `port`.
pub(super) fn advertisable(local: SocketAddr, port: u16, interfaces: &Interfaces) -> Vec<SocketAddr> {
    let is_spoken = |ip: IpAddr| local.is_ipv6() || ip.is_ipv4();
    let here = if_addrs::get_if_addrs().unwrap_or_default();
    let here: Vec<_> = here
        .into_iter()
        .filter(|one| one.is_oper_up() && is_spoken(one.ip()))
        .map(|one| LocalAddr { ip: one.ip(), index: one.index.unwrap_or(0), interface: one.name })
        .collect();
    let outward: Vec<_> = OUTSIDE.into_iter().filter(|outside| is_spoken(*outside)).filter_map(outward).collect();
    choose(&outward, &here, interfaces).into_iter().map(|ip| (ip, port).into()).collect()
}

/// Addresses reserved for documentation, routed like any address that is not on a local network.
const OUTSIDE: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];

/// The address that packets to the outside world leave from. No packet is sent: connecting a UDP socket only picks a
/// route.
fn outward(outside: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = if outside.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((outside, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Tells discovery and the membership of each change of the advertised addresses.
pub(super) async fn announce_changes(
    endpoint: Endpoint,
    discovery: Arc<Combined>,
    me: Announcement,
    inputs: mpsc::Sender<MembershipInput>,
) {
    let mut advertised = endpoint.watch_advertised_addrs();
    // The endpoint must not live on for this task.
    drop(endpoint);
    while advertised.changed().await.is_ok() {
        let addrs = advertised.borrow_and_update().clone();
        tracing::info!(?addrs, "this node has other addresses");
        discovery.announce(&Announcement { addrs: addrs.clone(), ..me.clone() });
        if inputs.send(MembershipInput::Moved(addrs)).await.is_err() {
            return;
        }
    }
}

/// Keeps the addresses that the endpoint advertises up to date with those of this machine. It never returns.
pub(super) async fn follow_interfaces(endpoint: Endpoint, interfaces: Interfaces) {
    let (local, port) = (endpoint.local_addr(), endpoint.advertised_addr().port());
    let mut before = endpoint.advertised_addrs();
    loop {
        sleep(LOOK_PERIOD).await;
        let seen = advertisable(local, port, &interfaces);
        if let Some(addrs) = settle(&endpoint.advertised_addrs(), &before, &seen) {
            endpoint.set_advertised_addrs(addrs);
        }
        before = seen;
    }
}

/// How often the host name of this node is looked up.
const NAME_PERIOD: Duration = Duration::from_secs(2);

/// What a node advertises that has a host name. A name may have other addresses in each answer, so a change counts once two answers
/// in succession have shown the same ones.
struct NameLooks {
    before: Vec<SocketAddr>,
}

impl NameLooks {
    /// The addresses to advertise after a look has shown those of the name, or, if none is of use, `others`. `None`: no change.
    fn on_look(
        &mut self,
        advertised: &[SocketAddr],
        named: Vec<SocketAddr>,
        others: impl FnOnce() -> Vec<SocketAddr>,
    ) -> Option<Vec<SocketAddr>> {
        let (seen, change) = if named.is_empty() {
            let seen = others();
            let change = settle(advertised, &self.before, &seen);
            (seen, change)
        } else {
            let change = agree(advertised, &self.before, &named);
            (named, change)
        };
        self.before = seen;
        change
    }
}

/// Keeps the endpoint advertising the addresses of its host name; while that has none of use, those at the start or, with
/// `interfaces`, those of this machine. It never returns.
pub(super) async fn follow_name(endpoint: Endpoint, name: Seed, interfaces: Option<Interfaces>) {
    let (local, port, first) = (endpoint.local_addr(), endpoint.advertised_addr().port(), endpoint.advertised_addrs());
    let mut looks = NameLooks { before: first.clone() };
    let others = || interfaces.as_ref().map_or_else(|| first.clone(), |which| advertisable(local, port, which));
    loop {
        match name.resolve().await {
            Ok(found) => {
                if let Some(addrs) = looks.on_look(&endpoint.advertised_addrs(), of_name(&found, local), others) {
                    endpoint.set_advertised_addrs(addrs);
                }
            }
            // A failure of the name server changes no address.
            Err(error) => tracing::debug!(%name, %error, "the name of this node"),
        }
        sleep(NAME_PERIOD).await;
    }
}

/// The addresses of this node's host name that others may dial. Many systems map the own name to a loopback address in
/// `/etc/hosts`: it leads no other host here.
fn of_name(found: &[SocketAddr], local: SocketAddr) -> Vec<SocketAddr> {
    let is_spoken = |addr: &SocketAddr| match local {
        SocketAddr::V4(_) => addr.is_ipv4(),
        SocketAddr::V6(local) => addr.is_ipv6() || local.ip().is_unspecified(),
    };
    let leads_here = |addr: &SocketAddr| local.ip().is_loopback() || !addr.ip().is_loopback();
    let mut addrs: Vec<_> = found.iter().copied().filter(|addr| is_spoken(addr) && leads_here(addr)).collect();
    if addrs.len() > MAX_ADDRS {
        // Many name servers change the order with each answer: the same addresses must count each time.
        addrs.sort_unstable();
        addrs.truncate(MAX_ADDRS);
    }
    addrs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_to_loopback_leads_no_other_host_here() {
        let addrs = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<SocketAddr>>();
        let named = addrs(&["127.0.1.1:7400", "[::1]:7400", "10.0.0.5:7400", "[fd00::5]:7400"]);
        let of = |local: &str| of_name(&named, local.parse().unwrap());
        assert_eq!(of("[::]:7400"), addrs(&["10.0.0.5:7400", "[fd00::5]:7400"]));
        assert_eq!(of("0.0.0.0:7400"), addrs(&["10.0.0.5:7400"]));
        assert_eq!(of("127.0.0.1:7400"), addrs(&["127.0.1.1:7400", "10.0.0.5:7400"]));
        assert_eq!(of_name(&named[..2], "[::]:7400".parse().unwrap()), []);
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn local(all: &[(&str, &str, u32)]) -> Vec<LocalAddr> {
        let one = |&(text, interface, index): &(&str, &str, u32)| LocalAddr {
            ip: ip(text),
            interface: interface.into(),
            index,
        };
        all.iter().map(one).collect()
    }

    fn chosen(outward: &[&str], all: &[(&str, &str, u32)], interfaces: &Interfaces) -> Vec<String> {
        let outward: Vec<_> = outward.iter().map(|text| ip(text)).collect();
        choose(&outward, &local(all), interfaces).iter().map(ToString::to_string).collect()
    }

    const HOST: [(&str, &str, u32); 6] = [
        ("127.0.0.1", "lo", 1),
        ("192.168.1.5", "eth0", 2),
        ("172.17.0.1", "docker0", 3),
        ("100.64.0.9", "tun0", 4),
        ("fe80::1", "eth0", 2),
        ("169.254.3.4", "eth1", 5),
    ];

    /// With a VPN as the default route, or the same bridge on each host, only one of the other addresses is reached.
    #[test]
    fn all_addresses_are_told() {
        assert_eq!(
            chosen(&["100.64.0.9"], &HOST, &Interfaces::All),
            ["100.64.0.9", "192.168.1.5", "172.17.0.1", "fe80::1", "169.254.3.4"]
        );
        assert_eq!(chosen(&[], &HOST, &Interfaces::All)[0], "192.168.1.5");
    }

    #[test]
    fn a_named_interface_is_told_alone() {
        let named = Interfaces::Named(vec!["eth0".into()]);
        assert_eq!(chosen(&["100.64.0.9"], &HOST, &named), ["192.168.1.5", "fe80::1"]);
        assert_eq!(chosen(&["100.64.0.9"], &HOST, &Interfaces::Loopback), ["127.0.0.1"]);
    }

    #[test]
    fn loopback_is_told_without_a_network() {
        assert_eq!(chosen(&[], &HOST[..1], &Interfaces::All), ["127.0.0.1"]);
        assert_eq!(chosen(&[], &[], &Interfaces::All), [""; 0]);
    }

    #[test]
    fn an_address_of_two_interfaces_is_told_once() {
        let all = [("10.0.0.5", "eth0", 2), ("172.17.0.1", "docker0", 3), ("10.0.0.5", "eth1", 4)];
        assert_eq!(chosen(&[], &all, &Interfaces::All), ["10.0.0.5", "172.17.0.1"]);
    }

    /// Each start of a container would be a change, and no other host reaches them.
    #[test]
    fn link_local_addresses_of_containers_are_told_if_there_is_nothing_else() {
        let all =
            [("172.17.0.1", "docker0", 3), ("fe80::3", "docker0", 3), ("fe80::9", "veth1f", 9), ("fe80::2", "eth0", 2)];
        assert_eq!(chosen(&[], &all, &Interfaces::All), ["172.17.0.1", "fe80::2"]);
        assert_eq!(chosen(&[], &all[..3], &Interfaces::All), ["172.17.0.1"]);
        assert_eq!(chosen(&[], &all[2..], &Interfaces::All), ["fe80::2"]);
        assert_eq!(chosen(&[], &all[1..3], &Interfaces::All), ["fe80::3", "fe80::9"]);
        let named = Interfaces::Named(vec!["docker0".into()]);
        assert_eq!(chosen(&[], &all, &named), ["172.17.0.1", "fe80::3"]);
    }

    fn at(ips: &[&str]) -> Vec<SocketAddr> {
        ips.iter().map(|&text| (ip(text), 7400).into()).collect()
    }

    #[test]
    fn a_change_counts_once_two_looks_have_shown_it() {
        let (old, new) = (at(&["10.0.0.1"]), at(&["10.0.0.2", "fd00::2"]));
        assert_eq!(settle(&old, &old, &new), None);
        assert_eq!(settle(&old, &new, &new), Some(new.clone()));
        assert_eq!(settle(&new, &new, &new), None);
        let reversed: Vec<_> = new.iter().rev().copied().collect();
        assert_eq!(settle(&new, &reversed, &reversed), None);
        assert_eq!(settle(&old, &reversed, &new), Some(new));
    }

    #[test]
    fn the_addresses_of_a_name_count_once_two_answers_have_shown_them() {
        let (first, all) = (at(&["10.0.0.1"]), at(&["10.0.0.2", "10.0.0.3", "10.0.0.4"]));
        let mut looks = NameLooks { before: first.clone() };
        let no_others = || unreachable!("the name has addresses");
        for turn in 0..9 {
            assert_eq!(looks.on_look(&first, vec![all[turn % 3]], no_others), None, "a name that rotates");
        }
        assert_eq!(looks.on_look(&first, all.clone(), no_others), None);
        assert_eq!(looks.on_look(&first, all.clone(), no_others), Some(all.clone()));
        assert_eq!(looks.on_look(&all, all.iter().rev().copied().collect(), no_others), None);
        // A node that listens on loopback has a name that leads there.
        let loopback = at(&["127.0.0.1"]);
        assert_eq!(looks.on_look(&all, loopback.clone(), no_others), None);
        assert_eq!(looks.on_look(&all, loopback.clone(), no_others), Some(loopback));
    }

    #[test]
    fn a_name_without_addresses_leaves_the_choice_to_the_interfaces() {
        let (first, other, loopback) = (at(&["10.0.0.1"]), at(&["10.0.0.2"]), at(&["127.0.0.1"]));
        let mut looks = NameLooks { before: first.clone() };
        assert_eq!(looks.on_look(&first, vec![], || other.clone()), None);
        assert_eq!(looks.on_look(&first, vec![], || other.clone()), Some(other.clone()));
        for _ in 0..3 {
            assert_eq!(looks.on_look(&other, vec![], || loopback.clone()), None, "the network is down for a moment");
        }
    }

    #[test]
    fn a_name_with_more_addresses_than_fit_has_the_same_in_any_order() {
        let mut found: Vec<SocketAddr> = (0..12).map(|n| ([10, 0, 0, n], 7400).into()).collect();
        let chosen = of_name(&found, "[::]:7400".parse().unwrap());
        found.rotate_left(5);
        assert_eq!((chosen.len(), of_name(&found, "[::]:7400".parse().unwrap())), (MAX_ADDRS, chosen));
    }

    #[test]
    fn a_network_that_is_down_for_a_moment_is_no_change() {
        let (lan, loopback) = (at(&["10.0.0.1"]), at(&["127.0.0.1", "::1"]));
        assert_eq!(settle(&lan, &loopback, &loopback), None);
        assert_eq!(settle(&lan, &[], &[]), None);
        assert_eq!(settle(&loopback, &lan, &lan), Some(lan));
    }

    #[test]
    fn so_many_are_told_as_fit() {
        let many: Vec<_> =
            (0..20).map(|n| LocalAddr { ip: [10, 0, 0, n].into(), interface: "e".into(), index: 1 }).collect();
        assert_eq!(choose(&[[10, 0, 0, 19].into()], &many, &Interfaces::All).len(), MAX_ADDRS);
        assert_eq!(choose(&[[10, 0, 0, 19].into()], &many, &Interfaces::All)[0], ip("10.0.0.19"));
    }
}
