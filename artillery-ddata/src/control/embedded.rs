//! The configuration log, kept by the cluster's own nodes: openraft among up to five of them.
//!
//! # Identity
//!
//! A node of the group is a *store* of a node ([`RaftId`]). A memory node that restarts has forgotten its votes and its
//! log, and has another store: so it joins the group as another node, and messages name the store to which they are
//! addressed. A store on a disk is the same node of the group across restarts. A node that isn't among the first voters
//! starts with an empty log, and waits for a leader's messages. Only the stores named in the founding start the log,
//! and each only while it has no record of a log. The leader sends the log to every node of the cluster
//! ([`Configs::nodes`]), so that each can apply it.
//!
//! # Two logs in one
//!
//! The group's log also holds entries that change no configuration: the first entry of each leader, and changes of the
//! voters. A configuration change names its place and its term. When it is applied, it takes that place only if the
//! place is the next one and the term is that of the leader that appended it. Otherwise it has no effect. So
//! [`LogIndex`] counts only entries that took a place, and a proposal never outlives its term (trap 35).
//!
//! # Leadership
//!
//! Terms have one leader each (openraft's `single-term-leader`). A node claims leadership only once an entry of its own
//! term has been applied here, and therefore everything committed before (trap 14). Its reads are then confirmed by a
//! majority in the same term.

mod histories;
mod kept;
mod log_handle;
mod machine;
mod messages;
mod network;
mod quiet;
mod runtime;
mod settings;
mod store;
mod types;
mod voters;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use artillery_proto::{allows, data_dir::ControlRecord};
use bytes::Bytes;
use openraft::{
    ServerState, Vote,
    error::{CheckIsLeaderError, RaftError},
    metrics::RaftServerMetrics,
};
use tokio::{sync::watch, time::timeout};

pub(crate) use self::{
    histories::Histories, kept::StorePlace, log_handle::LogHandle, messages::CallError, network::LogTransport,
    settings::EmbeddedSettings,
};
use self::{
    kept::{KeptLog, LogRecord},
    machine::{AppliedConfigs, Machine},
    messages::{AnswerOf, Envelope, LogAnswer, LogQuestion, MAX_PROPOSAL},
    network::{AnswerTimes, LogNetwork},
    store::LogStore,
    types::{EntryOutcome, LogProposal, Raft, RaftId, RaftLogId, RaftNode},
};
use super::{
    Bootstrap, History, NodeInfo,
    log::{
        AppendError, BoxFuture, ConfigChange, ConfigLog, ConfigLogError, Configs, LogEntry, LogIndex, ProposalFuture,
        Term,
    },
    recovery::LogEnd,
};
use crate::{ClusterId, MemberId, Timestamp};

/// This node's part of the group that keeps the log. Clones share it; dropping the last one stops it.
#[derive(Clone)]
pub(crate) struct Embedded(Arc<EmbeddedInner>);

struct EmbeddedInner {
    me: RaftId,
    cluster: ClusterId,
    name: String,
    histories: Histories,
    founders: Vec<NodeInfo>,
    peers: Arc<dyn LogTransport>,
    place: Option<StorePlace>,
    store: LogStore,
    settings: EmbeddedSettings,
    raft: Raft,
    /// The subscriber of calls to openraft; `None`: that of the process.
    log: Option<tracing::Dispatch>,
    metrics: watch::Receiver<Metrics>,
    applied: Arc<AppliedConfigs>,
    /// Held during a change of the voters or learners: one at a time.
    changing: tokio::sync::Mutex<()>,
    answered: AnswerTimes,
    stands: Arc<Stands>,
    #[cfg(test)]
    panics: std::sync::atomic::AtomicBool,
}

type Metrics = RaftServerMetrics<RaftId, RaftNode>;

impl Embedded {
    /// Joins the group that keeps the log of `founding`'s cluster: as one of its first voters if this node's store is
    /// among them, otherwise as a node that waits to become a voter. A node with a disk continues from the content of
    /// `place`.
    ///
    /// # Errors
    /// [`ConfigLogError::Failed`]: the settings are invalid, or the disk has failed.
    pub(crate) async fn start(
        me: NodeInfo,
        founding: &Bootstrap,
        settings: EmbeddedSettings,
        peers: Arc<dyn LogTransport>,
        place: Option<StorePlace>,
    ) -> Result<Self, ConfigLogError> {
        let id = raft_id(&settings, me.id);
        let voters = first_voters(&me, founding, &settings);
        let mut first = voters.first().is_some_and(|voter| voter.id.shares_store(me.id));
        let voters = || voters.iter().map(|voter| (raft_id(&settings, voter.id), RaftNode(voter.clone())));
        let mut history = founding.names(me.id).then(|| History::first(founding.cluster));
        let control = place.as_ref().map(|place| place.control.clone());
        let (store, applied) = match control {
            None if voters().len() == 0 => (LogStore::default(), AppliedConfigs::new(founding, settings.window)),
            None => (LogStore::kept_by(voters()), AppliedConfigs::new(founding, settings.window)),
            Some(control) => {
                history = control.look(|record| record.history).or(history);
                let kept = KeptLog::open(control)?;
                first &= kept.is_new();
                if kept.is_new() && voters().len() > 0 {
                    let entry = store::first_entry(voters());
                    kept.change(|record| record.entries.push(entry), |_| {}).await.map_err(failed)?;
                }
                let applied = AppliedConfigs::of_disk(founding, settings.window, kept.clone())?;
                (LogStore::of_disk(kept, id, settings.guards), applied)
            }
        };
        let applied = Arc::new(applied);
        let part = GroupParts {
            me: id,
            cluster: founding.cluster,
            name: founding.name.clone(),
            founders: founding.members.clone(),
            settings,
            peers,
            place,
            histories: Histories::new(history),
        };
        // The first voter calls an election at once. The others wait for it as for a leader that fell silent.
        part.begin(store, applied, first).await
    }

    /// Continues the log alone, from `configs` in another history; this part in the old group ends. The terms of the
    /// new group follow the last term that is known here.
    pub(super) async fn recover(&self, configs: Configs) -> Result<Self, ConfigLogError> {
        let EmbeddedInner { me, cluster, name, founders, settings, peers, place, histories, .. } = &*self.0;
        let EmbeddedInner { store, metrics, applied, .. } = &*self.0;
        let mine = configs.nodes().find(|node| node.id.shares_store(me.0));
        let node = mine.cloned().ok_or_else(|| failed("this node is missing from the configurations"))?;
        self.stop().await;
        let term = metrics.borrow().vote.leader_id().term + 1;
        let index = store.last().map_or(0, |last| last.index) + 1;
        let last = RaftLogId::new(openraft::CommittedLeaderId::new(term, *me), index);
        let histories = histories.followed_by(configs.history());
        let changes = applied.progress().changes;
        let kept = store.kept().cloned();
        let mut applied =
            AppliedConfigs::recovered(configs.clone(), last, (*me, RaftNode(node)), settings.window, changes);
        let store = match kept {
            None => LogStore::behind(last, *me),
            Some(kept) => {
                let snapshot = applied.keep_in(kept.clone()).map_err(failed)?;
                let record = LogRecord {
                    vote: Some(Vote::new(term, *me)),
                    purged: Some(last),
                    entries: Vec::new(),
                    snapshot: Some(snapshot),
                };
                // The log and the history that it belongs to change in one step.
                let change = move |control: &mut ControlRecord| control.go_on(configs);
                kept.change(|log| *log = record, change).await.map_err(failed)?;
                LogStore::of_disk(kept, *me, settings.guards)
            }
        };
        let part = GroupParts {
            me: *me,
            cluster: *cluster,
            name: name.clone(),
            founders: founders.clone(),
            settings: settings.clone(),
            peers: peers.clone(),
            place: place.clone(),
            histories,
        };
        part.begin(store, Arc::new(applied), true).await
    }

    pub(crate) fn histories(&self) -> &Histories {
        &self.0.histories
    }

    /// The end of this node's copy of the group's log.
    pub(crate) fn end(&self) -> Option<LogEnd> {
        let last = self.0.store.last();
        last.map(|last| LogEnd { term: Term(last.leader_id.term), index: last.index })
    }

    /// The voters, as known here: two sets during a change of the voters.
    pub(crate) fn voter_sets(&self) -> Vec<BTreeSet<MemberId>> {
        let metrics = self.0.metrics.borrow();
        let sets = metrics.membership_config.membership().get_joint_config();
        sets.iter().map(|set| set.iter().map(|&RaftId(id)| id).collect()).collect()
    }

    /// Handles a message that `from` sent by [`LogTransport::call`]; returns the answer.
    ///
    /// # Errors
    /// [`CallError`]: the message changed neither the vote nor the log, except perhaps with [`CallError::Stopped`]. The
    /// sender's history and position may have been recorded in any case.
    pub(crate) async fn serve(&self, from: MemberId, message: Bytes) -> Result<Bytes, CallError> {
        let EmbeddedInner { me, cluster, settings, raft, log, histories, place, .. } = &*self.0;
        let encode = |answer| messages::encode(&AnswerOf { by: place.as_ref().map(StorePlace::speaker), answer });
        let envelope: Envelope = messages::decode(&message)?;
        envelope.check(*cluster, *me, raft_id(settings, from))?;
        if let (Some(place), Some(by)) = (place, envelope.by) {
            by.check(|id| id == from)?;
            place.hear(by.id, by.position)?;
        }
        match histories.meet(envelope.history) {
            Ok(()) => {}
            Err(Some(mine)) => return encode(LogAnswer::OtherHistory(mine)),
            Err(None) => return Err(CallError::OtherHistory),
        }
        if let Some(place) = place {
            // The effects of this message on the log belong to that history.
            place.keep_history(envelope.history).await?;
        }
        let answer = match envelope.question {
            LogQuestion::Append(request) => {
                LogAnswer::Append(quiet::run(log.clone(), raft.append_entries(request)).await.map_err(stopped)?)
            }
            LogQuestion::Vote(request) => {
                LogAnswer::Vote(quiet::run(log.clone(), raft.vote(request)).await.map_err(stopped)?)
            }
            LogQuestion::Snapshot(request) => match quiet::run(log.clone(), raft.install_snapshot(request)).await {
                Ok(answer) => LogAnswer::Snapshot(answer),
                Err(RaftError::APIError(mismatch)) => LogAnswer::Mismatch(mismatch),
                Err(error) => return Err(stopped(error)),
            },
        };
        encode(answer)
    }

    pub(crate) fn stands(&self) -> bool {
        self.0.stands.now.load(Ordering::Relaxed)
    }

    /// Whether this part in the group ended without being stopped: by a fatal error or a panic.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.applied.progress().failed
    }

    #[cfg(test)]
    pub(crate) async fn break_core(&self) {
        self.0.raft.shutdown().await.unwrap();
    }

    #[cfg(test)]
    pub(crate) fn panic_at_confirmation(&self) {
        self.0.panics.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    pub(crate) async fn stop(&self) {
        self.0.applied.end();
        // Shutdown fails only if the log has already stopped.
        let _ = self.0.raft.shutdown().await;
    }
}

/// The parameters with which a node takes part in the group.
struct GroupParts {
    me: RaftId,
    cluster: ClusterId,
    name: String,
    founders: Vec<NodeInfo>,
    settings: EmbeddedSettings,
    peers: Arc<dyn LogTransport>,
    place: Option<StorePlace>,
    histories: Histories,
}

impl GroupParts {
    async fn begin(
        self,
        store: LogStore,
        applied: Arc<AppliedConfigs>,
        elect: bool,
    ) -> Result<Embedded, ConfigLogError> {
        let Self { me, cluster, name, founders, settings, peers, place, histories } = self;
        let config = settings.config(name.clone())?;
        let (peers_of, backoff) = (peers.clone(), settings.heartbeat);
        let (histories_of, place_of, answered) = (histories.clone(), place.clone(), AnswerTimes::default());
        let answered_of = answered.clone();
        let network = LogNetwork {
            cluster,
            histories: histories_of,
            peers: peers_of,
            place: place_of,
            backoff,
            answered: answered_of,
            clock: settings.clock.clone(),
        };
        let start = Raft::new(me, Arc::new(config), network, store.clone(), Machine(applied.clone()));
        let raft = runtime::seeded(settings.seed, start).await.map_err(failed)?;
        if elect {
            raft.trigger().elect().await.map_err(failed)?;
        }
        let metrics = raft.server_metrics();
        tokio::spawn(watch(me, metrics.clone(), applied.clone()));
        let changing = tokio::sync::Mutex::default();
        let inner = Arc::new(EmbeddedInner {
            me,
            cluster,
            name,
            histories,
            founders,
            peers,
            place,
            store,
            settings,
            raft,
            log: quiet::of_this_task(),
            metrics,
            applied,
            changing,
            answered,
            stands: Arc::default(),
            #[cfg(test)]
            panics: Default::default(),
        });
        tokio::spawn(voters::teach(Arc::downgrade(&inner), inner.applied.watch()));
        Ok(Embedded(inner))
    }
}

#[derive(Debug)]
struct Stands {
    now: AtomicBool,
    /// The requested value. `true` takes effect once the node no longer leads in the term that it resigned from.
    wanted: AtomicBool,
}

impl Default for Stands {
    fn default() -> Self {
        Self { now: AtomicBool::new(true), wanted: AtomicBool::new(true) }
    }
}

/// Lets a node lead again once it isn't the leader, if this is still wanted. Until then, a proposal of the term that it
/// resigned from may still enter the log (trap 35).
async fn stand_again(
    raft: Raft,
    mut metrics: watch::Receiver<Metrics>,
    applied: Arc<AppliedConfigs>,
    stands: Arc<Stands>,
) {
    // Fails only if this part in the group has ended.
    if metrics.wait_for(|metrics| metrics.state != ServerState::Leader).await.is_err() {
        return;
    }
    if stands.wanted.load(Ordering::Relaxed) {
        stands.now.store(true, Ordering::Relaxed);
        raft.runtime_config().heartbeat(true);
        raft.runtime_config().elect(true);
        applied.touch();
    }
}

/// The first voters, if this node's store is among them; otherwise none.
fn first_voters(me: &NodeInfo, founding: &Bootstrap, settings: &EmbeddedSettings) -> Vec<NodeInfo> {
    let mut voters = types::first_voters(founding, settings.max_voters).to_vec();
    if allows!(settings.guards, InitialiseAgain) {
        voters.iter_mut().filter(|voter| voter.id.node == me.id.node).for_each(|voter| *voter = me.clone());
    }
    if voters.iter().any(|voter| voter.id.shares_store(me.id)) { voters } else { Vec::new() }
}

fn raft_id(settings: &EmbeddedSettings, id: MemberId) -> RaftId {
    if allows!(settings.guards, KeepVote) {
        return RaftId(MemberId { incarnation: RaftId::default().0.incarnation, ..id });
    }
    RaftId::of(id)
}

fn failed(error: impl fmt::Display) -> ConfigLogError {
    ConfigLogError::Failed(error.to_string())
}

fn stopped(error: impl fmt::Display) -> CallError {
    CallError::Stopped(error.to_string())
}

/// Wakes waiters when openraft's metrics change, for example the leader or the voters. When openraft ends, marks the
/// end of this part in the group.
async fn watch(me: RaftId, mut metrics: watch::Receiver<Metrics>, applied: Arc<AppliedConfigs>) {
    let mut known = None;
    while metrics.changed().await.is_ok() {
        let (leader, term) = {
            let metrics = metrics.borrow_and_update();
            (metrics.current_leader, metrics.vote.leader_id().term)
        };
        if known != Some((leader, term)) {
            known = Some((leader, term));
            match leader {
                Some(leader) if leader == me => tracing::debug!(term, "this node leads the configuration log"),
                Some(leader) => tracing::debug!(term, %leader, "the configuration log has a leader"),
                None => tracing::debug!(term, "the configuration log has no leader"),
            }
        }
        applied.touch();
    }
    applied.end_of_core();
}

impl EmbeddedInner {
    fn leads(&self) -> Option<Term> {
        let applied = self.applied.progress();
        if applied.ended || !self.stands.now.load(Ordering::Relaxed) {
            return None;
        }
        let metrics = self.metrics.borrow();
        let leader = metrics.vote.leader_id();
        let leads = metrics.state == ServerState::Leader && metrics.current_leader == Some(self.me);
        let knows = applied.raft.is_some_and(|last| last.leader_id.term == leader.term);
        (leads && (knows || allows!(self.settings.guards, LeadUnapplied))).then_some(Term(leader.term))
    }

    async fn append(&self, term: Term, at: LogIndex, change: ConfigChange) -> Result<(), AppendError> {
        if self.leads() != Some(term) {
            return Err(AppendError::NotLeading);
        }
        let last = self.applied.progress().last;
        if at <= last {
            return Err(AppendError::Taken { last });
        }
        let proposal = LogProposal { term: term.0, at, change };
        let size = messages::encode(&proposal).map_err(failed)?.len();
        if size > MAX_PROPOSAL {
            return Err(failed(format!("a change of {size} bytes; at most {MAX_PROPOSAL} are possible")).into());
        }
        let write = self.while_leading(term, self.settings.patience, self.raft.client_write(proposal)).await?;
        // openraft doesn't report whether the entry was appended before the leadership ended.
        let written = write.map_err(|error| AppendError::OutcomeUnknown(error.to_string()))?;
        match written.data {
            EntryOutcome::Placed => Ok(()),
            EntryOutcome::Taken(last) => Err(AppendError::Taken { last }),
            EntryOutcome::WrongTerm => Err(AppendError::NotLeading),
            EntryOutcome::Nothing => Err(AppendError::OutcomeUnknown("the answer was for another entry".into())),
        }
    }

    async fn confirm(&self, term: Term) -> Result<LogIndex, ConfigLogError> {
        let not_leading = || ConfigLogError::Failed(format!("this node doesn't lead in term {term}"));
        if self.leads() != Some(term) {
            return Err(not_leading());
        }
        #[cfg(test)]
        assert!(!self.panics.load(std::sync::atomic::Ordering::Relaxed), "a test wants this panic");
        if allows!(self.settings.guards, ConfirmWithoutQuorum) {
            return Ok(self.applied.progress().last);
        }
        let asked = timeout(self.settings.patience, self.raft.get_read_log_id()).await;
        let (read, _) = asked.map_err(|_| ConfigLogError::NoQuorum)?.map_err(|error| match error {
            RaftError::APIError(CheckIsLeaderError::QuorumNotEnough(_)) => ConfigLogError::NoQuorum,
            RaftError::APIError(CheckIsLeaderError::ForwardToLeader(_)) => not_leading(),
            RaftError::Fatal(fatal) => failed(fatal),
        })?;
        // The log id is at least the first entry of the leader that a majority confirmed, so a term other than `term`
        // means another leader.
        let read = read.filter(|read| read.leader_id.term == term.0).ok_or_else(not_leading)?;
        let mut progress = self.applied.watch();
        let applied = progress.wait_for(|now| now.ended || now.raft.is_some_and(|last| last.index >= read.index));
        let last = match timeout(self.settings.patience, applied).await {
            Ok(Ok(progress)) if !progress.ended => progress.last,
            Ok(_) => return Err(failed("the log was stopped")),
            Err(_) => return Err(ConfigLogError::NoQuorum),
        };
        if self.leads() == Some(term) { Ok(last) } else { Err(not_leading()) }
    }

    /// The output of `future`. Fails with an unknown outcome if this node stops leading in `term`, or `limit` passes.
    async fn while_leading<T>(
        &self,
        term: Term,
        limit: Duration,
        future: impl Future<Output = T>,
    ) -> Result<T, AppendError> {
        let deposed = async {
            let mut progress = self.applied.watch();
            while self.leads() == Some(term) && progress.changed().await.is_ok() {}
        };
        tokio::select! {
            biased;
            output = future => Ok(output),
            () = deposed => Err(AppendError::OutcomeUnknown(format!("the leadership in term {term} ended"))),
            () = tokio::time::sleep(limit) => Err(AppendError::OutcomeUnknown("no majority answered in time".into())),
        }
    }
}

impl Drop for EmbeddedInner {
    fn drop(&mut self) {
        self.applied.end();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let raft = self.raft.clone();
            runtime.spawn(async move { raft.shutdown().await });
        }
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EmbeddedInner { me, applied, .. } = &*self.0;
        f.debug_struct("Embedded").field("me", me).field("progress", &applied.progress()).finish_non_exhaustive()
    }
}

impl ConfigLog for Embedded {
    fn append(&self, term: Term, at: LogIndex, change: ConfigChange) -> ProposalFuture<'_> {
        Box::pin(self.0.append(term, at, change))
    }

    fn entry(&self, at: LogIndex) -> Result<Option<LogEntry>, ConfigLogError> {
        self.0.applied.entry(at)
    }

    fn confirm(&self, term: Term) -> BoxFuture<'_, Result<LogIndex, ConfigLogError>> {
        Box::pin(self.0.confirm(term))
    }

    fn leads(&self) -> Option<Term> {
        self.0.leads()
    }

    fn leader(&self) -> Option<MemberId> {
        self.0.metrics.borrow().current_leader.map(|RaftId(id)| id)
    }

    fn configs(&self) -> Arc<Configs> {
        self.0.applied.configs()
    }

    fn voters(&self) -> BTreeSet<MemberId> {
        self.0.metrics.borrow().membership_config.membership().voter_ids().map(|RaftId(id)| id).collect()
    }

    fn set_voters(&self, term: Term, voters: BTreeSet<MemberId>) -> ProposalFuture<'_> {
        Box::pin(self.0.set_voters(term, voters))
    }

    fn answered(&self) -> BTreeMap<MemberId, Timestamp> {
        self.0.answered.of_all()
    }

    fn may_lead(&self, may: bool) {
        let EmbeddedInner { raft, metrics, applied, stands, .. } = &*self.0;
        stands.wanted.store(may, Ordering::Relaxed);
        if may {
            tokio::spawn(stand_again(raft.clone(), metrics.clone(), applied.clone(), stands.clone()));
            return;
        }
        stands.now.store(false, Ordering::Relaxed);
        // Without heartbeats the others elect another leader.
        raft.runtime_config().heartbeat(false);
        raft.runtime_config().elect(false);
        applied.touch();
    }

    fn changed(&self, seen: u64) -> BoxFuture<'_, u64> {
        Box::pin(async move {
            let mut progress = self.0.applied.watch();
            // `self` owns the sender, so it stays open.
            let _ = progress.wait_for(|progress| progress.changes > seen).await;
            self.0.applied.progress().changes
        })
    }
}

#[cfg(test)]
mod tests;
