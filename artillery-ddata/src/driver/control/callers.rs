//! The callers that wait for the results of commands.

use std::collections::BTreeMap;

use artillery_core::MemberId;
use tokio::sync::oneshot;

use super::RenewalAnswer;
use crate::{
    Epoch,
    control::{
        message::{NotGivenUp, ReorderError},
        reopening::{NotReopened, Reopened},
    },
};

/// The most renewals of other nodes that wait for an answer. At this number, entries whose callers no longer wait are
/// removed.
const MAX_PENDING_RENEWALS: usize = 4096;

type Waiters<T> = BTreeMap<u64, oneshot::Sender<T>>;

/// The callers that wait for the node's answers.
#[derive(Default)]
pub(super) struct Callers {
    renewals: BTreeMap<(MemberId, u64), oneshot::Sender<RenewalAnswer>>,
    pub(super) reorders: Waiters<Result<Epoch, ReorderError>>,
    pub(super) reopenings: Waiters<Result<Reopened, NotReopened>>,
    pub(super) givers: Waiters<Result<(), NotGivenUp>>,
    token: u64,
    pub(super) leaving: Vec<oneshot::Sender<()>>,
}

impl Callers {
    pub(super) fn token(&mut self) -> u64 {
        self.token += 1;
        self.token
    }

    /// Adds the caller of a renewal. `false`: too many wait, and the caller is dropped.
    pub(super) fn renews(&mut self, from: MemberId, number: u64, answer: oneshot::Sender<RenewalAnswer>) -> bool {
        if self.renewals.len() >= MAX_PENDING_RENEWALS {
            self.renewals.retain(|_, answer| !answer.is_closed());
        }
        let fits = self.renewals.len() < MAX_PENDING_RENEWALS;
        if fits {
            self.renewals.insert((from, number), answer);
        }
        fits
    }

    pub(super) fn renewed(&mut self, to: MemberId, number: u64, result: RenewalAnswer) {
        if let Some(caller) = self.renewals.remove(&(to, number)) {
            // The caller may no longer be waiting.
            drop(caller.send(result));
        }
    }

    pub(super) fn left(&mut self) {
        // The callers may no longer be waiting.
        self.leaving.drain(..).for_each(|done| {
            let _ = done.send(());
        });
    }
}

/// Sends a result to its caller, which may no longer be waiting.
pub(super) fn answer<T>(waiters: &mut Waiters<T>, token: u64, result: T) {
    if let Some(caller) = waiters.remove(&token) {
        drop(caller.send(result));
    }
}
