//! Changes the voters by joint consensus: during a change, each decision needs a majority of the old voters and one of
//! the new ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Weak,
};

use artillery_core::internal::watch;
use openraft::{
    ChangeMembers, ServerState,
    error::{ClientWriteError, RaftError},
    raft::ClientWriteResponse,
};
use tokio::sync::MutexGuard;

use super::{
    EmbeddedInner, failed,
    machine::ApplyProgress,
    raft_id,
    types::{RaftId, RaftNode, TypeConfig},
};
use crate::{
    MemberId,
    control::log::{AppendError, ConfigLogError, Term},
};

/// While this node leads, keeps exactly the cluster's nodes and the voters registered as receivers of the log. Ends
/// with this node's part in the group.
pub(super) async fn teach(inner: Weak<EmbeddedInner>, mut progress: watch::Receiver<ApplyProgress>) {
    while !progress.borrow_and_update().ended {
        let Some(inner) = inner.upgrade() else { return };
        if let Some(term) = inner.leads() {
            let taught = inner.while_leading(term, inner.settings.catch_up, inner.teach(term)).await;
            if let Err(error) = taught.and_then(|taught| taught) {
                // The next change of the progress starts another attempt.
                tracing::debug!(%error, "the receivers of the configuration log were not changed");
            }
        }
        drop(inner);
        if progress.changed().await.is_err() {
            return;
        }
    }
}

type Written = Result<ClientWriteResponse<TypeConfig>, RaftError<RaftId, ClientWriteError<RaftId, RaftNode>>>;

impl EmbeddedInner {
    pub(super) async fn set_voters(&self, term: Term, voters: BTreeSet<MemberId>) -> Result<(), AppendError> {
        if self.leads() != Some(term) {
            return Err(AppendError::NotLeading);
        }
        if voters.is_empty() || voters.len() > self.settings.max_voters {
            let (found, most) = (voters.len(), self.settings.max_voters);
            return Err(failed(format!("{found} voters: from 1 to {most} are possible")).into());
        }
        let voters = self.peers(voters)?;
        self.while_leading(term, self.settings.catch_up, self.replace(term, voters)).await?
    }

    /// The voters with their addresses: from the configurations, otherwise from the founding, otherwise from the
    /// group's membership.
    fn peers(&self, voters: BTreeSet<MemberId>) -> Result<BTreeMap<RaftId, RaftNode>, ConfigLogError> {
        let configs = self.applied.configs();
        let metrics = self.metrics.borrow();
        let membership = metrics.membership_config.membership();
        let peer = |id: MemberId| {
            let founder = configs.node(id).or_else(|| self.founders.iter().find(|founder| founder.id == id));
            let raft_id = raft_id(&self.settings, id);
            let peer = founder.cloned().map(RaftNode).or_else(|| membership.get_node(&raft_id).cloned());
            Ok((raft_id, peer.ok_or_else(|| failed(format!("no address is known for {id}")))?))
        };
        voters.into_iter().map(peer).collect()
    }

    /// Replaces the voters. Each step can be repeated, and the next leader can continue with another set.
    async fn replace(&self, term: Term, voters: BTreeMap<RaftId, RaftNode>) -> Result<(), AppendError> {
        let _one = self.alone(term).await?;
        let known = self.known();
        for (&id, peer) in voters.iter().filter(|(id, _)| !known.contains(id)) {
            done(term, self.raft.add_learner(id, peer.clone(), false).await)?;
        }
        let ids: BTreeSet<_> = voters.into_keys().collect();
        self.caught_up(&ids).await;
        done(term, self.raft.change_membership(ChangeMembers::ReplaceAllVoters(ids), false).await)
    }

    /// Takes the lock for a change of the group, if this node leads and is a voter itself. A leader that was voted out
    /// accepts changes until its next tick, and openraft 0.9 panics if one of them is a change of the group.
    async fn alone(&self, term: Term) -> Result<MutexGuard<'_, ()>, AppendError> {
        let (one, me) = (self.changing.lock().await, self.me);
        let leads = self.raft.with_raft_state(move |state| {
            let voter = state.membership_state.effective().voter_ids().any(|id| id == me);
            voter && state.server_state == ServerState::Leader && state.vote_ref().leader_id().term == term.0
        });
        if leads.await.map_err(failed)? { Ok(one) } else { Err(AppendError::NotLeading) }
    }

    /// Registers exactly the cluster's nodes and the voters as receivers of the log. Also finishes a change of the
    /// voters that an earlier leader left incomplete.
    async fn teach(&self, term: Term) -> Result<(), AppendError> {
        let _one = self.alone(term).await?;
        let (configs, known) = (self.applied.configs(), self.known());
        let nodes: BTreeMap<_, _> =
            configs.nodes().map(|node| (raft_id(&self.settings, node.id), RaftNode(node.clone()))).collect();
        let voters: BTreeSet<_> = self.metrics.borrow().membership_config.membership().voter_ids().collect();
        let gone: BTreeSet<_> =
            known.iter().filter(|id| !nodes.contains_key(id) && !voters.contains(id)).copied().collect();
        let come: BTreeMap<_, _> = nodes.into_iter().filter(|(id, _)| !known.contains(id)).collect();
        let half_done = self.metrics.borrow().membership_config.membership().get_joint_config().clone();
        if let [_, .., last] = &half_done[..] {
            done(term, self.raft.change_membership(ChangeMembers::ReplaceAllVoters(last.clone()), false).await)?;
        }
        if !gone.is_empty() {
            done(term, self.raft.change_membership(ChangeMembers::RemoveNodes(gone), true).await)?;
        }
        if !come.is_empty() {
            done(term, self.raft.change_membership(ChangeMembers::AddNodes(come), true).await)?;
        }
        Ok(())
    }

    fn known(&self) -> BTreeSet<RaftId> {
        self.metrics.borrow().membership_config.membership().nodes().map(|(&id, _)| id).collect()
    }

    /// Waits until each voter has almost all of the log. A voter that lags delays every entry that needs it for a
    /// majority.
    async fn caught_up(&self, ids: &BTreeSet<RaftId>) {
        let mut metrics = self.raft.metrics();
        let all = metrics.wait_for(|metrics| {
            let last = metrics.last_log_index.unwrap_or_default();
            let replication = metrics.replication.as_ref();
            ids.iter().filter(|&&id| id != self.me).all(|id| {
                let matched = replication.and_then(|replication| replication.get(id)).copied().flatten();
                matched.is_some_and(|matched| matched.index + MAX_VOTER_LAG >= last)
            })
        });
        // The wait fails if this node's part in the group has ended: then the leadership has ended too, and with it
        // this change.
        let _ = all.await;
    }
}

/// The number of entries by which a new voter may lag: some may be in flight.
const MAX_VOTER_LAG: u64 = 8;

fn done(term: Term, written: Written) -> Result<(), AppendError> {
    match written {
        Ok(written) if written.log_id.leader_id.term == term.0 => Ok(()),
        Ok(_) => Err(AppendError::OutcomeUnknown("it was applied in another term".into())),
        Err(RaftError::APIError(ClientWriteError::ChangeMembershipError(error))) => Err(failed(error).into()),
        Err(error) => Err(AppendError::OutcomeUnknown(error.to_string())),
    }
}
