//! Where others may be found: hints, never trusted. Certificates decide who gets in.
//!
//! Applications may implement [`Discovery`] for sources of their own. Here are [`MdnsDiscovery`] (the local network) and
//! [`Seed`]s (addresses given by the operator).

mod candidate;
mod combined;
mod mdns;
mod seed;
mod txt;

#[cfg(test)]
mod tests;

use std::pin::Pin;

use futures_core::Stream;

pub use candidate::{Announcement, Candidate, ResolveError, Source};
pub(crate) use combined::Combined;
pub use mdns::{Interfaces, MDNS_PORT, MdnsDiscovery, MdnsError, MdnsSettings};
pub(crate) use seed::SeedDiscovery;
pub use seed::{Seed, SeedError};

/// A stream of hints; it ends when its source has no more to say, ever.
pub type Candidates = Pin<Box<dyn Stream<Item = Candidate> + Send>>;

/// A source of hints where members of a cluster may be reached.
///
/// Implementations log their own troubles and go on: a source that fails only stays silent.
pub trait Discovery: Send + Sync + 'static {
    /// Makes this node known, in place of what was announced before. Returns at once. Done again when an address
    /// changes; withdrawn when the source is dropped.
    fn announce(&self, me: &Announcement);

    /// Everything found from now on, and what is known already. Each call gives a stream of its own. The same candidate
    /// may come several times.
    fn candidates(&self) -> Candidates;
}

/// Doors for the fuzz targets, which stand outside this crate.
#[cfg(fuzzing)]
#[allow(missing_docs)]
pub(crate) mod fuzzing {
    use super::txt::TxtRecord;

    /// Four lines: the properties of a record. `*` stands for a good one, an empty line for one that isn't there.
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
            // Of many addresses, a record holds as many as fit.
            let again = TxtRecord::parse(find).expect("its own record");
            assert_eq!((again.cluster, again.node), (txt.cluster, txt.node));
            assert!(txt.addrs.starts_with(&again.addrs));
        }
    }
}
