//! Checks that each request is in the log once, in an open session, and that the session table stays within its bound.

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
    /// For each update, an upper bound on the bytes that the log up to it has added to the table.
    added: Vec<usize>,
}

impl Requests {
    /// Adds the next update of the log. `Err`: its request is already in the log, or its session is not open.
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
            return fail(format!("the head ordered {update:?}, whose request is already in the log"));
        }
        Ok(())
    }

    fn added_upto(&self, sequence: Sequence) -> usize {
        let upto = self.added.len().min(sequence.0 as usize);
        upto.checked_sub(1).map_or(0, |at| self.added[at])
    }

    /// Number of open sessions.
    pub fn open(&self) -> usize {
        self.open.len()
    }
}

impl ChainOracle {
    /// Checks that a member's session table stays within `limit` bytes ([`Oracle::Bounds`]).
    ///
    /// The head orders an eviction right after the update that requires it. So the committed part exceeds the bound by
    /// at most the size of the last update, and only until the evictions that follow it are committed. Pending records
    /// are not included. Like the updates to which they belong, they are bounded by the window.
    pub fn check_table(&self, status: &Status, limit: usize) -> Result<(), Failure> {
        let pending = status.sessions.pending_bytes;
        let committed = status.sessions.bytes - pending;
        let mut below = self.log.iter().take(status.watermark.0 as usize);
        let last = below.rfind(|update| update.kind != UpdateKind::SESSION_EVICT);
        let added = |upto| self.requests.added_upto(upto);
        // If members change, uncommitted updates may vanish, so the log does not contain them.
        let adds_pending = match self.moving {
            Some(_) => pending,
            None => added(status.last.sequence) - added(status.watermark),
        };
        if committed <= limit + last.map_or(0, adds) && pending <= adds_pending {
            return Ok(());
        }
        let what = format!(
            "sessions use {committed} bytes of {limit} after {last:?}, and {pending} in pending updates that add at most {adds_pending}"
        );
        Err(Failure::new(Oracle::Bounds, what))
    }
}

/// An upper bound on the bytes that an update adds to the table.
fn adds(update: &Update) -> usize {
    match (update.kind, update.request, update.outcome) {
        (UpdateKind::SESSION_OPEN, ..) => 160,
        (UpdateKind::SESSION_EVICT, ..) | (_, None, _) => 0,
        (_, Some(_), RequestOutcome::Took(version)) if !version.is_none() => 96 + MAX_TAKEN,
        (_, Some(_), _) => 96,
    }
}
