//! Chooses the addresses that a node advertises, and publishes their changes.

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

/// How often this machine's addresses are read. A change takes effect once two reads in succession have shown it.
const LOOK_PERIOD: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, PartialEq, Eq)]
struct LocalAddr {
    ip: IpAddr,
    interface: String,
    index: u32,
}

/// The IPs advertised by a node that listens on all addresses.
///
/// The node cannot know which of them a peer can reach: the host may have a VPN, or a bridge with the same address as
/// every other host. So it advertises all of them, up to [`MAX_ADDRS`], and peers try them (docs/adr/0045). The source
/// addresses of packets to the outside world (`outward`) are listed first, link-local ones last. Loopback addresses are
/// used only if there are no others. With [`Interfaces::All`] this also holds for IPv6 link-local addresses of
/// container interfaces, which appear and disappear with each container.
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

/// The addresses to advertise after the interfaces had the addresses `before` at the previous read and `seen` at this
/// one, or `None` if nothing changes. Order is irrelevant. A machine with no address except loopback is treated as
/// temporarily disconnected: it keeps its advertised addresses.
fn settle(advertised: &[SocketAddr], before: &[SocketAddr], seen: &[SocketAddr]) -> Option<Vec<SocketAddr>> {
    let is_cut_off = seen.iter().all(|addr| addr.ip().is_loopback());
    if is_cut_off { None } else { agree(advertised, before, seen) }
}

/// Like [`settle`], but without the exception for a disconnected machine.
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

/// The addresses to advertise, with `port`, for a node that listens at the unspecified address `local`.
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

/// Documentation addresses. They are routed like any address outside the local network.
const OUTSIDE: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];

/// The local address from which packets to `outside` leave. Connecting a UDP socket selects a route and sends nothing.
fn outward(outside: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = if outside.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((outside, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

pub(super) async fn announce_changes(
    endpoint: Endpoint,
    discovery: Arc<Combined>,
    me: Announcement,
    inputs: mpsc::Sender<MembershipInput>,
) {
    let mut advertised = endpoint.watch_advertised_addrs();
    // This task must not keep the endpoint alive.
    drop(endpoint);
    while advertised.changed().await.is_ok() {
        let addrs = advertised.borrow_and_update().clone();
        tracing::info!(?addrs, "the advertised addresses of this node have changed");
        discovery.announce(&Announcement { addrs: addrs.clone(), ..me.clone() });
        if inputs.send(MembershipInput::Moved(addrs)).await.is_err() {
            return;
        }
    }
}

/// Updates the endpoint's advertised addresses when this machine's addresses change. It never returns.
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

/// How often this node's host name is resolved.
const NAME_PERIOD: Duration = Duration::from_secs(2);

/// Chooses the advertised addresses of a node with a host name. A name may resolve to different addresses each time, so
/// a change takes effect once two answers in succession agree.
struct NameLooks {
    before: Vec<SocketAddr>,
}

impl NameLooks {
    /// The addresses to advertise after a lookup has returned the dialable addresses `named`, or `None` if nothing
    /// changes. If `named` is empty, the addresses returned by `others` are used.
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

/// Advertises the addresses of the node's host name. While the name can't be resolved, the advertised addresses stay.
/// While it resolves only to addresses that others can't dial (see [`of_name`]), this machine's addresses are
/// advertised if `interfaces` are given, else those from the start. It never returns.
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
            // A failed lookup, or a name without addresses, changes nothing.
            Err(error) => tracing::debug!(%name, %error, "cannot resolve the name of this node"),
        }
        sleep(NAME_PERIOD).await;
    }
}

/// The addresses of this node's host name that others can dial, at most [`MAX_ADDRS`]. Many systems map their own name
/// to a loopback address in `/etc/hosts`, at which no other host reaches this node.
fn of_name(found: &[SocketAddr], local: SocketAddr) -> Vec<SocketAddr> {
    let is_spoken = |addr: &SocketAddr| match local {
        SocketAddr::V4(_) => addr.is_ipv4(),
        SocketAddr::V6(local) => addr.is_ipv6() || local.ip().is_unspecified(),
    };
    let leads_here = |addr: &SocketAddr| local.ip().is_loopback() || !addr.ip().is_loopback();
    let mut addrs: Vec<_> = found.iter().copied().filter(|addr| is_spoken(addr) && leads_here(addr)).collect();
    if addrs.len() > MAX_ADDRS {
        // Many name servers shuffle their answers. Sorting selects the same addresses each time, unless the name has
        // more addresses than `Seed::resolve` returns.
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

    /// With a VPN as the default route, or equal bridges on all hosts, a peer may reach only one of the other
    /// addresses.
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

    /// Each start of a container would change the advertised addresses, and other hosts can't reach these addresses.
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
        // A node that listens on loopback may have a name that resolves to loopback.
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
