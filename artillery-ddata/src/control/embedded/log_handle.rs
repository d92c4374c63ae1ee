//! A node's handle to the log, which is replaced after a recovery.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use artillery_core::internal::watch;
use bytes::Bytes;

use super::{CallError, Embedded, Histories};
use crate::{
    MemberId, Timestamp,
    control::{
        Configs,
        log::{BoxFuture, ConfigChange, ConfigLog, ConfigLogError, LogEntry, LogIndex, ProposalFuture, Term},
    },
};

/// A handle to the node's current log. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct LogHandle(Arc<watch::Sender<Embedded>>);

impl LogHandle {
    pub(crate) fn new(log: Embedded) -> Self {
        Self(Arc::new(watch::Sender::new(log)))
    }

    pub(crate) fn log(&self) -> Embedded {
        self.0.borrow().clone()
    }

    pub(crate) fn histories(&self) -> Histories {
        self.log().histories().clone()
    }

    pub(crate) async fn serve(&self, from: MemberId, message: Bytes) -> Result<Bytes, CallError> {
        self.log().serve(from, message).await
    }

    /// Continues the log alone, from these configurations of another history.
    ///
    /// # Errors
    /// [`ConfigLogError::Failed`]: this node may have no part in any log from now on.
    pub(crate) async fn recover(&self, configs: Configs) -> Result<(), ConfigLogError> {
        let alone = self.log().recover(configs).await?;
        self.0.send_replace(alone);
        Ok(())
    }

    pub(crate) async fn stop(&self) {
        self.log().stop().await;
    }
}

impl ConfigLog for LogHandle {
    fn append(&self, term: Term, at: LogIndex, change: ConfigChange) -> ProposalFuture<'_> {
        let log = self.log();
        Box::pin(async move { log.append(term, at, change).await })
    }

    fn entry(&self, at: LogIndex) -> Result<Option<LogEntry>, ConfigLogError> {
        self.log().entry(at)
    }

    fn confirm(&self, term: Term) -> BoxFuture<'_, Result<LogIndex, ConfigLogError>> {
        let log = self.log();
        Box::pin(async move { log.confirm(term).await })
    }

    fn leads(&self) -> Option<Term> {
        self.log().leads()
    }

    fn leader(&self) -> Option<MemberId> {
        self.log().leader()
    }

    fn configs(&self) -> Arc<Configs> {
        self.log().configs()
    }

    fn voters(&self) -> BTreeSet<MemberId> {
        self.log().voters()
    }

    fn set_voters(&self, term: Term, voters: BTreeSet<MemberId>) -> ProposalFuture<'_> {
        let log = self.log();
        Box::pin(async move { log.set_voters(term, voters).await })
    }

    fn answered(&self) -> BTreeMap<MemberId, Timestamp> {
        self.log().answered()
    }

    fn may_lead(&self, may: bool) {
        self.log().may_lead(may);
    }

    fn changed(&self, seen: u64) -> BoxFuture<'_, u64> {
        Box::pin(async move {
            let mut current = self.0.subscribe();
            loop {
                let log = current.borrow_and_update().clone();
                tokio::select! {
                    biased;
                    changes = log.changed(seen) => return changes,
                    // `self` owns the sender.
                    _ = current.changed() => {}
                }
            }
        })
    }
}
