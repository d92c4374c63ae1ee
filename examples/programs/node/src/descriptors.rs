//! Raises this process's limit of file descriptors, and limits the share of the ports' clients, so that they can't
//! exhaust the descriptors that the journal, the peers and the node's control need.

use crate::system;

/// Maximum number of connections of the Redis port, and of the HTTP port.
const MOST: (usize, usize) = (4096, 256);
/// Descriptors reserved for other purposes than clients, unless the limit is very low: sockets for peers and mDNS,
/// files of the journal and of checkpoints, and connections that are being refused.
const RESERVE: usize = 128;
/// Below this limit a node may run out of descriptors even without clients: an idle one in a cluster of three already
/// uses about 40.
const LOW: usize = 128;
/// The soft limit to set if the hard limit is unlimited: macOS refuses more.
const UNLIMITED: u64 = 10_240;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shares {
    pub(super) resp: usize,
    pub(super) http: usize,
}

impl Shares {
    /// The shares for this descriptor limit. Where possible, at least a quarter of the descriptors is not for clients.
    fn of(limit: usize) -> Self {
        let http = (limit / 16).clamp(1, MOST.1);
        let reserve = (limit / 4).max(RESERVE.min(limit / 2));
        let resp = limit.saturating_sub(reserve + http).clamp(1, MOST.0);
        Self { resp, http }
    }

    pub(super) fn here() -> Self {
        Self::of(limit())
    }
}

/// The soft limit to set instead of `current`, given this hard limit; `None` if `current` must stay.
fn raised(current: Option<u64>, maximum: Option<u64>) -> Option<u64> {
    let wanted = maximum.unwrap_or(UNLIMITED);
    current.filter(|current| *current < wanted).map(|_| wanted)
}

/// Raises the soft limit to the hard one, or to [`UNLIMITED`]. The usual soft limit, 1024, exists for programs that use
/// `select`.
pub(super) fn raise() {
    let (current, maximum) = system::descriptors();
    if let Some(wanted) = raised(current, maximum)
        && let Err(error) = system::set_descriptors(wanted)
    {
        tracing::warn!(%error, limit = limit(), "could not raise the limit of file descriptors");
    }
    let limit = limit();
    if limit < LOW {
        tracing::warn!(limit, "the limit of file descriptors may be too low for this node's journal and peers");
    }
}

fn limit() -> usize {
    let (current, _) = system::descriptors();
    current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
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

    #[test]
    fn a_soft_limit_is_raised_and_never_to_none() {
        assert_eq!(raised(Some(1024), Some(524_288)), Some(524_288));
        assert_eq!(raised(Some(1024), Some(1024)), None);
        assert_eq!(raised(Some(256), None), Some(UNLIMITED));
        assert_eq!((raised(Some(20_000), None), raised(None, None)), (None, None));
    }
}
