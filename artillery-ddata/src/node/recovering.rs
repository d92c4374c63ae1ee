//! A node whose cluster has lost the quorum of its configuration log for good: what it has, and how it goes on alone
//! (docs/DESIGN.md §5.12).

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Weak},
};

use artillery_core::internal::clock;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    data::Data,
    phase::{Phase, Stopped},
};
use crate::{
    ChainConfig, ClusterId, MemberId, Timestamp,
    control::{
        ConfigLog, Configs, Founder, History,
        embedded::{Histories, Seat},
        recovery::{self, NotRecovered, Plan, Recovered, Standing},
        succession::NotFounded,
    },
    driver::{control::Calls, serve::Recovery},
    kv::Call,
    replica::Status,
    wire::control,
};

/// How long a chain may take to serve again when its node has gone on alone, in leases.
const PATIENCE: u32 = 5;

/// What a recovery needs.
pub(crate) struct Parts {
    seat: Seat,
    calls: Arc<Calls>,
    /// One at a time.
    turn: tokio::sync::Mutex<()>,
}

impl Parts {
    pub(super) fn new(seat: Seat, calls: Arc<Calls>) -> Self {
        Self { seat, calls, turn: tokio::sync::Mutex::default() }
    }

    /// Waits until no other order of an operator is under way.
    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// The newest that this node knows of the configuration.
    fn configs(&self, acted: &Arc<Configs>) -> Arc<Configs> {
        let logged = self.seat.configs();
        if logged.applied() > acted.applied() { logged } else { acted.clone() }
    }
}

impl Recovery for Weak<Data> {
    fn standing(&self) -> Call<Option<Standing>> {
        let data = self.clone();
        Box::pin(async move { data.upgrade()?.standing().await })
    }

    fn recover(&self, cluster: ClusterId, history: History) -> Call<Result<Recovered, NotRecovered>> {
        let data = self.clone();
        Box::pin(async move {
            let Some(data) = data.upgrade() else { return Err(NotRecovered::Nobody) };
            let asked = data.recover(cluster, history).await;
            match &asked {
                Ok(Recovered { history, plan }) => tracing::warn!(
                    %cluster, %history, before = %plan.history, silent = ?plan.silent, kept = ?plan.chains,
                    "an operator accepted losses: this node goes on alone, with what it has"
                ),
                Err(why) => tracing::warn!(%cluster, %history, %why, "the cluster is not recovered"),
            }
            asked
        })
    }

    fn found(&self, cluster: ClusterId, founds: bool) -> Call<Result<Vec<Founder>, NotFounded>> {
        let data = self.clone();
        Box::pin(async move {
            let Some(data) = data.upgrade() else { return Err(NotFounded::Stopped) };
            let asked = data.found(cluster, founds).await;
            match &asked {
                Ok(_) => data.give_up(founds),
                Err(why) => tracing::warn!(%cluster, %why, "the cluster is not given up"),
            }
            asked
        })
    }
}

impl Data {
    /// For whoever asks as a node.
    pub(super) fn standing_source(self: &Arc<Self>) -> Box<dyn Fn() -> Call<Option<Standing>> + Send + Sync> {
        let data = Arc::downgrade(self);
        Box::new(move || data.standing())
    }

    /// Stops when the cluster turns out to have been recovered without this node: what was acknowledged here since may not
    /// be part of it.
    pub(super) async fn notice_recoveries(self: Arc<Self>, histories: Histories) {
        let mut phases = self.phases();
        tokio::select! {
            biased;
            _ = phases.wait_for(Phase::is_final) => {}
            newer = histories.left_behind() => {
                tracing::error!(mine = ?histories.mine(), %newer, "the cluster was recovered without this node, which stops");
                self.stop(Stopped::LeftBehind);
            }
        }
    }

    /// What this node has; `None`: it belongs to no cluster whose configuration may change.
    async fn standing(&self) -> Option<Standing> {
        let (parts, state) = (self.recovery.get()?, self.state.get()?);
        let log = parts.seat.log();
        let leads = match log.leads() {
            Some(term) => timeout(self.lease() / 2, log.confirm(term)).await.is_ok_and(|led| led.is_ok()),
            None => false,
        };
        let states = self.chain_states().await;
        // Behind all that takes time: what has come meanwhile is proof as well.
        let (acted, now) = (state.borrow().clone(), clock::now());
        let configs = parts.configs(&acted.configs);
        let of_chain = |config: &ChainConfig| {
            let enters = |state: &&Status| state.config.as_ref().is_some_and(|entered| entered.chain == config.chain);
            states.iter().find(enters)
        };
        let standing = acted.standing(now, (self.as_founder(&configs), self.local.cluster()?), &configs, of_chain);
        Some(Standing { leads, log: log.end(), voters: log.voter_sets(), ..standing })
    }

    fn as_founder(&self, configs: &Configs) -> Founder {
        let addrs = self.cluster.get().map(|cluster| cluster.endpoint().advertised_addr()).into_iter().collect();
        let known = configs.node(self.id()).cloned();
        known.unwrap_or_else(|| Founder { id: self.id(), name: self.name().to_owned(), addrs })
    }

    /// Goes on alone, if the named cluster can't go on otherwise and nobody who answers has a better history.
    async fn recover(&self, cluster: ClusterId, history: History) -> Result<Recovered, NotRecovered> {
        let (parts, state) = self.recovery.get().zip(self.state.get()).ok_or(NotRecovered::Static)?;
        let _turn = parts.turn().await;
        let begun = clock::now();
        self.plan(parts, cluster, history, begun).await?;
        // Whoever had been granted a lease before has none any more; and whoever can answer has had its time.
        self.outlast_leases(begun).await;
        let plan = self.plan(parts, cluster, history, begun).await?;
        let configs = parts.configs(&state.borrow().configs);
        let next = plan.history.next(u128::from(super::builder::random()) << 64 | u128::from(super::builder::random()));
        let configs = configs.recovered(next, self.id(), plan.newest, plan.upto);
        let applied = configs.applied();
        parts.seat.recover(configs).await.map_err(|error| NotRecovered::Failed(error.to_string()))?;
        let mut state = state.clone();
        let serves = state.wait_for(|state| state.configs.applied() >= applied && state.lease > clock::now());
        match timeout(self.lease() * PATIENCE, serves).await {
            Ok(Ok(_)) => Ok(Recovered { plan, history: next }),
            _ => Err(NotRecovered::Failed("it doesn't serve yet".to_owned())),
        }
    }

    /// Waits until every lease that was granted before `begun` is out.
    pub(super) async fn outlast_leases(&self, begun: Timestamp) {
        let until = begun + self.timing().unwrap_or_default().lease_and_drift();
        sleep(until - clock::now()).await;
    }

    async fn plan(
        &self,
        parts: &Parts,
        cluster: ClusterId,
        history: History,
        begun: Timestamp,
    ) -> Result<Plan, NotRecovered> {
        let standings = self.survey(parts).await;
        let plan = recovery::plan(cluster, &standings, clock::now() - begun)?;
        if plan.history != history {
            return Err(NotRecovered::OtherHistory { found: plan.history });
        }
        if plan.by.id != self.id() {
            return Err(NotRecovered::Elsewhere { by: plan.by.id });
        }
        Ok(plan)
    }

    /// The standings of this node and of all that answer, each as of the end of the survey: a silent node takes a lease.
    pub(super) async fn survey(&self, parts: &Parts) -> Vec<Standing> {
        let mut asked = JoinSet::new();
        for (id, addrs) in self.others(parts) {
            let (calls, patience) = (parts.calls.clone(), self.lease());
            asked.spawn(async move {
                match calls.ask(id, &addrs, &control::Call::Survey, patience).await {
                    Ok(control::Answer::Surveyed(standing)) => Some(*standing),
                    Ok(_) => None,
                    Err(error) => {
                        tracing::info!(peer = %id, %error, "no answer to what it has");
                        None
                    }
                }
            });
        }
        let mut standings = Vec::new();
        while let Some(answer) = asked.join_next().await {
            standings.extend(answer.ok().flatten().map(|standing| (standing, clock::now())));
        }
        // Last: it says what has come meanwhile.
        let mine = self.standing().await;
        let now = clock::now();
        standings.into_iter().map(|(standing, at)| standing.aged(now - at)).chain(mine).collect()
    }

    /// Whoever the log or the membership knows of, and where: in the lives that the log knows, which may keep it.
    fn others(&self, parts: &Parts) -> BTreeMap<MemberId, Vec<SocketAddr>> {
        let configs = parts.seat.configs();
        let acted = self.state.get().map(|state| state.borrow().configs.clone()).unwrap_or_default();
        let members = self.cluster.get().map(|cluster| cluster.members()).unwrap_or_default();
        let met = members.iter().map(|member| (member.id, vec![member.addr]));
        let known = configs.nodes().chain(acted.nodes()).map(|node| (node.id, node.addrs.clone()));
        met.chain(known).filter(|(id, _)| id.node != self.id().node).collect()
    }
}
