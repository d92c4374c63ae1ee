//! Where others may be found: hints, never trusted. Certificates decide who gets in.
//!
//! [`Discovery`] is what third parties implement. Here are [`MdnsDiscovery`] (the local network), [`SeedDiscovery`] (a
//! list of addresses) and [`Combined`] (several at once).

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
pub use combined::Combined;
pub use mdns::{Interfaces, MDNS_PORT, MdnsDiscovery, MdnsError, MdnsSettings, SERVICE};
pub use seed::{Seed, SeedDiscovery, SeedError};

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
