//! File descriptors: as many as the system grants this process, shared out so that clients of the ports can't take those
//! that the journal, peers and this node's control need.

/// The most connections of the Redis port, and of the HTTP port.
const MOST: (usize, usize) = (4096, 256);
/// Descriptors beside those of clients, unless there are very few: sockets for peers and mDNS, files of the journal and
/// of checkpoints, and connections that are being turned away.
const RESERVE: usize = 128;

/// How many connections each port takes at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shares {
    pub(super) resp: usize,
    pub(super) http: usize,
}

impl Shares {
    /// The shares of a process that may have this many descriptors: a quarter, at least, is not for clients.
    fn of(limit: usize) -> Self {
        let http = (limit / 16).clamp(1, MOST.1);
        let reserve = (limit / 4).max(RESERVE.min(limit / 2));
        let resp = limit.saturating_sub(reserve + http).clamp(1, MOST.0);
        Self { resp, http }
    }

    /// The shares of this process.
    pub(super) fn here() -> Self {
        Self::of(limit())
    }
}

/// Raises the soft limit to the hard one: the usual soft limit, 1024, is for programs that use `select`.
#[cfg(unix)]
pub(super) fn raise() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let limits = getrlimit(Resource::Nofile);
    if limits.current == limits.maximum {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits }) {
        tracing::warn!(%error, limit = limit(), "the limit of file descriptors can't be raised");
    }
}

#[cfg(unix)]
fn limit() -> usize {
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limits.current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

#[cfg(not(unix))]
pub(super) fn raise() {}

#[cfg(not(unix))]
fn limit() -> usize {
    // Windows has no such limit worth mentioning.
    usize::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_descriptors_for_the_node() {
        assert_eq!(Shares::of(1024), Shares { resp: 704, http: 64 });
        assert_eq!(Shares::of(256), Shares { resp: 112, http: 16 });
        for limit in [1 << 16, 1 << 20, usize::MAX] {
            assert_eq!(Shares::of(limit), Shares { resp: 4096, http: 256 });
        }
        for limit in 8..10_000 {
            let shares = Shares::of(limit);
            assert!(shares.resp + shares.http + RESERVE.min(limit / 2) <= limit, "{limit}: {shares:?}");
        }
        assert_eq!(Shares::of(0), Shares { resp: 1, http: 1 });
    }
}
