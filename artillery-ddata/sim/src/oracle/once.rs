//! Every request is in the log once, in an open session, and the table of sessions stays within its bytes.

use std::collections::BTreeSet;

use artillery_proto::{
    Sequence, Version,
    replica::Status,
    types::update::{MAX_TAKEN, RequestOutcome, Update, UpdateKind},
};

use super::{ChainOracle, Failure, Oracle};

/// The requests and sessions of one log.
#[derive(Clone, Default, Debug)]
pub struct Requests {
    known: BTreeSet<(Version, u64)>,
    open: BTreeSet<Version>,
    /// For each update, the most bytes that all updates up to it have added to the table.
    added: Vec<usize>,
}

impl Requests {
    /// Adds the next update of the log.
    ///
    /// # Errors
    /// [`Oracle::Once`].
    pub fn take_in(&mut self, update: &Update) -> Result<(), Failure> {
        let fail = |what: String| Err(Failure::new(Oracle::Once, what));
        self.added.push(self.added_upto(update.version.sequence) + adds(update));
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

    /// The bytes that the updates up to this one have added.
    fn added_upto(&self, sequence: Sequence) -> usize {
        let upto = self.added.len().min(sequence.0 as usize);
        upto.checked_sub(1).map_or(0, |at| self.added[at])
    }

    /// Sessions that are open.
    pub fn open(&self) -> usize {
        self.open.len()
    }
}

impl ChainOracle {
    /// Checks that the table of a member stays within `limit` bytes.
    ///
    /// The head orders an eviction right behind the update that makes it necessary, before any other update. Without the
    /// evictions under way the table is within its bytes then. So the committed part exceeds them at most by what the last
    /// update added, and only until the evictions behind it are committed too. Pending records come on top. The window bounds
    /// them, as it bounds the updates that they belong to.
    ///
    /// # Errors
    /// [`Oracle::Bounds`].
    pub fn check_table(&self, status: &Status, limit: usize) -> Result<(), Failure> {
        let pending = status.pending_sessions_bytes;
        let committed = status.sessions_bytes - pending;
        let mut below = self.log.iter().take(status.watermark.0 as usize);
        let last = below.rfind(|update| update.kind != UpdateKind::SESSION_EVICT);
        let added = |upto| self.requests.added_upto(upto);
        // Where members come and go, uncommitted updates may vanish, so the log does not contain them.
        let adds_pending = match self.moving {
            Some(_) => pending,
            None => added(status.last.sequence) - added(status.watermark),
        };
        if committed <= limit + last.map_or(0, adds) && pending <= adds_pending {
            return Ok(());
        }
        let what = format!(
            "sessions take up {committed} bytes of {limit} behind {last:?}, and {pending} in updates worth {adds_pending}"
        );
        Err(Failure::new(Oracle::Bounds, what))
    }
}

/// The most bytes that an update adds to the table.
fn adds(update: &Update) -> usize {
    match (update.kind, update.request, update.outcome) {
        (UpdateKind::SESSION_OPEN, ..) => 160,
        (UpdateKind::SESSION_EVICT, ..) | (_, None, _) => 0,
        (_, Some(_), RequestOutcome::Took(version)) if !version.is_none() => 96 + MAX_TAKEN,
        (_, Some(_), _) => 96,
    }
}
