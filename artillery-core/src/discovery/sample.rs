//! Selects which of many announced addresses are used. Does no I/O.
//!
//! Announcements prove nothing: any host on the network may add addresses to those of a node. So the selection is
//! random: otherwise forged addresses could displace the true one permanently.

use std::net::{IpAddr, SocketAddr};

pub(super) const MAX_ADDRS: usize = 16;

/// Slots reserved for addresses outside this machine's subnets, if there are any: a node may be behind a router.
const MIN_FAR: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AnnouncedAddr {
    pub(super) addr: SocketAddr,
    /// The indexes of the interfaces on which the address was announced.
    pub(super) interfaces: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subnet {
    pub(super) ip: IpAddr,
    pub(super) prefix_bits: u8,
    pub(super) interface: u32,
}

impl Subnet {
    fn has(&self, ip: IpAddr) -> bool {
        match (self.ip, ip) {
            (IpAddr::V4(here), IpAddr::V4(there)) => {
                let differing = here.to_bits() ^ there.to_bits();
                differing.leading_zeros() >= u32::from(self.prefix_bits)
            }
            (IpAddr::V6(here), IpAddr::V6(there)) => {
                let differing = here.to_bits() ^ there.to_bits();
                differing.leading_zeros() >= u32::from(self.prefix_bits)
            }
            _ => false,
        }
    }
}

impl AnnouncedAddr {
    /// Whether the address is reachable without a router through an interface on which it was announced.
    fn is_near(&self, here: &[Subnet]) -> bool {
        here.iter().any(|subnet| self.interfaces.contains(&subnet.interface) && subnet.has(self.addr.ip()))
    }
}

/// Selects up to [`MAX_ADDRS`] addresses, and returns them sorted. Addresses of this machine's subnets have precedence,
/// but up to [`MIN_FAR`] slots are reserved for other addresses. Where there are more addresses than slots, the
/// selection is random. `pick` returns a random number below its argument.
pub(super) fn sample(
    announced: Vec<AnnouncedAddr>,
    here: &[Subnet],
    mut pick: impl FnMut(usize) -> usize,
) -> Vec<SocketAddr> {
    let (near, far): (Vec<_>, Vec<_>) = announced.into_iter().partition(|one| one.is_near(here));
    let mut taken = some_of(near, MAX_ADDRS - far.len().min(MIN_FAR), &mut pick);
    taken.extend(some_of(far, MAX_ADDRS - taken.len(), &mut pick));
    taken.sort_unstable();
    taken
}

fn some_of(mut all: Vec<AnnouncedAddr>, most: usize, pick: &mut impl FnMut(usize) -> usize) -> Vec<SocketAddr> {
    while all.len() > most {
        all.swap_remove(pick(all.len()));
    }
    all.into_iter().map(|one| one.addr).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const LAN: Subnet = Subnet { ip: IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 7, 1)), prefix_bits: 24, interface: 2 };

    fn on_lan(ip: [u8; 4]) -> AnnouncedAddr {
        AnnouncedAddr { addr: (ip, 7400).into(), interfaces: vec![2] }
    }

    fn picker(seed: u64) -> impl FnMut(usize) -> usize {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        move |below| random.random_range(0..below)
    }

    /// The forged addresses are lower than the node's: code that sorted all addresses and kept the first ones would
    /// lose the node's address.
    #[test]
    fn forged_addresses_do_not_hide_the_one_of_the_own_subnet() {
        let mut all: Vec<_> = (1..200).map(|n| on_lan([1, 0, 0, n])).collect();
        let node = on_lan([10, 0, 7, 9]);
        all.push(node.clone());
        let taken = sample(all, &[LAN], picker(1));
        assert_eq!(taken.len(), MAX_ADDRS);
        assert!(taken.contains(&node.addr), "{taken:?}");
    }

    #[test]
    fn forged_addresses_of_the_own_subnet_do_not_hide_another_for_ever() {
        let lan: Vec<_> = (1..=200).map(|n| on_lan([10, 0, 7, n])).collect();
        let far = on_lan([192, 168, 0, 1]);
        let mut taken = BTreeSet::new();
        for seed in 0..200 {
            let some = sample(lan.iter().cloned().chain([far.clone()]).collect(), &[LAN], picker(seed));
            assert!(some.len() == MAX_ADDRS && some.contains(&far.addr));
            taken.extend(some);
        }
        assert_eq!(taken.len(), 201, "each is taken at some time");
    }

    /// Different machines have equal subnets: loopback, and often the default subnet of a container bridge. So an
    /// address in such a subnet is near only if it was announced on that interface.
    #[test]
    fn a_subnet_counts_on_the_interface_of_the_announcement() {
        let loopback = Subnet { ip: [127, 0, 0, 1].into(), prefix_bits: 8, interface: 1 };
        assert!(!on_lan([127, 0, 0, 1]).is_near(&[loopback, LAN]));
        assert!(on_lan([10, 0, 7, 200]).is_near(&[loopback, LAN]) && !on_lan([10, 0, 8, 1]).is_near(&[LAN]));
        let six = Subnet { ip: "fd00::1".parse().unwrap(), prefix_bits: 64, interface: 2 };
        let at = |ip: &str| AnnouncedAddr { addr: SocketAddr::new(ip.parse().unwrap(), 1), interfaces: vec![2] };
        assert!(at("fd00::9").is_near(&[six]) && !at("fd00:0:0:1::9").is_near(&[six]));
    }

    proptest! {
        #[test]
        fn no_more_are_taken_than_fit_and_none_is_left_out_without_need(ips: BTreeSet<[u8; 4]>, prefix_bits: u8, seed: u64) {
            let all: Vec<_> = ips.iter().map(|&ip| on_lan(ip)).collect();
            let taken = sample(all, &[Subnet { prefix_bits, ..LAN }], picker(seed));
            prop_assert_eq!(taken.len(), ips.len().min(MAX_ADDRS));
            prop_assert!(taken.iter().all(|addr| matches!(addr.ip(), IpAddr::V4(ip) if ips.contains(&ip.octets()))));
        }
    }
}
