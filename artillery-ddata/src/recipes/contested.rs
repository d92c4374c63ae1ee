//! A lock or an election by its name, and the task that contends for it.

use std::{sync::Arc, time::Duration};

use artillery_proto::{
    guards::Guards,
    recipes::{
        Contender, KeyLease,
        name::{self, Kind},
    },
};
use bytes::Bytes;
use tokio::time::Instant;

use super::{Guard, LockError, contest::Contest, leaving::Leaving};
use crate::{
    Error, Kv,
    error::{Advice, NotApplied},
    rpc::router::from_now,
};

/// A lock or an election, by its name.
#[derive(Clone)]
pub(super) struct Contested {
    pub(super) kv: Kv,
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) ttl: Duration,
}

impl Contested {
    pub(super) fn prefix(&self) -> Bytes {
        name::prefix(self.kind, &self.name)
    }

    /// Contends until the lock is held, or `timeout` has passed. With `tries`, ends as soon as another contender is
    /// found to be first.
    pub(super) async fn contend(
        self,
        value: Bytes,
        timeout: Duration,
        tries: bool,
    ) -> Result<Option<Guard>, LockError> {
        self.kv.router.begin_call().await?;
        let (mut ended, mut result) = tokio::sync::oneshot::channel();
        // A task, so that a caller that drops the call leaves no key behind.
        let (runtime, task) = (self.kv.runtime().clone(), Leaving::begin(&self.kv.router));
        runtime.spawn(async move {
            let deadline = from_now(timeout);
            let begun = tokio::select! {
                biased;
                begun = self.begin(value, deadline) => begun,
                () = task.closing() => return,
            };
            let contest = match begun {
                Ok(contest) => contest,
                Err(error) => return drop(ended.send(Err(error))),
            };
            let held = {
                let contend = contest.run(deadline, tries);
                let mut contend = std::pin::pin!(contend);
                let given_up = async {
                    tokio::select! {
                        biased;
                        () = ended.closed() => {}
                        () = task.closing() => {}
                    }
                };
                tokio::select! {
                    biased;
                    held = &mut contend => held,
                    () = given_up => {
                        contest.give_up();
                        contend.await
                    }
                }
            };
            let is_held = held == Ok(true);
            // If the caller has dropped the call, or drops it now, the dropped guard deletes the key.
            let _ = ended.send(held.map(|held| held.then(|| Guard::new(contest.clone()))));
            if !is_held {
                contest.leave().await;
            }
        });
        match (&mut result).await {
            Ok(result) => result,
            // The runtime is shutting down.
            Err(_) => Err(Error::not_applied(NotApplied::Stopped).into()),
        }
    }

    /// Whether any contender has a key.
    pub(super) async fn is_contended(&self, timeout: Duration) -> Result<bool, Error> {
        let prefix = self.prefix();
        let mut queue = self.kv.scan(&prefix).timeout(timeout);
        while let Some(entry) = queue.next().await.transpose()? {
            if name::version_of(&prefix, &entry.key).is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn begin(self, value: Bytes, deadline: Instant) -> Result<Arc<Contest>, LockError> {
        let prefix = self.prefix();
        let routing = self.kv.router.routing(deadline).await.map_err(|error| match error.way_on() {
            Advice::Change => LockError::Call(error),
            _ => LockError::TimedOut { last: Some(error) },
        })?;
        let lease = KeyLease::new(self.ttl, routing.drift_ppm, Guards::ALL);
        Ok(Contest::new(self.kv, routing.cluster, Contender::new(prefix, value, lease, Guards::ALL)))
    }
}
