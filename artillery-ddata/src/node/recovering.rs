//! Recovery of a node whose cluster has lost the quorum of its configuration log for good: what the node holds, and how
//! it continues alone (docs/DESIGN.md §5.12).

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Weak},
};

use artillery_core::internal::clock;
use tokio::{
    sync::oneshot,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{data::Data, random, recovery_access::RecoveryAccess};
use crate::{
    ChainConfig, ChainId, ClusterId, MemberId, Timestamp,
    control::{
        ConfigLog, Configs, History, NodeInfo, branch,
        embedded::Histories,
        message::StoreHolding,
        recovery::{self, ChainStanding, NotRecovered, Plan, Recovered, Standing},
        reopening::{NotReopened, Reopened},
        succession::NotFounded,
    },
    driver::BoxFuture,
    driver::control::ControlCommand,
    driver::phase::Stopped,
    driver::serve::Recovery,
    message::control,
};

/// How long a chain may take to serve again after its node continued alone, in leases.
const RECOVERY_LEASES: u32 = 5;

impl Recovery for Weak<Data> {
    fn standing(&self) -> BoxFuture<Option<Standing>> {
        let data = self.clone();
        Box::pin(async move { data.upgrade()?.standing().await })
    }

    fn recover(&self, cluster: ClusterId, history: History) -> BoxFuture<Result<Recovered, NotRecovered>> {
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

    fn reopen(&self, chain: ChainId) -> BoxFuture<Result<Reopened, NotReopened>> {
        let data = self.clone();
        Box::pin(async move {
            let Some(data) = data.upgrade() else { return Err(NotReopened::Stopped) };
            data.reopen(chain).await
        })
    }

    fn found(&self, cluster: ClusterId, founds: bool) -> BoxFuture<Result<Vec<NodeInfo>, NotFounded>> {
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
    /// Reports this node's standing to other nodes.
    pub(super) fn standing_source(self: &Arc<Self>) -> Box<dyn Fn() -> BoxFuture<Option<Standing>> + Send + Sync> {
        let data = Arc::downgrade(self);
        Box::new(move || data.standing())
    }

    /// Stops when the cluster turns out to have been recovered without this node, unless its store may hold commits that are
    /// missing there.
    pub(super) async fn notice_recoveries(self: Arc<Self>, histories: Histories) {
        let noticed = async {
            let mut known = None;
            loop {
                let newer = histories.left_behind(known).await;
                let mine = histories.mine();
                if !self.has_parted(&histories, newer).await {
                    tracing::error!(?mine, %newer, "the cluster was recovered without this node, which stops");
                    return self.stop(Stopped::LeftBehind);
                }
                tracing::error!(?mine, %newer, "the histories have parted: this node waits for an operator");
                known = Some(newer);
            }
        };
        self.unless_stopped(noticed).await;
    }

    /// Whether this node's store may hold commits that the newer history lacks. From the first moment on the node serves nothing.
    async fn has_parted(&self, histories: &Histories, newer: History) -> bool {
        let (Some(_), Some(door), Some(access)) = (self.durable.get(), self.door.get(), self.recovery.get()) else {
            return false;
        };
        // Without room the node has stopped.
        if door.commands.send(ControlCommand::Parted { by: newer }).await.is_err() {
            return false;
        }
        loop {
            if let Some(parted) = branch::has_parted(self.id(), &self.survey(access).await) {
                return parted;
            }
            // An operator may have had this node go on meanwhile, in a newer history.
            if access.seat.histories().mine() != histories.mine() {
                return true;
            }
            sleep(self.lease()).await;
        }
    }

    /// What this node holds; `None` if it belongs to no cluster with a changeable configuration.
    /// A node that loads its directory doesn't know yet what it holds, and says nothing.
    async fn standing(&self) -> Option<Standing> {
        let at_start = match self.durable.get() {
            Some(durable) => durable.holds()?,
            None => &[],
        };
        let (access, state) = (self.recovery.get()?, self.state.get()?);
        let log = access.seat.log();
        let leads = match log.leads() {
            Some(term) => timeout(self.lease() / 2, log.confirm(term)).await.is_ok_and(|led| led.is_ok()),
            None => false,
        };
        let states = self.numbered_states().await;
        // Read the state last, after all slow steps: messages that came meanwhile are evidence too.
        let (acted, now) = (state.borrow().clone(), clock::now());
        let configs = access.configs(&acted.configs);
        let of_chain = |config: &ChainConfig| states.get(&config.chain);
        let standing = acted.standing(now, (self.as_founder(&configs), self.local.cluster()?), &configs, of_chain);
        let is_synced =
            |chain| self.durable.get().is_none_or(|durable| durable.control.look(|record| record.is_synced(chain)));
        // A store in which nothing has changed holds what it held at the start.
        let at_start = |config: &ChainConfig| {
            let held = at_start.iter().find(|held| held.chain == config.chain).copied();
            held.filter(|held| of_chain(config).is_none_or(|now| now.config.is_none() && now.last == held.last))
        };
        let chain = |chain: ChainStanding| match at_start(&chain.config) {
            Some(StoreHolding { whole, last, watermark, synced, .. }) => {
                ChainStanding { whole, last, watermark, synced, ..chain }
            }
            None => ChainStanding { synced: is_synced(chain.config.chain), ..chain },
        };
        let chains = standing.chains.into_iter().map(chain).collect();
        Some(Standing { leads, log: log.end(), voters: log.voter_sets(), chains, ..standing })
    }

    fn as_founder(&self, configs: &Configs) -> NodeInfo {
        let present = self.cluster.get().map(|cluster| self.info(cluster));
        let known = || configs.node(self.id()).cloned();
        let unknown = || NodeInfo { id: self.id(), name: self.name().to_owned(), addrs: Vec::new(), host: None };
        present.or_else(known).unwrap_or_else(unknown)
    }

    /// Continues alone, if the named cluster can't continue otherwise and no node that answers has a better history.
    async fn recover(&self, cluster: ClusterId, history: History) -> Result<Recovered, NotRecovered> {
        let (access, state) = self.recovery.get().zip(self.state.get()).ok_or(NotRecovered::Static)?;
        let _turn = access.turn().await;
        let begun = clock::now();
        self.plan(access, cluster, history, begun).await?;
        // Plan again after lease + drift: by then old leases have expired, and every live node has had time to answer.
        self.outlast_leases(begun).await;
        let plan = self.plan(access, cluster, history, begun).await?;
        let configs = access.configs(&state.borrow().configs);
        let next = plan.history.next(random::wide());
        let configs =
            configs.recovered(next, self.as_founder(&configs), plan.newest, plan.upto).branched(plan.branch());
        let applied = configs.applied();
        access.seat.recover(configs).await.map_err(|error| NotRecovered::Failed(error.to_string()))?;
        let mut state = state.clone();
        let serves = state.wait_for(|state| state.configs.applied() >= applied && state.lease > clock::now());
        match timeout(self.lease() * RECOVERY_LEASES, serves).await {
            Ok(Ok(_)) => Ok(Recovered { plan, history: next }),
            _ => Err(NotRecovered::Failed("it doesn't serve yet".to_owned())),
        }
    }

    /// Has the leader open a chain again from what is left, if this node is it.
    async fn reopen(&self, chain: ChainId) -> Result<Reopened, NotReopened> {
        let door = self.door.get().ok_or(NotReopened::Fixed)?;
        let (answer, result) = oneshot::channel();
        let command = ControlCommand::AcceptLoss { chain, answer };
        door.commands.send(command).await.map_err(|_| NotReopened::Stopped)?;
        result.await.map_err(|_| NotReopened::Stopped)?
    }

    /// Waits until every lease granted before `begun` has expired.
    pub(super) async fn outlast_leases(&self, begun: Timestamp) {
        let until = begun + self.timing().unwrap_or_default().lease_and_drift();
        sleep(until - clock::now()).await;
    }

    async fn plan(
        &self,
        access: &RecoveryAccess,
        cluster: ClusterId,
        history: History,
        begun: Timestamp,
    ) -> Result<Plan, NotRecovered> {
        let standings = self.survey(access).await;
        let plan = recovery::plan(cluster, &standings, clock::now() - begun)?;
        if plan.history != history {
            return Err(NotRecovered::OtherHistory { found: plan.history });
        }
        if plan.by.id != self.id() {
            return Err(NotRecovered::Elsewhere { by: plan.by.id });
        }
        Ok(plan)
    }

    /// The standings of this node and of all that answer, each as of the end of the survey. A silent node takes one
    /// lease.
    pub(super) async fn survey(&self, access: &RecoveryAccess) -> Vec<Standing> {
        let mut asked = JoinSet::new();
        for (id, addrs) in self.others(access) {
            let (calls, patience) = (access.calls.clone(), self.lease());
            asked.spawn(async move {
                match calls.ask(id, &addrs, &control::ControlCall::Survey, patience).await {
                    Ok(control::ControlAnswer::Surveyed(standing)) => Some(*standing),
                    Ok(_) => None,
                    Err(error) => {
                        tracing::info!(peer = %id, %error, "the survey got no answer");
                        None
                    }
                }
            });
        }
        let mut standings = Vec::new();
        while let Some(answer) = asked.join_next().await {
            standings.extend(answer.ok().flatten().map(|standing| (standing, clock::now())));
        }
        // This node's own standing last: it shows messages that came meanwhile.
        let mine = self.standing().await;
        let now = clock::now();
        standings.into_iter().map(|(standing, at)| standing.aged(now - at)).chain(mine).collect()
    }

    /// All other nodes known to the log or the membership, with their addresses. Incarnations named in the log are
    /// included: they may keep it.
    fn others(&self, access: &RecoveryAccess) -> BTreeMap<MemberId, Vec<SocketAddr>> {
        let configs = access.seat.configs();
        let acted = self.state.get().map(|state| state.borrow().configs.clone()).unwrap_or_default();
        let members = self.cluster.get().map(|cluster| cluster.members()).unwrap_or_default();
        let met = members.iter().map(|member| (member.id, member.addrs.clone()));
        let known = configs.nodes().chain(acted.nodes()).map(|node| (node.id, node.addrs.clone()));
        met.chain(known).filter(|(id, _)| id.node != self.id().node).collect()
    }
}
