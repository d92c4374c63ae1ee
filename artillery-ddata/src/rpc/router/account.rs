//! Counts the calls of a node's own handles; in a test, records all calls.

use super::{CallAnswer, Router};
use crate::{ChainId, Error, RequestId, api::Write, message::request::Operation, metrics::OperationTimer};

pub(super) struct Account {
    /// `None`: the call isn't counted.
    timing: Option<OperationTimer>,
    #[cfg(feature = "testing")]
    noted: Option<crate::rpc::observer::ObservedCall>,
}

impl Router {
    pub(super) fn account_of_read(&self, operation: &Operation) -> Account {
        Account {
            timing: self.local().and_then(|_| OperationTimer::of(operation)),
            #[cfg(feature = "testing")]
            noted: self.note(|| crate::rpc::observer::book::Ask::of(operation), None),
        }
    }

    /// Starts the account of a write. `id`: the write's request id, if it has one already.
    #[cfg_attr(not(feature = "testing"), expect(unused_variables, reason = "only tests write ids down"))]
    pub(super) fn account_of_write(&self, write: &Write, id: Option<RequestId>) -> Account {
        Account {
            timing: self.local().and_then(|_| OperationTimer::of_write(write)),
            #[cfg(feature = "testing")]
            noted: self.note(|| crate::rpc::observer::book::Ask::Write(write.clone()), id),
        }
    }

    #[cfg_attr(not(feature = "testing"), expect(unused_variables, reason = "only tests write chains down"))]
    pub(super) fn read_ended(&self, account: &mut Account, chain: ChainId, outcome: Result<&CallAnswer, &Error>) {
        self.count(account.timing.take(), outcome);
        #[cfg(feature = "testing")]
        super::observed::noted_read(account.noted.take(), chain, outcome.map(|answer| &answer.reply));
    }

    pub(super) fn write_ended(&self, account: &mut Account, outcome: Result<(&CallAnswer, RequestId), &Error>) {
        self.count(account.timing.take(), outcome.map(|(answer, _)| answer));
        #[cfg(feature = "testing")]
        super::observed::noted_write(account.noted.take(), outcome.map(|(answer, id)| (&answer.reply, id)));
    }

    fn count(&self, timing: Option<OperationTimer>, outcome: Result<&CallAnswer, &Error>) {
        if let (Some(timing), Some(local)) = (timing, self.local()) {
            local.tally.returned(timing, outcome.map(|answer| &answer.reply));
        }
    }
}
