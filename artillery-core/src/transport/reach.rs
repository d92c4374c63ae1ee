//! Which addresses a socket can reach, and the canonical forms of addresses.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use crate::error::ConnectError;

/// A peer's address in the form that this node uses: a socket for both families reports IPv4 addresses as IPv6 ones,
/// which are mapped back. The zone of a link-local address is kept, since the address can't be dialled without it.
pub(crate) fn canonical(addr: SocketAddr) -> SocketAddr {
    match addr {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(ip) => (ip, v6.port()).into(),
            None => SocketAddrV6::new(*v6.ip(), v6.port(), 0, v6.scope_id()).into(),
        },
        SocketAddr::V4(_) => addr,
    }
}

/// The address as another host can use it: without the zone, which is an interface index of this host.
pub(crate) fn without_zone(addr: SocketAddr) -> SocketAddr {
    let addr = canonical(addr);
    SocketAddr::new(addr.ip(), addr.port())
}

/// Rejects an address that a socket bound to `local` cannot reach. The error names the setting to change, `listen`.
pub(super) fn check(
    local: SocketAddr,
    to: SocketAddr,
    is_own: impl FnOnce(IpAddr) -> bool,
) -> Result<(), ConnectError> {
    let (here, there) = (canonical(local).ip(), canonical(to).ip());
    let problem = if local.is_ipv4() && there.is_ipv6() {
        "supports only IPv4"
    } else if here.is_loopback() && !there.is_loopback() && !is_own(there) {
        "reaches only this machine"
    } else if local.is_ipv6() && !here.is_unspecified() && there.is_ipv4() {
        "supports only IPv6"
    } else {
        return Ok(());
    };
    let reason =
        format!("the socket is bound to {local}, which {problem} (set `listen` to `[::]:0` to reach all addresses)");
    Err(ConnectError::BadAddress { addr: to, reason })
}

pub(super) fn is_own(ip: IpAddr) -> bool {
    if_addrs::get_if_addrs().is_ok_and(|all| all.iter().any(|one| one.ip() == ip))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_one_form() {
        assert_eq!(canonical(addr("[::ffff:10.0.0.2]:7")), addr("10.0.0.2:7"));
        assert_eq!(canonical(addr("[fe80::1%3]:7")), addr("[fe80::1%3]:7"));
        assert_eq!(without_zone(addr("[fe80::1%3]:7")), addr("[fe80::1]:7"));
    }

    #[test]
    fn what_a_socket_does_not_reach_is_refused_with_the_setting() {
        let own = addr("10.0.0.9:1").ip();
        let checked = |local, to| check(addr(local), addr(to), |ip| ip == own);
        for (local, to) in [
            ("127.0.0.1:5", "10.0.0.5:7400"),
            ("127.0.0.1:5", "[::1]:7400"),
            ("0.0.0.0:5", "[fd00::1]:7400"),
            ("[::1]:5", "[fd00::1]:7400"),
            ("[fd00::9]:5", "10.0.0.5:7400"),
        ] {
            let error = checked(local, to).unwrap_err().to_string();
            assert!(error.contains(local) && error.contains("`listen`"), "{error}");
        }
        for (local, to) in [
            ("127.0.0.1:5", "127.0.0.2:7400"),
            ("127.0.0.1:5", "10.0.0.9:7400"),
            ("0.0.0.0:5", "10.0.0.5:7400"),
            ("[::]:5", "10.0.0.5:7400"),
            ("[::]:5", "[::1]:7400"),
            ("[::1]:5", "[::1]:7400"),
        ] {
            assert_eq!(checked(local, to), Ok(()), "{local} {to}");
        }
    }
}
