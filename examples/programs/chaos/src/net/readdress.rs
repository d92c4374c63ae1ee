//! Changes the address of a node while it runs.

use std::net::Ipv4Addr;

use artillery_programs::exit::Failure;

use super::{CLIENTS, Net, ROUTER, ip, link_name};

impl Net {
    /// Replaces a node's address in both planes with its other one. Packets to the old address, and packets still sent
    /// from it, are lost without an error.
    pub(in super::super) fn readdress(&mut self, node: usize) -> Result<(), Failure> {
        let old = self.address(node);
        if !self.moved.remove(&node) {
            self.moved.insert(node);
        }
        let new = self.address(node);
        let hubs = [("peers", ROUTER), ("clients", CLIENTS)];
        let added = hubs.iter().map(|(plane, _)| format!("addr add {new}/32 dev {plane}"));
        let routed = hubs.iter().map(|(plane, hub)| format!("route replace {hub}/32 dev {plane} src {new}"));
        let removed = hubs.iter().map(|(plane, _)| format!("addr del {old}/32 dev {plane}"));
        // When an address is removed, the kernel also removes the routes that name it, so those are replaced first.
        let lines = added.chain(routed).chain(self.routes("replace", new)).chain(removed);
        ip(Some(&self.namespace(node)), lines)?;
        self.route_to(node, old, new)
    }

    fn route_to(&self, node: usize, old: Ipv4Addr, new: Ipv4Addr) -> Result<(), Failure> {
        let there = format!("route replace {new}/32 dev {}", link_name(node));
        ip(Some(&self.router()), [there.clone(), format!("route replace blackhole {old}/32")])?;
        // The clients get no blackhole route, which would report an error to them. On the link, nothing answers at the
        // old address.
        ip(Some(&self.clients()), [there])
    }
}
