//! Sources of addresses at which other nodes may be found. The addresses are untrusted hints: certificates decide which
//! peer is accepted.
//!
//! Sources in this crate:
//!
//! - [`MdnsDiscovery`]: the local network.
//! - [`SeedDiscovery`]: addresses and host names given by the operator, as [`Seed`]s.
//! - [`DnsDiscovery`]: all addresses of one host name, resolved periodically.
//! - [`FileDiscovery`]: a file with one address or host name per line, which may change.
//! - [`PolledDiscovery`]: the list returned by a function of the application, which is called periodically.
//!
//! An application may implement [`Discovery`] itself. It passes sources to a node or client with the `discovery` method
//! of their builders. Each such source runs on a thread of its own, so that one that blocks, panics, ends or never
//! stops affects only its own hints. A node dials at most 256 places without a node id per source, and 4,096 of all
//! such sources. Of each candidate it uses at most 16 of the given addresses. A source that panicked is restarted after
//! 5 s.

mod candidate;
mod combined;
mod contained;
mod file;
mod listing;
mod lookup;
mod mdns;
mod sample;
mod seed;
mod seeds;
mod txt;

#[cfg(test)]
mod tests;

use std::pin::Pin;

use futures_core::Stream;

pub use candidate::{Announcement, Candidate, Source};
pub(crate) use combined::Combined;
pub(crate) use contained::ContainedDiscovery;
pub use file::FileDiscovery;
pub use listing::{DnsDiscovery, PolledDiscovery};
pub use lookup::ResolveError;
pub use mdns::{Interfaces, MDNS_PORT, MdnsDiscovery, MdnsError, MdnsSettings};
pub use seed::{Seed, SeedError};
pub use seeds::SeedDiscovery;

/// A stream of hints. It ends when its source is exhausted or no longer usable. Most sources never end.
pub type Candidates = Pin<Box<dyn Stream<Item = Candidate> + Send>>;

/// A source of hints about the addresses of cluster members.
///
/// Implementations log their own failures and continue: a failing source only yields no hints. A stream may use tokio's
/// timers and sockets: it is polled within a runtime that has both.
pub trait Discovery: Send + Sync + 'static {
    /// Announces this node, replacing the previous announcement, and returns at once. It is called again when an
    /// address changes, or when the source was restarted after a panic. Dropping the source withdraws the announcement.
    /// The default announces nothing, and clients never announce themselves.
    fn announce(&self, me: &Announcement) {
        let _ = me;
    }

    /// All candidates that are already known, followed by new ones. Each call returns an independent stream. A
    /// candidate may be reported several times. One with `gone` set withdraws it.
    fn candidates(&self) -> Candidates;
}

/// Entry points for the fuzz targets, which are outside this crate.
#[cfg(fuzzing)]
#[allow(missing_docs)]
pub(crate) mod fuzzing {
    use super::txt::TxtRecord;

    pub fn mdns_answer(bytes: &[u8]) {
        super::mdns::fuzz_answer(bytes);
    }

    /// Parses four lines as the properties of a record. `*` becomes a valid value, an empty line a missing one.
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
            // A record holds only as many addresses as fit.
            let again = TxtRecord::parse(find).expect("its own record");
            assert_eq!((again.cluster, again.node), (txt.cluster, txt.node));
            assert!(txt.addrs.starts_with(&again.addrs));
        }
    }
}
