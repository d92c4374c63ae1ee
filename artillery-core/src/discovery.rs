//! Where other nodes may be found. These are hints, never trusted: certificates decide which peer is let in.
//!
//! Sources in this crate:
//!
//! - [`MdnsDiscovery`]: the local network.
//! - [`SeedDiscovery`]: addresses and host names that the operator gives, as [`Seed`]s.
//! - [`DnsDiscovery`]: all addresses of one host name, looked up again and again.
//! - [`FileDiscovery`]: a file with an address or host name a line, which may change.
//! - [`PolledDiscovery`]: the list that a function of the application returns, which is called periodically.
//!
//! An application may implement [`Discovery`] itself. It gives sources to a node or to a client when it builds them
//! (`discovery` of their builders). Each runs on a thread of its own there, so one that blocks, panics, ends or never stops costs
//! nothing but its own hints: of each source 256 places are dialled at a time, and a source that has panicked is asked
//! again after 5 s.

mod candidate;
mod combined;
mod contained;
mod file;
mod listing;
mod lookup;
mod mdns;
mod sample;
mod seed;
mod txt;

#[cfg(test)]
mod tests;

use std::pin::Pin;

use futures_core::Stream;

pub use candidate::{Announcement, Candidate, ResolveError, Source};
pub(crate) use combined::Combined;
pub(crate) use contained::ContainedDiscovery;
pub use file::FileDiscovery;
pub use listing::{DnsDiscovery, PolledDiscovery};
pub use mdns::{Interfaces, MDNS_PORT, MdnsDiscovery, MdnsError, MdnsSettings};
pub use seed::{Seed, SeedDiscovery, SeedError};

/// A stream of hints. It ends when its source will never have another one.
pub type Candidates = Pin<Box<dyn Stream<Item = Candidate> + Send>>;

/// A source of hints where members of a cluster may be reached.
///
/// Implementations log their own failures and continue: a source that fails only stays silent. A stream may use timers and
/// sockets of tokio: it is polled within a runtime that has both.
pub trait Discovery: Send + Sync + 'static {
    /// Announces this node, instead of what was announced before, and returns at once. Called again when an address
    /// changes. Dropping the source withdraws the announcement. Clients announce nothing, and by default nodes don't either.
    fn announce(&self, me: &Announcement) {
        let _ = me;
    }

    /// All candidates known already, and those found from now on. Each call returns a stream of its own. A candidate
    /// may be reported several times, and is withdrawn by one that is `gone`.
    fn candidates(&self) -> Candidates;
}

/// Entry points for the fuzz targets, which stand outside this crate.
#[cfg(fuzzing)]
#[allow(missing_docs)]
pub(crate) mod fuzzing {
    use super::txt::TxtRecord;

    /// A packet of DNS.
    pub fn mdns_answer(bytes: &[u8]) {
        super::mdns::fuzz_answer(bytes);
    }

    /// Four lines: the properties of a record. `*` stands for a valid one, an empty line for a missing one.
    pub fn txt_record(bytes: &[u8]) {
        const GOOD: [(&str, &[u8]); 4] = [
            ("v", b"1"),
            ("cluster", b"c"),
            ("node", b"0123456789abcdef0123456789abcdef"),
            ("addrs", b"[::1]:7,1.2.3.4:5"),
        ];
        let lines: Vec<_> = bytes.split(|byte| *byte == b'\n').collect();
        let find = |key: &str| {
            let at = GOOD.iter().position(|(name, _)| *name == key)?;
            match *lines.get(at)? {
                b"" => None,
                b"*" => Some(GOOD[at].1),
                line => Some(line),
            }
        };
        if let Ok(txt) = TxtRecord::parse(find) {
            let again = txt.to_properties();
            let find = |key: &str| again.iter().find(|(name, _)| *name == key).map(|(_, value)| value.as_bytes());
            // Of many addresses a record holds as many as fit.
            let again = TxtRecord::parse(find).expect("its own record");
            assert_eq!((again.cluster, again.node), (txt.cluster, txt.node));
            assert!(txt.addrs.starts_with(&again.addrs));
        }
    }
}
