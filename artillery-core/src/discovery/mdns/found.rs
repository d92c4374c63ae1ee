//! Reads the record of a resolved instance.

use std::net::{SocketAddr, SocketAddrV6};

use if_addrs::IfAddr;
use mdns_sd::{ResolvedService, ScopedIp};
use rand::RngExt;
use tracing::debug;

use crate::discovery::{
    Candidate, Source,
    sample::{AnnouncedAddr, MAX_ADDRS, Subnet, sample},
    txt::TxtRecord,
};

/// The candidate of a found instance. `None` if the record is malformed or of another cluster.
pub(super) fn read(service: &ResolvedService, cluster: &str) -> Option<Candidate> {
    let property = |key: &str| service.get_property_val(key).flatten();
    let txt = match TxtRecord::parse(property) {
        Ok(txt) => txt,
        Err(error) => {
            debug!(instance = service.fullname, %error, "an mDNS instance that can't be read");
            return None;
        }
    };
    if txt.cluster != cluster {
        return None;
    }
    let mut addrs = txt.addrs;
    if addrs.is_empty() {
        addrs = addrs_of_host(service);
    }
    addrs.retain(|addr| addr.port() != 0);
    (!addrs.is_empty()).then_some(Candidate::new(Source::Mdns, Some(txt.node), addrs))
}

#[allow(clippy::disallowed_methods, reason = "whoever forges addresses must not know which ones are taken")]
fn addrs_of_host(service: &ResolvedService) -> Vec<SocketAddr> {
    let announced: Vec<_> = service.addresses.iter().map(|ip| announced(ip, service.port)).collect();
    let here = if announced.len() > MAX_ADDRS { subnets() } else { Vec::new() };
    sample(announced, &here, |below| rand::rng().random_range(0..below))
}

/// An address of a found instance. A link-local one is valid on the interface where it was announced.
fn announced(ip: &ScopedIp, port: u16) -> AnnouncedAddr {
    match ip {
        ScopedIp::V6(v6) => {
            let interface = v6.scope_id().index;
            let zone = if v6.addr().is_unicast_link_local() { interface } else { 0 };
            let addr = SocketAddrV6::new(*v6.addr(), port, 0, zone).into();
            AnnouncedAddr { addr, interfaces: vec![interface] }
        }
        ScopedIp::V4(v4) => {
            let interfaces = v4.interface_ids().iter().map(|interface| interface.index).collect();
            AnnouncedAddr { addr: (*v4.addr(), port).into(), interfaces }
        }
        ip => AnnouncedAddr { addr: (ip.to_ip_addr(), port).into(), interfaces: Vec::new() },
    }
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
