//! Finds nodes on the local network by multicast DNS.
//!
//! Every node is an instance of [`SERVICE_TYPE`], described by its TXT record (see `txt`). The names of instances and
//! of their hosts contain a digest of the cluster and node, so they are announced without a probe for conflicts.

mod answer;
mod browse;
mod found;
pub(super) mod one_shot;
mod unconfirmed;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use futures_core::Stream;
use mdns_sd::{IfKind, IfPredicate, ServiceDaemon, ServiceInfo};
use sha2::{Digest, Sha256};
use tracing::{debug, warn};

#[cfg(fuzzing)]
pub(super) use self::answer::fuzz as fuzz_answer;
use self::browse::MdnsBrowse;
use super::{Announcement, Candidate, Candidates, Discovery, txt::TxtRecord};
use crate::NodeId;

/// The DNS-SD service type of Artillery nodes.
pub(super) const SERVICE_TYPE: &str = "_artillery._udp.local.";

/// The standard UDP port of multicast DNS.
pub const MDNS_PORT: u16 = 5353;

/// How often the daemon checks this machine's addresses. The daemon sends nothing from an address that it doesn't know.
const ADDRESS_CHECK_SECONDS: u32 = 1;

/// The network interfaces used by multicast DNS and, by a node that advertises this machine's addresses, for the choice
/// of these addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Interfaces {
    /// All interfaces. Multicast DNS omits interfaces that are down, and point-to-point ones, such as many VPNs.
    /// Loopback addresses are advertised only if there are no others.
    #[default]
    All,
    /// Loopback only, which reaches nodes on this machine.
    Loopback,
    /// The interfaces with these names.
    Named(Vec<String>),
}

impl Interfaces {
    /// The default for a node that listens on `ip`: loopback if `ip` is a loopback address, otherwise all.
    pub(crate) fn for_listener(ip: IpAddr) -> Self {
        if ip.is_loopback() { Self::Loopback } else { Self::All }
    }

    /// The daemon's selectors. `None`: its default.
    fn kinds(&self) -> Option<Vec<IfKind>> {
        match self {
            Self::All => None,
            Self::Loopback => Some(vec![IfKind::LoopbackV4, IfKind::LoopbackV6]),
            Self::Named(names) => Some(names.iter().map(|name| IfKind::Name(name.clone())).collect()),
        }
    }
}

/// Settings of [`MdnsDiscovery`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MdnsSettings {
    /// Only nodes of this cluster are found. Records with a name of more than 200 bytes are ignored.
    pub cluster: String,
    /// The interfaces to announce and listen on.
    pub interfaces: Interfaces,
    /// The UDP port, by default [`MDNS_PORT`].
    pub port: u16,
}

impl MdnsSettings {
    /// Settings for this cluster, on all interfaces and the standard port.
    pub fn new(cluster: impl Into<String>) -> Self {
        Self { cluster: cluster.into(), interfaces: Interfaces::All, port: MDNS_PORT }
    }

    /// Sets the interfaces.
    pub fn interfaces(self, interfaces: Interfaces) -> Self {
        Self { interfaces, ..self }
    }

    /// Sets the UDP port. Only nodes that use the same port find each other.
    pub fn port(self, port: u16) -> Self {
        Self { port, ..self }
    }
}

/// Why multicast DNS cannot be used. Other sources are not affected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MdnsError {
    /// The daemon did not start, or it rejected its settings.
    #[error("multicast DNS is not available: {0}")]
    Unavailable(String),
    /// The daemon rejected the announcement, or the withdrawal of the previous one.
    #[error("can't announce this node by multicast DNS: {0}")]
    Unannounceable(String),
    /// The announcement has no address.
    #[error("can't announce this node by multicast DNS: it has no address")]
    NoAddress,
}

/// Finds nodes on the local network, and announces this node to them.
///
/// Other nodes cache a crashed node for about two minutes, so this does not detect failures. Dropping the source
/// withdraws the announcement and ends its threads asynchronously.
pub struct MdnsDiscovery {
    settings: MdnsSettings,
    daemon: MdnsDaemon,
    shared: Arc<MdnsShared>,
}

#[derive(Default)]
struct MdnsShared {
    me: Mutex<Option<MdnsRegistration>>,
    complained: AtomicBool,
}

struct MdnsRegistration {
    node: NodeId,
    full_name: String,
}

impl MdnsShared {
    /// Logs the first failure as a warning and later ones at debug level, since a failure tends to repeat.
    fn complain(&self, error: &dyn std::fmt::Display) {
        if self.complained.swap(true, Ordering::Relaxed) {
            debug!(%error, "multicast DNS");
        } else {
            warn!(%error, "multicast DNS failed; seeds may be needed to find nodes");
        }
    }

    fn is_me(&self, node: NodeId) -> bool {
        self.me.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(|me| me.node == node)
    }
}

impl std::fmt::Debug for MdnsDiscovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MdnsDiscovery").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl MdnsDiscovery {
    /// Starts the daemon. Nothing is announced yet.
    ///
    /// # Errors
    /// [`MdnsError::Unavailable`]. A machine without multicast interfaces causes no error: the failure is logged later.
    pub fn new(settings: MdnsSettings) -> Result<Self, MdnsError> {
        let daemon = MdnsDaemon::start(&settings)?;
        Ok(Self { settings, daemon, shared: Arc::default() })
    }

    /// Like [`Discovery::announce`], but returns the error.
    ///
    /// # Errors
    /// [`MdnsError::NoAddress`] or [`MdnsError::Unannounceable`]. The previous announcement stays. If only its
    /// withdrawal fails, because the instance name has changed, both stay.
    pub fn try_announce(&self, me: &Announcement) -> Result<(), MdnsError> {
        let info = self.describe(me)?;
        let full_name = info.get_fullname().to_owned();
        let mut registered = self.shared.me.lock().unwrap_or_else(PoisonError::into_inner);
        self.daemon.0.register(info).map_err(unannounceable)?;
        let before = registered.replace(MdnsRegistration { node: me.node, full_name: full_name.clone() });
        match before {
            Some(before) if before.full_name != full_name => {
                self.daemon.0.unregister(&before.full_name).map(drop).map_err(unannounceable)
            }
            _ => Ok(()),
        }
    }

    /// Withdraws the announcement and waits until the withdrawal is sent, for programs that exit at once. Dropping does
    /// the same without waiting.
    pub async fn close(self) {
        if let Ok(done) = self.daemon.0.shutdown() {
            let _ = done.recv_async().await;
        }
    }

    pub(super) fn describe(&self, me: &Announcement) -> Result<ServiceInfo, MdnsError> {
        let port = me.addrs.first().ok_or(MdnsError::NoAddress)?.port();
        let is_told = |addr: &SocketAddr| !me.by_interface && !addr.ip().is_unspecified();
        let addrs: Vec<_> = me.addrs.iter().copied().filter(is_told).collect();
        let mut ips: Vec<IpAddr> = addrs.iter().map(|addr| addr.ip()).collect();
        if !ips.is_empty() && ips.iter().all(IpAddr::is_loopback) {
            // Systems do not multicast IPv6 on loopback. The TXT record contains the address to dial.
            ips.push(Ipv4Addr::LOCALHOST.into());
        }
        let txt = TxtRecord { cluster: me.cluster.clone(), node: me.node, addrs }.to_properties();
        let host = format!("{}.local.", number(me));
        let info = ServiceInfo::new(SERVICE_TYPE, &instance_name(me), &host, ips.as_slice(), port, txt.as_slice())
            .map_err(unannounceable)?;
        // Only services with automatic addresses follow interface changes. Others stay silent on an interface that gets
        // its address later.
        let mut info = info.enable_addr_auto();
        info.set_requires_probe(false);
        if !ips.is_empty() {
            let is_told = move |one: &if_addrs::Interface| ips.contains(&one.ip());
            info.set_interfaces(vec![IfKind::Predicate(IfPredicate::new(is_told))]);
        } else if let Some(kinds) = announced_interfaces(&self.settings.interfaces, me) {
            info.set_interfaces(kinds);
        }
        Ok(info)
    }
}

impl Discovery for MdnsDiscovery {
    fn announce(&self, me: &Announcement) {
        if let Err(error) = self.try_announce(me) {
            self.shared.complain(&error);
        }
    }

    fn candidates(&self) -> Candidates {
        // A daemon reports to one listener per service, so each stream needs its own daemon.
        match MdnsDaemon::start(&self.settings)
            .and_then(|daemon| MdnsBrowse::start(daemon, &self.settings, &self.shared))
        {
            Ok(browse) => Box::pin(browse),
            Err(error) => {
                self.shared.complain(&error);
                Box::pin(NoCandidates)
            }
        }
    }
}

/// The interfaces and families on which this node is announced. A node that advertises no IPv6 address may have no IPv6
/// socket. `None`: the daemon's default.
pub(super) fn announced_interfaces(interfaces: &Interfaces, me: &Announcement) -> Option<Vec<IfKind>> {
    let kinds = interfaces.kinds();
    if !me.by_interface || me.addrs.iter().any(SocketAddr::is_ipv6) {
        return kinds;
    }
    Some(match interfaces {
        Interfaces::All => vec![IfKind::IPv4],
        Interfaces::Loopback => vec![IfKind::LoopbackV4],
        Interfaces::Named(names) => {
            let names = names.clone();
            let is_meant = move |one: &if_addrs::Interface| one.ip().is_ipv4() && names.contains(&one.name);
            vec![IfKind::Predicate(IfPredicate::new(is_meant))]
        }
    })
}

/// A unique instance name of at most 63 bytes: the node's name, cut to fit, and the beginning of its digest.
fn instance_name(me: &Announcement) -> String {
    const MAX_INSTANCE_NAME_BYTES: usize = 63;
    let number = number(me);
    let short = &number[..16];
    let mut end = me.name.len().min(MAX_INSTANCE_NAME_BYTES - short.len() - 1);
    while !me.name.is_char_boundary(end) {
        end -= 1;
    }
    let name: String = me.name[..end].chars().filter(|c| !c.is_control()).collect();
    if name.is_empty() { short.to_owned() } else { format!("{name}-{short}") }
}

/// A digest of the node and cluster. It separates nodes of one name in two clusters: if they were one instance, a
/// search that has seen one would list it as known in its queries, and the other would not answer.
fn number(me: &Announcement) -> String {
    let digest = Sha256::new().chain_update(me.node.as_bytes()).chain_update(me.cluster.as_bytes()).finalize();
    digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unavailable(error: mdns_sd::Error) -> MdnsError {
    MdnsError::Unavailable(error.to_string())
}

fn unannounceable(error: mdns_sd::Error) -> MdnsError {
    MdnsError::Unannounceable(error.to_string())
}

/// A running daemon: a thread and its sockets. Dropping it withdraws its announcements and stops it.
struct MdnsDaemon(ServiceDaemon);

impl MdnsDaemon {
    fn start(settings: &MdnsSettings) -> Result<Self, MdnsError> {
        let daemon = Self(ServiceDaemon::new_with_port(settings.port).map_err(unavailable)?);
        daemon.0.set_ip_check_interval(ADDRESS_CHECK_SECONDS).map_err(unavailable)?;
        if let Some(kinds) = settings.interfaces.kinds() {
            daemon.0.disable_interface(IfKind::All).map_err(unavailable)?;
            daemon.0.enable_interface(kinds).map_err(unavailable)?;
        }
        Ok(daemon)
    }
}

impl Drop for MdnsDaemon {
    fn drop(&mut self) {
        let _ = self.0.shutdown();
    }
}

struct NoCandidates;

impl Stream for NoCandidates {
    type Item = Candidate;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Candidate>> {
        Poll::Ready(None)
    }
}
