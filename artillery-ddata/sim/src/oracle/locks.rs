//! Checks that the holders of a lock have rising versions, and that the resource it protects accepts writes of one
//! holder at a time.

use std::collections::BTreeMap;

use artillery_proto::{ClusterId, Version, recipes::FencingToken};

use super::{Failure, Oracle};

/// One incarnation of a process that holds a lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LockHolder {
    /// The index of the process.
    pub process: usize,
    /// Its incarnation.
    pub incarnation: u32,
}

/// A lock, and the resource that it protects.
#[derive(Debug, Default)]
pub struct LockOracle {
    newest: Option<(Version, LockHolder)>,
    highest: Option<FencingToken>,
    writers: BTreeMap<Version, LockHolder>,
}

impl LockOracle {
    /// A process begins to hold the lock.
    ///
    /// # Errors
    /// An earlier holder had this version or a higher one.
    pub fn hold(&mut self, holder: LockHolder, version: Version) -> Result<(), Failure> {
        if let Some((before, other)) = self.newest.filter(|(before, _)| *before >= version) {
            let what = format!("{holder:?} holds by {version}, and {other:?} held by {before} before");
            return Err(Failure::new(Oracle::Locks, what));
        }
        self.newest = Some((version, holder));
        Ok(())
    }

    /// The resource receives a write with this token. Returns whether it accepts the write. `holds`: the writer holds
    /// the lock now, by its own clock.
    ///
    /// # Errors
    /// The resource refuses the write of a holder, or two processes have the same token.
    pub fn store(&mut self, holder: LockHolder, version: Version, holds: bool) -> Result<bool, Failure> {
        let token = FencingToken::new(ClusterId(1), version);
        let is_accepted = self.highest.is_none_or(|highest| highest <= token);
        if holds && !is_accepted {
            let what = format!("{holder:?} holds by {version}, but the resource has seen {:?}", self.highest);
            return Err(Failure::new(Oracle::Locks, what));
        }
        if is_accepted {
            self.highest = Some(token);
        }
        match self.writers.insert(version, holder).filter(|other| *other != holder) {
            Some(other) => {
                Err(Failure::new(Oracle::Locks, format!("{holder:?} and {other:?} have the same token {version}")))
            }
            None => Ok(is_accepted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: LockHolder = LockHolder { process: 0, incarnation: 0 };
    const B: LockHolder = LockHolder { process: 1, incarnation: 0 };

    #[test]
    fn tokens_rise_and_belong_to_one_holder() {
        let version = |sequence| Version::new(1, sequence);
        let mut lock = LockOracle::default();
        lock.hold(A, version(5)).unwrap();
        assert!(lock.store(A, version(5), true).unwrap());
        assert!(lock.hold(B, version(5)).is_err());
        lock.hold(B, version(7)).unwrap();
        assert!(lock.store(B, version(7), true).unwrap());
        assert!(!lock.store(A, version(5), false).unwrap(), "a write of a former holder is refused");
        assert!(lock.store(A, version(5), true).is_err(), "it still believes that it holds");
        assert!(lock.store(A, version(7), false).is_err(), "two holders, one token");
    }
}
