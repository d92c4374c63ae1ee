//! Assembles the status and metrics of a node.

use artillery_core::{Cluster, Member, MemberId, Timestamp, transport::Endpoint};
use artillery_proto::node::Successor;

use super::{
    data::{Data, is_alive},
    durable::NodeDir,
};
use crate::{
    ChainConfig, ClusterId, NodeId, Routing,
    control::{ConfigLog, History},
    metrics::{ChainMetrics, Histogram, NodeMetrics, QueueMetrics, RereplicationMetrics},
    replica::{READERS_PER_QUERY, REREPLICATION_MILLIS, Rereplication, SettledRecords, Status},
    status::{
        ChainStatus, Exhausted, LogStatus, MemberStatus, NodeStatus, ReadsStatus, SuccessorStatus, TrafficStatus,
    },
};

impl Data {
    /// The node's status. Its chains answer in their next turn.
    pub(crate) async fn status(&self) -> NodeStatus {
        let reasons = self.waiting_for().await;
        NodeStatus {
            waiting_for: reasons.iter().map(ToString::to_string).collect(),
            ..self.status_of(&self.chain_states().await)
        }
    }

    pub(crate) async fn metrics(&self) -> NodeMetrics {
        let states = self.chain_states().await;
        let cluster = self.cluster();
        let endpoint = cluster.as_ref().map(Cluster::endpoint);
        NodeMetrics {
            status: self.status_of(&states),
            operations: self.local.tally.operations(),
            readers_per_query: readers_per_query(&states),
            changes: self.local.tally.changes(),
            refused: endpoint.map(|endpoint| endpoint.refused().collect()).unwrap_or_default(),
            queues: self.queues(),
            chains: states.iter().filter_map(kept).collect(),
            rereplications: vec![
                rereplications("start", &states, |chain| &chain.by_start),
                rereplications("read", &states, |chain| &chain.by_read),
            ],
            traffic: endpoint.map(Endpoint::counters).unwrap_or_default(),
            window_limit_bytes: self.config.limits.window_bytes as u64,
            backlog_limit_bytes: self.config.limits.backlog_bytes as u64,
        }
    }

    fn queues(&self) -> Vec<QueueMetrics> {
        let (reads, writes) = self.local.queued_bytes();
        let started = self.stage.started();
        let of_chains = [("chain_reads", reads), ("chain_writes", writes)];
        let of_connections = started.iter().flat_map(|started| started.server.taken_bytes());
        let all = of_chains.into_iter().chain(of_connections);
        all.map(|(queue, bytes)| QueueMetrics { queue, bytes: bytes as u64 }).collect()
    }

    fn status_of(&self, states: &[Status]) -> NodeStatus {
        let routing = self.routing();
        let cluster = self.cluster();
        let cluster = cluster.as_ref();
        let counters = cluster.map(|cluster| cluster.endpoint().counters()).unwrap_or_default();
        NodeStatus {
            node: self.name().to_owned(),
            id: self.id(),
            addr: cluster.map(|cluster| cluster.endpoint().advertised_addr()),
            cluster: self.config.cluster.clone(),
            cluster_id: routing.as_ref().map(|routing| routing.cluster),
            succeeds: self.succeeds(),
            place: self.place(),
            ready: self.may_serve(),
            members: cluster.map(|cluster| cluster.members().iter().map(member).collect()).unwrap_or_default(),
            chains: routing
                .iter()
                .flat_map(|routing| states.iter().filter_map(|state| self.chain(routing, state)))
                .collect(),
            reads: self.reads(states),
            traffic: TrafficStatus {
                frames_sent: counters.frames_sent,
                frame_bytes_sent: counters.frame_bytes_sent,
                frames_received: counters.frames_received,
                refused: counters.refused,
            },
            memory_bytes: self.store.bytes(),
            max_memory_bytes: self.config.limits.max_memory_bytes,
            log: self.log(),
            loading: self.dir.as_ref().and_then(NodeDir::loading).map(Into::into),
            waiting_for: Vec::new(),
        }
    }

    fn reads(&self, states: &[Status]) -> ReadsStatus {
        let sum = |of: fn(&Status) -> u64| states.iter().map(of).sum();
        ReadsStatus {
            local_clean: self.local.clean_reads(),
            dirty: sum(|state| state.reads.dirty),
            version_query: sum(|state| state.reads.version_queries),
            shared_query: sum(|state| state.reads.shared_queries),
            forwarded: self.local.forwarded(),
            through_chain: sum(|state| state.reads.through_chain),
        }
    }

    fn chain(&self, routing: &Routing, state: &Status) -> Option<ChainStatus> {
        let config = state.config.as_ref()?;
        let name = |node: NodeId| routing.nodes.get(&node).map_or_else(|| node.to_string(), |node| node.name.clone());
        Some(ChainStatus {
            chain: config.chain.0,
            epoch: config.epoch.0,
            mode: config.mode.into(),
            members: config.serving().map(|member| name(member.node)).collect(),
            place: config.place(self.id()),
            open: state.open,
            last: state.last,
            watermark: state.watermark.0,
            dirty_updates: state.last.sequence.0.saturating_sub(state.watermark.0),
            in_flight_bytes: state.in_flight as u64,
            backlog_bytes: state.backlog as u64,
            lease_ms: self.state().map(|state| self.left(state.lease)),
            copies: self.living_copies(config),
            parked_reads: state.parked_reads as u64,
            waiting_writes: state.waiting_writes as u64,
            unreplicated_records: state.rereplication.left,
            halted: state.halted.as_ref().map(ToString::to_string),
            syncing: config.syncing().map(|member| name(member.node)),
            receiving_records: state.resync.receiving.map(|progress| progress.records),
            sending_records: state.resync.sending.map(|progress| progress.records),
            resyncs_full: state.resync.full,
            resyncs_partial: state.resync.partial,
            keys: state.size.keys,
            expiring: state.size.expiring,
            store_bytes: state.size.bytes,
            full: Exhausted::of(state.full),
        })
    }

    /// The milliseconds until then.
    fn left(&self, until: Timestamp) -> u64 {
        u64::try_from((until - self.local.clock.now()).as_millis()).unwrap_or(u64::MAX)
    }

    /// The number of serving members whose stores the membership considers alive. This node's own store counts as
    /// alive.
    fn living_copies(&self, config: &ChainConfig) -> u32 {
        let known = self.cluster().as_ref().map(Cluster::members).unwrap_or_default();
        let lives = |id: MemberId| {
            self.id().shares_store(id)
                || known.iter().any(|member| member.id.shares_store(id) && is_alive(member.state))
        };
        config.serving().filter(|&id| lives(id)).count() as u32
    }

    fn log(&self) -> Option<LogStatus> {
        let following = self.stage.following()?;
        let (state, log) = (following.state.borrow().clone(), &following.control.log);
        let name = |id: MemberId| state.configs.node(id).map_or_else(|| id.to_string(), |node| node.name.clone());
        Some(LogStatus {
            applied: state.configs.applied().0,
            history: Some(state.configs.history()),
            leader: state.leader.map(name),
            voters: log.voters().into_iter().map(name).collect(),
            lease_ms: self.left(state.lease),
            settled: state.unready.is_none(),
            unready: state.unready.map(|why| self.explained(why)),
            orphaned: state.orphaned,
            another_cluster: self.others.borrow().unready.map(|met| met.to_string()),
            parted: self.parted(state.parted),
            successor: state.successor.map(|Successor { by, yields }| SuccessorStatus { cluster_id: by, yields }),
        })
    }

    /// The history from which this node's own history has diverged.
    fn parted(&self, newer: Option<History>) -> Option<History> {
        newer.or_else(|| self.stage.following()?.control.log.histories().parted())
    }

    fn succeeds(&self) -> Vec<ClusterId> {
        let formed = self.stage.formed();
        formed.iter().flat_map(|formed| &formed.founding.succeeds).copied().collect()
    }
}

fn kept(state: &Status) -> Option<ChainMetrics> {
    Some(ChainMetrics {
        chain: state.config.as_ref()?.chain.0,
        sessions: state.sessions.count as u64,
        sessions_bytes: state.sessions.bytes as u64,
        snapshots: state.snapshots as u64,
        watchers: state.watchers as u64,
        rereplication_time: state.rereplication.time,
    })
}

fn rereplications(
    trigger: &'static str,
    states: &[Status],
    of: fn(&Rereplication) -> &SettledRecords,
) -> RereplicationMetrics {
    let of = || states.iter().map(|state| of(&state.rereplication));
    let counts = (0..=REREPLICATION_MILLIS.len()).map(|at| of().map(|settled| settled.durations[at]).sum());
    RereplicationMetrics {
        trigger,
        done: of().map(|settled| settled.done).sum(),
        superseded: of().map(|settled| settled.superseded).sum(),
        latency: Histogram {
            bounds: REREPLICATION_MILLIS.iter().map(|&bound| bound as f64 / 1e3).collect(),
            counts: counts.collect(),
            sum: of().map(|settled| settled.total.as_secs_f64()).sum(),
        },
    }
}

fn readers_per_query(states: &[Status]) -> Histogram {
    let sum = |at: usize| states.iter().map(|state| state.reads.readers[at]).sum();
    let counts: Vec<u64> = (0..=READERS_PER_QUERY.len()).map(sum).collect();
    let others: u64 = states.iter().map(|state| state.reads.shared_queries).sum();
    Histogram {
        bounds: READERS_PER_QUERY.iter().map(|&bound| bound as f64).collect(),
        sum: (others + counts.iter().sum::<u64>()) as f64,
        counts,
    }
}

fn member(member: &Member) -> MemberStatus {
    MemberStatus { node: member.name.clone(), id: member.id, addr: member.addr, state: member.state.into() }
}
