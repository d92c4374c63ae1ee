//! Operators' orders to a node whose cluster can't continue. After the loss of the configuration log's quorum, it
//! continues alone (docs/DESIGN.md §5.12). After the loss of every incarnation that ever served, it creates or joins
//! another cluster (§5.13).

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use artillery_core::internal::{MAX_LINEAGE, random};
use artillery_proto::node::NodeInput;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{data::Data, durable::NodeDir, stage::Following};
use crate::{
    ChainConfig, ClusterId, MemberId, Timestamp,
    control::{
        ConfigLog, Configs, History, NodeInfo, branch,
        embedded::Histories,
        message::StoreHolding,
        recovery::{self, ChainStanding, NotRecovered, Plan, Recovered, Standing},
        succession::{self, NotReplaced, Replacement},
    },
    driver::{control::ControlCommand, phase::Stopped},
    message::control,
};

/// How long a node that continues alone may take to get a lease, in leases.
const RECOVERY_LEASES: u32 = 5;

/// The time for the answer to reach the operator before the node stops.
const ANSWER_GRACE: Duration = Duration::from_millis(300);

impl Data {
    /// Stops the node when the cluster was recovered without it, unless commits in its store may be missing in the new
    /// history.
    pub(super) async fn notice_recoveries(self: Arc<Self>, following: Arc<Following>, histories: Histories) {
        let noticed = async {
            let mut known = None;
            loop {
                let newer = histories.left_behind(known).await;
                let mine = histories.mine();
                if !self.has_parted(&following, &histories, newer).await {
                    tracing::error!(?mine, %newer, "the cluster was recovered without this node, which stops");
                    return self.stop(Stopped::LeftBehind);
                }
                tracing::error!(?mine, %newer, "the histories have diverged: this node waits for an operator");
                known = Some(newer);
            }
        };
        self.unless_stopped(noticed).await;
    }

    /// Whether this node's store may hold commits that are missing from the newer history. A node with a directory
    /// serves nothing once this is called.
    async fn has_parted(&self, following: &Following, histories: &Histories, newer: History) -> bool {
        if self.dir.is_none() {
            return false;
        }
        // A closed queue means that the control task has ended.
        if following.control.commands.send(ControlCommand::Input(NodeInput::Parted { by: newer })).await.is_err() {
            return false;
        }
        loop {
            if let Some(parted) = branch::has_parted(self.id(), &self.survey(following).await) {
                return parted;
            }
            // An operator may have recovered this node since, in a newer history.
            if following.control.log.histories().mine() != histories.mine() {
                return true;
            }
            sleep(self.lease()).await;
        }
    }

    /// The chains, the log and the cluster of this node. `None` while it loads its directory, and before its cluster is
    /// known.
    pub(super) async fn standing(&self, following: &Following) -> Option<Standing> {
        let at_start = self.dir.as_ref().map_or(Some(Vec::new()), NodeDir::holds)?;
        let log = following.control.log.log();
        let leads = match log.leads() {
            Some(term) => timeout(self.lease() / 2, log.confirm(term)).await.is_ok_and(|led| led.is_ok()),
            None => false,
        };
        let states = self.numbered_states().await;
        // Read the state last, after all slow steps: messages received since are evidence too.
        let (acted, now) = (following.state.borrow().clone(), self.local.clock.now());
        let configs = following.configs(&acted.configs);
        let of_chain = |config: &ChainConfig| states.get(&config.chain);
        let standing = acted.standing(now, (self.as_founder(&configs), self.local.cluster()?), &configs, of_chain);
        let is_synced =
            |chain| self.dir.as_ref().is_none_or(|dir| dir.place.control.look(|record| record.is_synced(chain)));
        // An unchanged store still has its position at the start.
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
        let present = self.cluster().map(|cluster| self.info(&cluster));
        let known = || configs.node(self.id()).cloned();
        let unknown = || NodeInfo { id: self.id(), name: self.name().to_owned(), addrs: Vec::new(), host: None };
        present.or_else(known).unwrap_or_else(unknown)
    }

    /// Continues alone, if the named cluster can't continue otherwise and no answering node has a better history.
    pub(super) async fn recover(&self, cluster: ClusterId, history: History) -> Result<Recovered, NotRecovered> {
        let following = &*self.stage.following().ok_or(NotRecovered::Static)?;
        let _turn = following.turn.lock().await;
        let begun = self.local.clock.now();
        self.plan(following, cluster, history, begun).await?;
        // Plan again after lease + drift: by then old leases have expired, and every live node has had time to answer.
        self.outlast_leases(begun).await;
        let plan = self.plan(following, cluster, history, begun).await?;
        let configs = following.configs(&following.state.borrow().configs);
        let next = plan.history.next(random::wide());
        let configs =
            configs.recovered(next, self.as_founder(&configs), plan.newest, plan.upto).branched(plan.branch());
        let applied = configs.applied();
        following.control.log.recover(configs).await.map_err(|error| NotRecovered::Failed(error.to_string()))?;
        let mut state = following.state.clone();
        let serves = state.wait_for(|state| state.configs.applied() >= applied && state.lease > self.local.clock.now());
        match timeout(self.lease() * RECOVERY_LEASES, serves).await {
            Ok(Ok(_)) => Ok(Recovered { plan, history: next }),
            _ => Err(NotRecovered::Failed("it doesn't serve yet".to_owned())),
        }
    }

    /// Waits until every lease granted before `begun` has expired.
    async fn outlast_leases(&self, begun: Timestamp) {
        let until = begun + self.timing().unwrap_or_default().lease_and_drift();
        sleep(until - self.local.clock.now()).await;
    }

    async fn plan(
        &self,
        following: &Following,
        cluster: ClusterId,
        history: History,
        begun: Timestamp,
    ) -> Result<Plan, NotRecovered> {
        let standings = self.survey(following).await;
        let plan = recovery::plan(cluster, &standings, self.local.clock.now() - begun)?;
        if plan.history != history {
            return Err(NotRecovered::OtherHistory { found: plan.history });
        }
        if plan.by.id != self.id() {
            return Err(NotRecovered::Elsewhere { by: plan.by.id });
        }
        Ok(plan)
    }

    /// The standings of this node and of all answering nodes, as of the end of the survey. A silent node delays the
    /// survey by up to one lease.
    async fn survey(&self, following: &Following) -> Vec<Standing> {
        let mut queries = JoinSet::new();
        for (id, addrs) in self.others(following) {
            let (calls, limit) = (following.calls.clone(), self.lease());
            queries.spawn(async move {
                match calls.ask(id, &addrs, &control::ControlCall::Survey, limit).await {
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
        while let Some(answer) = queries.join_next().await {
            standings.extend(answer.ok().flatten().map(|standing| (standing, self.local.clock.now())));
        }
        // This node's own standing last: it shows messages received since.
        let mine = self.standing(following).await;
        let now = self.local.clock.now();
        standings.into_iter().map(|(standing, at)| standing.aged(now - at)).chain(mine).collect()
    }

    /// All other nodes known to the log or the membership, with their addresses; of each node, all incarnations that
    /// the log names.
    fn others(&self, following: &Following) -> BTreeMap<MemberId, Vec<SocketAddr>> {
        let configs = following.control.log.configs();
        let acted = following.state.borrow().configs.clone();
        let members = following.formed.started.cluster.members();
        let met = members.iter().map(|member| (member.id, member.addrs.clone()));
        let known = configs.nodes().chain(acted.nodes()).map(|node| (node.id, node.addrs.clone()));
        met.chain(known).filter(|(id, _)| id.node != self.id().node).collect()
    }

    /// Decides whether this node may stop, to create or join the cluster that succeeds the named one. Refused if an
    /// incarnation that ever served is alive. Returns the nodes of the named cluster that answered, this one first.
    pub(super) async fn replace(&self, cluster: ClusterId, by: Replacement) -> Result<Vec<NodeInfo>, NotReplaced> {
        let following = &*self.stage.following().ok_or(NotReplaced::Static)?;
        let _turn = following.turn.lock().await;
        let begun = self.local.clock.now();
        self.may_give_up(following, cluster, by, begun).await?;
        // Afterwards, every node that still receives messages of a member has reported it, and all old leases have
        // expired.
        self.outlast_leases(begun).await;
        let answered = self.may_give_up(following, cluster, by, begun).await?;
        let founds = by == Replacement::Create;
        tracing::warn!(%cluster, founds, "an operator accepted losses: this node gives its cluster up for another one");
        Ok(answered)
    }

    /// Stops the node in favour of another cluster, after a pause in which the answer reaches the operator's client.
    pub(super) fn give_up(self: &Arc<Self>, by: Replacement) {
        let data = self.clone();
        tokio::spawn(async move {
            sleep(ANSWER_GRACE).await;
            data.stop(match by {
                Replacement::Create => Stopped::Retired,
                Replacement::Join => Stopped::Superseded,
            });
        });
    }

    async fn may_give_up(
        &self,
        following: &Following,
        cluster: ClusterId,
        replacement: Replacement,
        begun: Timestamp,
    ) -> Result<Vec<NodeInfo>, NotReplaced> {
        let standings = self.survey(following).await;
        let by = succession::plan(cluster, &standings, self.local.clock.now() - begun, self.lease(), replacement)?;
        // A node that is about to end creates nothing, and must not direct other nodes to a cluster that it won't join.
        if self.has_ended() || self.is_leaving.load(Ordering::Relaxed) {
            return Err(NotReplaced::Stopped);
        }
        if replacement == Replacement::Create && by.id != self.id() {
            return Err(NotReplaced::Elsewhere { by: by.into() });
        }
        let mut answered: Vec<_> =
            standings.into_iter().filter(|standing| standing.cluster == cluster).map(|standing| standing.me).collect();
        answered.sort_by_key(|founder| founder.id != self.id());
        Ok(answered)
    }

    /// The lineage that a successor of this node's cluster must name, oldest first; empty without a cluster.
    pub(crate) fn lineage(&self) -> Vec<ClusterId> {
        let Some(formed) = self.stage.formed() else { return Vec::new() };
        let founding = &formed.founding;
        let line = [self.left_clusters(founding), founding.lineage()].concat();
        line[line.len().saturating_sub(MAX_LINEAGE)..].to_vec()
    }
}
