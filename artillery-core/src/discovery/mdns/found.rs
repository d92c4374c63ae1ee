use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use if_addrs::IfAddr;
use mdns_sd::{ResolvedService, ScopedIp};
use rand::RngExt;
use tracing::debug;

use super::answer::Instance;
use crate::discovery::{
    Candidate, Source,
    sample::{AnnouncedAddr, MAX_ADDRS, Subnet, sample},
    txt::TxtRecord,
};

/// The candidate that a record describes. `None` if the record is malformed, belongs to another cluster, or has no
/// address with a port.
pub(super) fn read(service: &ResolvedService, cluster: &str) -> Option<Candidate> {
    let property = |key: &str| service.get_property_val(key).flatten();
    let txt = match TxtRecord::parse(property) {
        Ok(txt) => txt,
        Err(error) => {
            debug!(instance = service.fullname, %error, "ignoring a malformed mDNS record");
            return None;
        }
    };
    candidate(txt, cluster, || service.addresses.iter().map(|ip| announced(ip, service.port)).collect())
}

pub(super) fn answered(instance: Instance, cluster: &str, interface: u32) -> Option<Candidate> {
    let Instance { txt, port, ips } = instance;
    candidate(txt, cluster, || ips.into_iter().map(|ip| announced_at(ip, port, interface)).collect())
}

fn candidate(txt: TxtRecord, cluster: &str, of_host: impl FnOnce() -> Vec<AnnouncedAddr>) -> Option<Candidate> {
    if txt.cluster != cluster {
        return None;
    }
    let mut addrs = txt.addrs;
    if addrs.is_empty() {
        addrs = some_of(of_host());
    }
    addrs.retain(|addr| addr.port() != 0);
    (!addrs.is_empty()).then_some(Candidate::new(Source::Mdns, Some(txt.node), addrs))
}

#[allow(clippy::disallowed_methods, reason = "an attacker who forges addresses must not know which ones are used")]
fn some_of(announced: Vec<AnnouncedAddr>) -> Vec<SocketAddr> {
    let here = if announced.len() > MAX_ADDRS { subnets() } else { Vec::new() };
    sample(announced, &here, |below| rand::rng().random_range(0..below))
}

/// A link-local address is valid only on the interface on which it was announced.
fn announced(ip: &ScopedIp, port: u16) -> AnnouncedAddr {
    match ip {
        ScopedIp::V6(v6) => announced_at((*v6.addr()).into(), port, v6.scope_id().index),
        ScopedIp::V4(v4) => {
            let interfaces = v4.interface_ids().iter().map(|interface| interface.index).collect();
            AnnouncedAddr { addr: (*v4.addr(), port).into(), interfaces }
        }
        ip => AnnouncedAddr { addr: (ip.to_ip_addr(), port).into(), interfaces: Vec::new() },
    }
}

fn announced_at(ip: IpAddr, port: u16, interface: u32) -> AnnouncedAddr {
    let addr = match ip {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => SocketAddrV6::new(v6, port, 0, interface).into(),
        ip => SocketAddr::new(ip, port),
    };
    AnnouncedAddr { addr, interfaces: vec![interface] }
}

fn subnets() -> Vec<Subnet> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let subnet = |one: if_addrs::Interface| {
        let prefix_bits = match &one.addr {
            IfAddr::V4(v4) => v4.prefixlen,
            IfAddr::V6(v6) => v6.prefixlen,
        };
        one.index.map(|interface| Subnet { ip: one.ip(), prefix_bits, interface })
    };
    interfaces.into_iter().filter_map(subnet).collect()
}
