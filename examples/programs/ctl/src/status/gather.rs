//! Queries every known node, and combines their reports.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use artillery_ddata::{
    ChainConfig, Client, MemberId, NodeId, Routing,
    admin::Standing,
    status::{ChainStatus, GossipState, NodeStatus},
};
use artillery_programs::exit::Failure;
use serde_json::{Value, json};

use super::{histories, verdict::Verdict};
use crate::recover::SURVEY_TIMEOUT;

/// The status of a node, or the reason why it is missing.
pub(super) struct NodeReport {
    pub(super) name: String,
    pub(super) addr: String,
    pub(super) status: Result<NodeStatus, String>,
}

pub(super) struct ClusterReport {
    pub(super) routing: Arc<Routing>,
    pub(super) nodes: BTreeMap<NodeId, NodeReport>,
    /// Reports of nodes of any history; empty if the caller didn't request them.
    pub(super) standings: Vec<Standing>,
}

/// A member as some node knows it.
pub(super) struct KnownMember<'a> {
    pub(super) node: &'a str,
    pub(super) id: MemberId,
    /// `None`: it doesn't listen yet.
    pub(super) addr: Option<SocketAddr>,
    pub(super) state: &'a GossipState,
}

/// A place in a chain, with the view of the member that holds it.
pub(super) struct ChainSeat<'a> {
    pub(super) id: MemberId,
    pub(super) name: String,
    pub(super) role: String,
    pub(super) view: Result<&'a ChainStatus, &'a str>,
    /// How many updates it is behind the head, where both are known.
    pub(super) lag: Option<u64>,
}

pub(super) async fn gather(client: &Client, timeout: Duration) -> Result<ClusterReport, Failure> {
    let routing = client.refresh(timeout).await?;
    // All nodes are queried at once, so that nodes that don't answer cost one timeout altogether.
    let asked: Vec<_> = routing
        .nodes
        .iter()
        .map(|(&id, address)| {
            let (client, address) = (client.clone(), address.clone());
            tokio::spawn(async move {
                let status = client.node_status(id, timeout).await.map_err(|error| error.to_string());
                let addr = address.addrs.first().map(ToString::to_string).unwrap_or_default();
                (id, NodeReport { name: address.name, addr, status })
            })
        })
        .collect();
    let mut nodes = BTreeMap::new();
    for task in asked {
        let (id, told) = task.await.map_err(Failure::failed)?;
        nodes.insert(id, told);
    }
    Ok(ClusterReport { routing, nodes, standings: Vec::new() })
}

/// Like [`gather`], and also queries nodes of other histories of the cluster.
pub(super) async fn gather_all(client: &Client, timeout: Duration) -> Result<ClusterReport, Failure> {
    let patience = timeout.min(SURVEY_TIMEOUT);
    let (whole, survey) = tokio::join!(gather(client, timeout), client.survey(patience));
    let (whole, mut standings) = (whole?, survey.standings);
    // The configurations of one history don't contain the current addresses of another history's nodes.
    let is_new = |member: &KnownMember<'_>| standings.iter().all(|standing| standing.me.id != member.id);
    let is_met = |member: &KnownMember<'_>| *member.state == GossipState::Alive && is_new(member);
    let met: Vec<_> = whole.members().into_iter().filter(is_met).collect();
    let addrs = met.iter().filter_map(|member| member.addr);
    standings.extend(client.survey_at(addrs, patience).await);
    Ok(ClusterReport { standings, ..whole })
}

impl ClusterReport {
    /// The places of a chain, head first.
    pub(super) fn seats(&self, chain: &ChainConfig) -> Vec<ChainSeat<'_>> {
        let view = |id: NodeId| match self.nodes.get(&id).map(|told| &told.status) {
            Some(Ok(status)) => {
                status.chains.iter().find(|view| view.chain == chain.chain.0).ok_or("it doesn't know the chain")
            }
            Some(Err(why)) => Err(why.as_str()),
            None => Err("its address isn't known"),
        };
        let last = |view: &ChainStatus| view.last.sequence.0;
        let head = chain.head().and_then(|head| view(head.node).ok()).map(last);
        let seat = |id: MemberId| {
            let view = view(id.node);
            let behind = |last: u64| Some(head?.saturating_sub(last));
            let lag = view.ok().map(last).and_then(behind);
            let name = self.nodes.get(&id.node).map_or_else(|| id.node.to_string(), |told| told.name.clone());
            ChainSeat { id, name, role: chain.place(id).to_string(), view, lag }
        };
        chain.members.iter().map(|member| seat(member.id)).collect()
    }

    /// The number of live copies of a chain: the highest that an answering member reports, since a firewall may hide
    /// members from here.
    pub(super) fn copies(&self, chain: &ChainConfig) -> u32 {
        let views = self.seats(chain).into_iter().filter_map(|seat| seat.view.ok());
        views.map(|view| view.copies).max().unwrap_or_default()
    }

    /// All members known to any node, and the nodes that answered, by name. Where views differ, a node's view of itself
    /// takes precedence, then the first view.
    pub(super) fn members(&self) -> Vec<KnownMember<'_>> {
        let told = || self.nodes.values().filter_map(|told| told.status.as_ref().ok());
        let selves =
            told().map(|of| KnownMember { node: &of.node, id: of.id, addr: of.addr, state: &GossipState::Alive });
        let others = told().flat_map(|of| &of.members);
        let others = others.map(|of| KnownMember { node: &of.node, id: of.id, addr: Some(of.addr), state: &of.state });
        let mut members = BTreeMap::new();
        for known in selves.chain(others) {
            members.entry((known.node, known.id)).or_insert(known);
        }
        members.into_values().collect()
    }

    pub(super) fn role(&self, name: &str) -> String {
        let seats = self.routing.chains.iter().flat_map(|chain| self.seats(chain));
        seats.into_iter().find(|seat| seat.name == name).map_or_else(|| "spare".to_owned(), |seat| seat.role)
    }
}

impl KnownMember<'_> {
    pub(super) fn addr(&self) -> String {
        self.addr.map_or_else(String::new, |addr| addr.to_string())
    }
}

/// The status that `docs/json.md` describes.
pub(super) fn object(whole: &ClusterReport) -> Value {
    let chains: Vec<Value> = whole.routing.chains.iter().map(|chain| chain_object(whole, chain)).collect();
    let members: Vec<Value> = whole
        .members()
        .iter()
        .map(|member| {
            let role = whole.role(member.node);
            let (id, addr) = (member.id.to_string(), member.addr());
            json!({ "node": member.node, "id": id, "addr": addr, "state": member.state, "role": role })
        })
        .collect();
    let nodes: Vec<Value> = whole.nodes.iter().map(|(id, told)| node_object(whole, *id, told)).collect();
    let cluster = whole.nodes.values().find_map(|told| told.status.as_ref().ok()).map(|status| &status.cluster);
    let Verdict { serves, problem, .. } = Verdict::of(whole);
    json!({
        "serving": serves, "problem": problem, "cluster": cluster, "cluster_id": whole.routing.cluster.to_string(),
        "chains": chains, "members": members, "nodes": nodes, "histories": histories::objects(whole.routing.cluster, &whole.standings),
    })
}

fn chain_object(whole: &ClusterReport, chain: &ChainConfig) -> Value {
    let seats = whole.seats(chain);
    let head = seats.iter().find_map(|seat| seat.view.ok());
    let members: Vec<Value> = seats.iter().map(seat_object).collect();
    json!({
        "chain": chain.chain.0, "epoch": chain.epoch.0, "mode": head.map(|view| &view.mode),
        "copies": whole.copies(chain), "members": members,
    })
}

fn seat_object(seat: &ChainSeat<'_>) -> Value {
    let (node, id, role) = (&seat.name, seat.id.to_string(), &seat.role);
    match seat.view {
        Ok(view) => json!({
            "node": node, "id": id, "role": role, "epoch": view.epoch, "open": view.open, "last": view.last.to_string(),
            "watermark": view.watermark, "lag": seat.lag, "dirty_updates": view.dirty_updates,
            "in_flight_bytes": view.in_flight_bytes, "backlog_bytes": view.backlog_bytes, "lease_ms": view.lease_ms,
            "unreplicated_records": view.unreplicated_records, "halted": view.halted, "error": null,
        }),
        Err(why) => json!({ "node": node, "id": id, "role": role, "epoch": null, "error": why }),
    }
}

fn node_object(whole: &ClusterReport, node: NodeId, told: &NodeReport) -> Value {
    let why = match &told.status {
        Ok(status) => match serde_json::to_value(status) {
            Ok(Value::Object(mut status)) => {
                status.insert("error".to_owned(), Value::Null);
                return Value::Object(status);
            }
            Ok(_) => "its status is not an object".to_owned(),
            Err(error) => error.to_string(),
        },
        Err(why) => why.clone(),
    };
    let members = || whole.routing.chains.iter().flat_map(|chain| &chain.members);
    let id = members().find(|member| member.id.node == node).map(|member| member.id.to_string());
    json!({ "node": told.name, "id": id, "addr": told.addr, "error": why })
}
