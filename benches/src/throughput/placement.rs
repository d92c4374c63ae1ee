//! The placement of threads on cores.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::results::Placement;

/// Keeps this thread on the cores of a placement until dropped. Threads and processes that it starts meanwhile stay on
/// these cores.
#[derive(Debug)]
pub struct Placed {
    before: CpuSet,
}

impl Placed {
    /// Moves this thread to the cores of a placement.
    pub fn begin(placement: Placement) -> io::Result<Self> {
        let before = sched_getaffinity(None)?;
        if placement == Placement::OneCore {
            sched_setaffinity(None, &first_of(&before))?;
        }
        Ok(Self { before })
    }
}

/// The first of the allowed cores.
fn first_of(allowed: &CpuSet) -> CpuSet {
    let mut one = CpuSet::new();
    if let Some(core) = (0..CpuSet::MAX_CPU).find(|&core| allowed.is_set(core)) {
        one.set(core);
    }
    one
}

impl Drop for Placed {
    fn drop(&mut self) {
        if let Err(error) = sched_setaffinity(None, &self.before) {
            eprintln!("this thread stays on one core: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_core_until_it_is_over() {
        let before = sched_getaffinity(None).unwrap();
        let placed = Placed::begin(Placement::OneCore).unwrap();
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        let child = std::thread::Builder::new().spawn(|| sched_getaffinity(None).unwrap().count()).unwrap();
        assert_eq!(child.join().unwrap(), 1, "threads inherit it");
        drop(placed);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
