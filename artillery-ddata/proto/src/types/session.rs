//! Sessions: earlier reads and writes are lower bounds on later reads (docs/DESIGN.md §3).

use std::{
    collections::BTreeMap,
    fmt,
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use artillery_core::{error::ParseIdError, internal::text::parsed};

use crate::{ChainId, ClusterId, Sequence};

/// The frontier of a session: in each chain the sequence that every later read of the session must include.
///
/// Its text form is `CLUSTER/CHAIN=SEQUENCE,…`, or `-` for a session that has seen nothing.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Frontier {
    /// The id of the cluster's history to which the floors belong.
    cluster: Option<ClusterId>,
    floors: BTreeMap<ChainId, Sequence>,
}

impl Frontier {
    /// The id of the cluster's history; `None`: the session has seen nothing.
    pub fn cluster(&self) -> Option<ClusterId> {
        self.cluster
    }

    /// The floor of a chain; 0 if the session has seen nothing of it.
    pub fn floor(&self, chain: ChainId) -> Sequence {
        self.floors.get(&chain).copied().unwrap_or_default()
    }

    /// Raises the floor of a chain to at least `to`. No effect if `cluster` is another history.
    pub fn raise(&mut self, cluster: ClusterId, chain: ChainId, to: Sequence) {
        if *self.cluster.get_or_insert(cluster) == cluster {
            let floor = self.floors.entry(chain).or_default();
            *floor = to.max(*floor);
        }
    }
}

impl fmt::Display for Frontier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(cluster) = self.cluster else { return f.write_str("-") };
        write!(f, "{:032x}/", cluster.0)?;
        for (at, (chain, floor)) in self.floors.iter().enumerate() {
            write!(f, "{}{}={floor}", if at == 0 { "" } else { "," }, chain.0)?;
        }
        Ok(())
    }
}

impl FromStr for Frontier {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = |text: &str| -> Option<Self> {
            if text == "-" {
                return Some(Self::default());
            }
            let (cluster, floors) = text.split_once('/')?;
            let mut frontier = Self { cluster: Some(cluster.parse().ok()?), floors: BTreeMap::new() };
            for floor in floors.split(',').filter(|floor| !floor.is_empty()) {
                let (chain, sequence) = floor.split_once('=')?;
                let sequence = Sequence(sequence.parse().ok()?);
                if frontier.floors.insert(ChainId(chain.parse().ok()?), sequence).is_some() {
                    return None;
                }
            }
            Some(frontier)
        };
        parsed(text, "session frontier (CLUSTER/CHAIN=SEQUENCE,… or -)", parse)
    }
}

/// Makes reads at any node include each update that the session has read or written before (read-your-writes and
/// monotonic reads). Clones are the same session.
///
/// Every read mode can be used in a session; the reads then return committed versions only.
#[derive(Clone, Debug, Default)]
pub struct Session {
    frontier: Arc<Mutex<Frontier>>,
}

impl Session {
    /// A session that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A session that continues from the frontier of another one, possibly of another process.
    pub fn resume(frontier: Frontier) -> Self {
        Self { frontier: Arc::new(Mutex::new(frontier)) }
    }

    /// The id of the session's history; `None`: it has seen nothing.
    #[doc(hidden)]
    pub fn history_id(&self) -> Option<ClusterId> {
        self.lock().cluster
    }

    /// The current frontier, for [`resume`](Self::resume).
    pub fn frontier(&self) -> Frontier {
        self.lock().clone()
    }

    /// The floor for a read of `chain`; `None`: the session belongs to another history of the cluster.
    #[doc(hidden)]
    pub fn floor(&self, cluster: ClusterId, chain: ChainId) -> Option<Sequence> {
        let frontier = self.lock();
        frontier.cluster.is_none_or(|known| known == cluster).then(|| frontier.floor(chain))
    }

    /// Raises the floor of a chain to at least `to`. No effect if `cluster` is another history.
    #[doc(hidden)]
    pub fn raise(&self, cluster: ClusterId, chain: ChainId, to: Sequence) {
        self.lock().raise(cluster, chain, to);
    }

    fn lock(&self) -> MutexGuard<'_, Frontier> {
        // No panic can leave the frontier half changed.
        self.frontier.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frontier_only_rises_and_knows_its_cluster() {
        let session = Session::new();
        assert_eq!(session.frontier().to_string(), "-");
        session.raise(ClusterId(5), ChainId(1), Sequence(9));
        session.raise(ClusterId(5), ChainId(1), Sequence(7));
        session.raise(ClusterId(5), ChainId(0), Sequence(3));
        session.raise(ClusterId(6), ChainId(1), Sequence(99));
        assert_eq!(session.floor(ClusterId(5), ChainId(1)), Some(Sequence(9)));
        assert_eq!(session.floor(ClusterId(5), ChainId(8)), Some(Sequence::ZERO));
        assert_eq!(session.floor(ClusterId(6), ChainId(1)), None);
        let text = session.frontier().to_string();
        assert_eq!(text, "00000000000000000000000000000005/0=3,1=9");
        assert_eq!(Session::resume(text.parse().unwrap()).frontier(), session.frontier());
    }

    #[test]
    fn other_texts_are_none() {
        assert_eq!("-".parse(), Ok(Frontier::default()));
        let cluster = "00000000000000000000000000000005";
        for bad in ["", "5/0=3", &format!("{cluster}/0"), &format!("{cluster}/0=1,0=2"), &format!("{cluster}/x=1")] {
            assert!(bad.parse::<Frontier>().is_err(), "{bad}");
        }
    }
}
