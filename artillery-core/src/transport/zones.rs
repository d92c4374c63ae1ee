//! The interfaces on which a link-local IPv6 address without a zone is dialled.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6},
};

const MAX_ZONES: usize = 8;

/// Name prefixes of interfaces that lead to containers and virtual machines of this host.
const INTERNAL: [&str; 9] = ["veth", "docker", "br-", "virbr", "vnet", "cni", "cali", "flannel", "lxc"];

/// Whether an interface with this name leads to this host's containers or virtual machines.
pub(crate) fn is_internal(interface: &str) -> bool {
    INTERNAL.iter().any(|name| interface.starts_with(name))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ZonedIp {
    ip: Ipv6Addr,
    zone: u32,
    is_internal: bool,
}

/// This machine's current link-local IPv6 addresses.
pub(super) fn here() -> Vec<ZonedIp> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let zoned = |one: &if_addrs::Interface| match (one.ip(), one.index) {
        (IpAddr::V6(ip), Some(zone)) if ip.is_unicast_link_local() => {
            Some(ZonedIp { ip, zone, is_internal: is_internal(&one.name) })
        }
        _ => None,
    };
    interfaces.iter().filter_map(zoned).collect()
}

/// Returns `addr` if it is a link-local IPv6 address without a zone.
pub(super) fn lacks_zone(addr: SocketAddr) -> Option<SocketAddrV6> {
    match addr {
        SocketAddr::V6(addr) if addr.ip().is_unicast_link_local() && addr.scope_id() == 0 => Some(addr),
        _ => None,
    }
}

/// The address with the zones of this machine's interfaces, up to [`MAX_ZONES`], except where it is the address of this
/// node's own socket (`own_port`). Interfaces that lead out of this host are listed first, since they reach other
/// hosts.
pub(super) fn in_zones(addr: SocketAddrV6, own_port: u16, here: &[ZonedIp]) -> Vec<SocketAddr> {
    let is_own = |zone| addr.port() == own_port && here.iter().any(|one| one.zone == zone && one.ip == *addr.ip());
    let zones: BTreeSet<_> = here.iter().map(|one| (one.is_internal, one.zone)).collect();
    let zones = zones.into_iter().map(|(_, zone)| zone).filter(|&zone| !is_own(zone));
    zones.take(MAX_ZONES).map(|zone| SocketAddrV6::new(*addr.ip(), addr.port(), 0, zone).into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn zoned(ip: &str, zone: u32, interface: &str) -> ZonedIp {
        ZonedIp { ip: ip.parse().unwrap(), zone, is_internal: is_internal(interface) }
    }

    fn dialled(text: &str, here: &[ZonedIp]) -> Vec<SocketAddr> {
        in_zones(lacks_zone(addr(text)).unwrap(), 7400, here)
    }

    #[test]
    fn a_link_local_address_is_tried_on_each_interface() {
        for text in ["[fe80::1%3]:7", "[fd00::1]:7", "10.0.0.1:7"] {
            assert_eq!(lacks_zone(addr(text)), None);
        }
        let here = [zoned("fe80::a", 2, "eth0"), zoned("fe80::b", 2, "eth0"), zoned("fe80::c", 5, "eth1")];
        assert_eq!(dialled("[fe80::1]:7", &here), [addr("[fe80::1%2]:7"), addr("[fe80::1%5]:7")]);
        assert_eq!(dialled("[fe80::1]:7", &[]), []);
    }

    /// A host with many containers has as many interfaces.
    #[test]
    fn only_so_many_interfaces_are_tried_and_those_that_lead_out_first() {
        let mut here: Vec<_> = (1..100).map(|zone| zoned("fe80::a", zone, "veth7")).collect();
        here.push(zoned("fe80::b", 200, "eth0"));
        let dialled = dialled("[fe80::1]:7", &here);
        assert_eq!((dialled.len(), dialled[0]), (MAX_ZONES, addr("[fe80::1%200]:7")));
    }

    /// The bridges of two hosts may have the same address.
    #[test]
    fn a_socket_does_not_dial_itself() {
        let here = [zoned("fe80::1", 3, "docker0"), zoned("fe80::b", 2, "eth0")];
        assert_eq!(dialled("[fe80::1]:7400", &here), [addr("[fe80::1%2]:7400")]);
        assert_eq!(dialled("[fe80::1]:7401", &here), [addr("[fe80::1%2]:7401"), addr("[fe80::1%3]:7401")]);
        assert_eq!(dialled("[fe80::b]:7400", &here[1..]), []);
    }
}
