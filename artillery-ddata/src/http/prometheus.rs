//! The metrics that `/metrics` shows, by family. `docs/metrics.md` describes them; a test compares both.

mod text_format;

pub use self::text_format::CONTENT_TYPE;
use self::text_format::Page;
use crate::{
    Place,
    metrics::{ChainMetrics, NodeMetrics},
    status::{ChainStatus, GossipState, LogStatus, NodeStatus},
};

const STATES: [GossipState; 4] = [GossipState::Alive, GossipState::Suspect, GossipState::Down, GossipState::Left];
const ROLES: [Place; 5] = [Place::Head, Place::Middle, Place::Tail, Place::Syncing, Place::Spare];

/// The metrics in Prometheus' text format, version 0.0.4, as `GET /metrics` returns them. `docs/metrics.md` describes each
/// metric. The content type is [`CONTENT_TYPE`].
pub fn prometheus(metrics: &NodeMetrics) -> String {
    let mut page = Page::default();
    node(&mut page, &metrics.status);
    operations(&mut page, metrics);
    reads(&mut page, metrics);
    chains(&mut page, &metrics.status.chains);
    room(&mut page, metrics);
    resyncs(&mut page, &metrics.status.chains);
    rereplications(&mut page, metrics);
    configuration(&mut page, metrics);
    connections(&mut page, metrics);
    traffic(&mut page, metrics);
    page.into_text()
}

fn node(page: &mut Page, status: &NodeStatus) {
    let cluster_id = status.cluster_id.map_or_else(String::new, |id| id.to_string());
    let labels = [("node", status.node.as_str()), ("cluster", &status.cluster), ("cluster_id", &cluster_id)];
    page.gauge("artillery_node_info", "Names of the node and its cluster; always 1.").sample(&labels, 1);
    page.gauge("artillery_build_info", "The running release; always 1.")
        .sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.gauge("artillery_ready", "Whether the node may serve, as /ready reports.").flag(&[], status.ready);
    let mut role = page.gauge("artillery_node_role", "Role of the node in the first chain that it serves.");
    for place in ROLES {
        role.flag(&[("role", &place.to_string())], place == status.place);
    }
}

fn operations(page: &mut Page, metrics: &NodeMetrics) {
    let mut count = page.counter(
        "artillery_operations_total",
        "Operations that callers requested of this node, except local clean reads.",
    );
    for of in &metrics.operations {
        let kind = of.kind.to_string();
        let outcomes = [("done", of.done), ("conflict", of.conflict), ("refused", of.refused), ("unknown", of.unknown)];
        for (outcome, times) in outcomes {
            count.sample(&[("kind", &kind), ("outcome", outcome)], times);
        }
    }
    let mut took = page.histogram("artillery_operation_duration_seconds", "Duration of these operations at this node.");
    for of in &metrics.operations {
        took.ranges(&[("kind", &of.kind.to_string())], &of.latency);
    }
}

fn reads(page: &mut Page, metrics: &NodeMetrics) {
    let reads = &metrics.status.reads;
    page.counter("artillery_reads_total", "Reads that this node served, by path.")
        .sample(&[("way", "local_clean")], reads.local_clean)
        .sample(&[("way", "dirty")], reads.dirty)
        .sample(&[("way", "through_chain")], reads.through_chain);
    page.counter("artillery_version_query_total", "Version queries that this node sent.")
        .sample(&[], reads.version_query);
    page.counter("artillery_shared_query_total", "Reads that were answered by another read's version query.")
        .sample(&[], reads.shared_query);
    page.histogram("artillery_version_query_readers", "How many reads each answered version query served.")
        .ranges(&[], &metrics.readers_per_query);
    page.counter("artillery_forwarded_total", "Requests forwarded to another node.").sample(&[], reads.forwarded);
}

fn per_chain(page: &mut Page, chains: &[ChainStatus], name: &str, help: &str, value: impl Fn(&ChainStatus) -> f64) {
    let mut family = page.gauge(name, help);
    for chain in chains {
        let value = value(chain);
        let number = chain.chain.to_string();
        let labels = [("chain", number.as_str())];
        match value.is_finite() {
            true => family.sample(&labels, value),
            false => family.sample(&labels, "+Inf"),
        };
    }
}

fn chains(page: &mut Page, chains: &[ChainStatus]) {
    let mut show = |name: &str, help: &str, value: fn(&ChainStatus) -> f64| per_chain(page, chains, name, help, value);
    show("artillery_chain_epoch", "Number of the configuration.", |chain| chain.epoch as f64);
    show("artillery_chain_open", "Whether the epoch is open here.", |chain| f64::from(u8::from(chain.open)));
    show("artillery_chain_halted", "1: this member stopped serving permanently; /status has the reason.", |chain| {
        f64::from(u8::from(chain.halted.is_some()))
    });
    show("artillery_chain_copies", "Live members that hold each committed update, by gossip.", |chain| {
        f64::from(chain.copies)
    });
    show("artillery_chain_last_sequence", "Sequence of the newest version here.", |chain| chain.last.sequence.0 as f64);
    show("artillery_chain_watermark_sequence", "The commit watermark here.", |chain| chain.watermark as f64);
    show("artillery_chain_watermark_lag_updates", "Updates here that are not known to be committed.", |chain| {
        chain.dirty_updates as f64
    });
    show("artillery_chain_lease_seconds", "Remaining time of the lease; +Inf: it never ends.", |chain| {
        chain.lease_ms.map_or(f64::INFINITY, |left| left as f64 / 1e3)
    });
    show(
        "artillery_chain_full",
        "1: the memory or disk of this member is full, and its chain accepts only deletes.",
        |chain| f64::from(chain.full.is_some()),
    );
    show(
        "artillery_chain_parked_reads",
        "Reads that wait for another member's answer or for this member's watermark.",
        |chain| chain.parked_reads as f64,
    );
    show("artillery_chain_waiting_writes", "Writes that wait for their commit.", |chain| chain.waiting_writes as f64);
    show("artillery_chain_window_bytes", "Updates above the watermark.", |chain| chain.in_flight_bytes as f64);
    show("artillery_chain_backlog_bytes", "Committed updates kept for resends.", |chain| chain.backlog_bytes as f64);
}

fn room(page: &mut Page, metrics: &NodeMetrics) {
    page.gauge("artillery_memory_bytes", "Bytes of stored keys and values.").sample(&[], metrics.status.memory_bytes);
    page.gauge("artillery_memory_limit_bytes", "Limit at which only deletes are accepted; +Inf: unlimited.")
        .sample(&[], metrics.status.max_memory_bytes.map_or(f64::INFINITY, |most| most as f64));
    page.gauge("artillery_window_limit_bytes", "Maximum bytes of a chain's window before writers wait.")
        .sample(&[], metrics.window_limit_bytes);
    page.gauge("artillery_backlog_limit_bytes", "Maximum bytes that a chain keeps for resends.")
        .sample(&[], metrics.backlog_limit_bytes);
    let mut queue = page
        .gauge("artillery_queue_bytes", "Used capacity in bytes of requests and answers that wait or are in flight.");
    for of in &metrics.queues {
        queue.sample(&[("queue", of.queue)], of.bytes);
    }
    let mut kept = |name: &str, help: &str, value: fn(&ChainMetrics) -> u64| {
        let mut family = page.gauge(name, help);
        for of in &metrics.chains {
            family.sample(&[("chain", &of.chain.to_string())], value(of));
        }
    };
    kept("artillery_chain_sessions", "Stored client sessions.", |of| of.sessions);
    kept("artillery_chain_sessions_bytes", "Bytes of these sessions and the records of their requests.", |of| {
        of.sessions_bytes
    });
    kept("artillery_chain_snapshots", "Snapshots kept for scans.", |of| of.snapshots);
    kept("artillery_chain_watchers", "Watch requests that wait for changes.", |of| of.watchers);
}

fn resyncs(page: &mut Page, chains: &[ChainStatus]) {
    let mut resync = page.counter("artillery_resync_total", "How often this node caught up with a chain.");
    for chain in chains {
        let number = chain.chain.to_string();
        resync.sample(&[("chain", &number), ("kind", "full")], chain.resyncs_full);
        resync.sample(&[("chain", &number), ("kind", "partial")], chain.resyncs_partial);
    }
    let mut records = page.gauge("artillery_snapshot_records", "Records of the snapshot in progress; 0: none.");
    for chain in chains {
        let number = chain.chain.to_string();
        for (way, count) in [("received", chain.receiving_records), ("sent", chain.sending_records)] {
            records.sample(&[("chain", &number), ("way", way)], count.unwrap_or_default());
        }
    }
}

fn rereplications(page: &mut Page, metrics: &NodeMetrics) {
    per_chain(
        page,
        &metrics.status.chains,
        "artillery_chain_unreplicated_records",
        "Records that the last start found on disk and whose last update isn't known to be committed.",
        |chain| chain.unreplicated_records as f64,
    );
    let mut time = page.gauge("artillery_chain_rereplication_seconds", "Time until the record that was settled last.");
    for of in &metrics.chains {
        time.sample(&[("chain", &of.chain.to_string())], of.rereplication_time.as_secs_f64());
    }
    let mut settled = page.counter("artillery_rereplicated_records_total", "Unreplicated records that were settled.");
    for of in &metrics.rereplications {
        settled.sample(&[("trigger", of.trigger), ("result", "done")], of.done);
        settled.sample(&[("trigger", of.trigger), ("result", "superseded")], of.superseded);
    }
    let mut took = page.histogram("artillery_rereplication_duration_seconds", "Time taken to settle a record.");
    for of in &metrics.rereplications {
        took.ranges(&[("trigger", of.trigger)], &of.latency);
    }
}

fn configuration(page: &mut Page, metrics: &NodeMetrics) {
    let mut changes = page.counter(
        "artillery_configuration_changes_total",
        "Changes of chain configurations that this node decided as leader, by reason.",
    );
    for &(reason, times) in &metrics.changes {
        changes.sample(&[("reason", reason)], times);
    }
    let mut show = |name: &str, help: &str, value: fn(&LogStatus, &str) -> u64| {
        let mut family = page.gauge(name, help);
        if let Some(log) = &metrics.status.log {
            family.sample(&[], value(log, &metrics.status.node));
        }
    };
    show("artillery_log_applied_entries", "Index of the last applied entry of the configuration log.", |log, _| {
        log.applied
    });
    show("artillery_log_voters", "Voters of the configuration log.", |log, _| log.voters.len() as u64);
    show("artillery_log_leads", "Whether this node is the leader of the configuration log.", |log, node| {
        u64::from(log.leader.as_deref() == Some(node))
    });
    show(
        "artillery_log_settled",
        "Whether this node fulfils its role, and the leader last reported that any one other node may be stopped.",
        |log, _| u64::from(log.settled),
    );
    show(
        "artillery_log_orphaned",
        "Whether no incarnation of a node that served answers this one, which never served.",
        |log, _| u64::from(log.orphaned),
    );
    show(
        "artillery_log_yields",
        "Whether another cluster replaces this node's, so that it serves nothing.",
        |log, _| log.successor.as_ref().map_or(0, |successor| u64::from(successor.yields)),
    );
    show("artillery_log_recoveries", "Recoveries of the cluster after a loss.", |log, _| {
        log.history.map_or(0, |history| history.generation)
    });
}

fn connections(page: &mut Page, metrics: &NodeMetrics) {
    let mut members = page.gauge("artillery_members", "Other nodes by their state in the membership.");
    for state in STATES {
        let known = &metrics.status.members;
        members.sample(&[("state", state.as_str())], known.iter().filter(|member| member.state == state).count());
    }
    let mut refused = page.counter("artillery_connections_refused_total", "Connections refused here, by reason.");
    for &(reason, times) in &metrics.refused {
        refused.sample(&[("reason", reason)], times);
    }
}

fn traffic(page: &mut Page, metrics: &NodeMetrics) {
    let of = &metrics.traffic;
    let all = [
        ("artillery_connections_accepted_total", "Inbound connections that were accepted.", of.accepted),
        ("artillery_connections_dialled_total", "Connections that this node dialled.", of.dialled),
        ("artillery_dial_failures_total", "Dials of this node that failed.", of.dial_failures),
        ("artillery_frames_sent_total", "Frames handed to QUIC.", of.frames_sent),
        ("artillery_frames_sent_bytes_total", "Bytes of these frames.", of.frame_bytes_sent),
        ("artillery_frame_writes_total", "Writes by which these frames were handed over.", of.writes),
        ("artillery_frames_received_total", "Frames read from streams.", of.frames_received),
        ("artillery_frames_received_bytes_total", "Bytes of these frames.", of.frame_bytes_received),
        ("artillery_datagrams_sent_total", "Datagrams handed to QUIC.", of.datagrams_sent),
        ("artillery_datagrams_received_total", "Datagrams received.", of.datagrams_received),
        ("artillery_datagrams_dropped_total", "Datagrams that didn't fit or had no connection.", of.datagrams_dropped),
        ("artillery_udp_sends_total", "System calls that sent UDP packets.", of.udp_sends),
        ("artillery_udp_sent_bytes_total", "Bytes in these packets.", of.udp_bytes_sent),
        ("artillery_udp_receives_total", "System calls that received UDP packets.", of.udp_receives),
        ("artillery_udp_received_bytes_total", "Bytes in these packets.", of.udp_bytes_received),
    ];
    for (name, help, value) in all {
        page.counter(name, help).sample(&[], value);
    }
}
