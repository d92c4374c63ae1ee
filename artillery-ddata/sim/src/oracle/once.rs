//! Every request stands in the log once, in a session that is open.

use std::collections::BTreeSet;

use artillery_ddata::{
    Version,
    update::{Update, UpdateKind},
};

use super::{Failure, Oracle};

/// The requests and sessions of one log.
#[derive(Clone, Default, Debug)]
pub struct Requests {
    known: BTreeSet<(Version, u64)>,
    open: BTreeSet<Version>,
}

impl Requests {
    /// Takes in the next update of the log.
    ///
    /// # Errors
    /// [`Oracle::Once`].
    pub fn take_in(&mut self, update: &Update) -> Result<(), Failure> {
        let fail = |what: String| Err(Failure::new(Oracle::Once, what));
        if update.kind == UpdateKind::SESSION_OPEN {
            self.open.insert(update.version);
        }
        let Some(request) = update.request else { return Ok(()) };
        if !self.open.contains(&request.session) {
            return fail(format!("the head ordered {update:?}, whose session was evicted or never opened"));
        }
        if update.kind == UpdateKind::SESSION_EVICT {
            self.open.remove(&request.session);
        } else if !self.known.insert((request.session, request.number)) {
            return fail(format!("the head ordered {update:?}, whose request stands in the log already"));
        }
        Ok(())
    }

    /// Sessions that are open.
    pub fn open(&self) -> usize {
        self.open.len()
    }
}
