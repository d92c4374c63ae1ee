//! Answers about a node and about its commands.

use artillery_ddata::{ChainConfig, Node, status::NodeStatus};

use super::{
    Limits, PortShared,
    ask::lower,
    frame::Words,
    glob,
    reply::{Protocol, Reply},
    table::{self, COMMANDS, Spec},
};
use crate::descriptors::Shares;

/// The Redis release whose answers these commands return. Some clients check it before they use a command.
const LIKE_REDIS: &str = "7.0.0";

pub(super) fn command(words: &Words) -> Reply {
    let Some(what) = words.get(1).map(lower) else { return Reply::List(COMMANDS.iter().map(described).collect()) };
    match what.as_str() {
        "count" if words.len() == 2 => Reply::count(COMMANDS.len()),
        "count" => table::wrong_number("command|count"),
        // No command has documentation; clients handle an empty answer.
        "docs" => Reply::Map(Vec::new()),
        "info" if words.len() == 2 => Reply::List(COMMANDS.iter().map(described).collect()),
        "info" => {
            let described = |name| table::named(name).map_or(Reply::NoList, described);
            Reply::List(words[2..].iter().map(|name| described(name.as_ref())).collect())
        }
        _ => unknown_part(words, "COMMAND"),
    }
}

fn described(spec: &Spec) -> Reply {
    let (first, last, step) = spec.keys;
    let flags = spec.flags.iter().map(|flag| Reply::Word(flag)).collect();
    let numbers = [first, last, step].map(Reply::Number);
    let mut all = vec![Reply::text(spec.name), Reply::Number(spec.arity), Reply::List(flags)];
    all.extend(numbers);
    // Access rules, hints, key specifications and subcommands: all empty.
    all.extend([(); 4].map(|()| Reply::List(Vec::new())));
    Reply::List(all)
}

/// `CONFIG GET`, for the few settings that programs query.
pub(super) fn config(words: &Words, limits: &Limits) -> Reply {
    if !words[1].eq_ignore_ascii_case(b"get") {
        return unknown_part(words, "CONFIG");
    }
    if words.len() < 3 {
        return table::wrong_number("config|get");
    }
    let (max_clients, max_memory) = (Shares::here().resp.to_string(), limits.memory_bytes.to_string());
    let all = [
        ("appendonly", "no"),
        ("databases", "1"),
        ("maxclients", max_clients.as_str()),
        ("maxmemory", max_memory.as_str()),
        ("save", ""),
    ];
    let asked = |name: &str| words[2..].iter().any(|glob| glob::matches(lower(glob).as_bytes(), name.as_bytes()));
    let found = all.into_iter().filter(|(name, _)| asked(name));
    Reply::Map(found.map(|(name, value)| (Reply::text(name), Reply::text(value))).collect())
}

pub(super) fn unknown_part(words: &Words, command: &str) -> Reply {
    let part = words.get(1).map(|part| String::from_utf8_lossy(&part[..part.len().min(128)]).into_owned());
    Reply::error(format_args!("unknown subcommand '{}'. Try {command} HELP.", part.unwrap_or_default()))
}

/// The answer to `HELLO`. Every node accepts writes, so every node is a master to a Redis client.
pub(super) fn hello(id: u64, protocol: Protocol) -> Reply {
    let version = if protocol == Protocol::Three { 3 } else { 2 };
    let fields = [
        ("server", Reply::text("artillery")),
        ("version", Reply::text(env!("CARGO_PKG_VERSION"))),
        ("proto", Reply::Number(version)),
        ("id", Reply::Number(i64::try_from(id).unwrap_or(i64::MAX))),
        ("mode", Reply::text("standalone")),
        ("role", Reply::text("master")),
        ("modules", Reply::List(Vec::new())),
    ];
    Reply::Map(fields.map(|(name, value)| (Reply::text(name), value)).into())
}

/// `ROLE`: a master everywhere, with the other members of the chain as its replicas.
pub(super) fn role(status: &NodeStatus) -> Reply {
    let Some(chain) = status.chains.first() else {
        return Reply::List(vec![Reply::text("master"), Reply::Number(0), Reply::List(Vec::new())]);
    };
    let offset = i64::try_from(chain.watermark).unwrap_or(i64::MAX);
    let others = chain.members.iter().filter(|name| **name != status.node);
    let replica = |name: &String| {
        let known = status.members.iter().find(|member| member.node == *name).map(|member| member.addr.to_string());
        let (host, port) = known.as_ref().and_then(|addr| addr.rsplit_once(':')).unwrap_or((name, "0"));
        Reply::List(vec![Reply::text(host), Reply::text(port), Reply::text(offset.to_string())])
    };
    Reply::List(vec![Reply::text("master"), Reply::Number(offset), Reply::List(others.map(replica).collect())])
}

/// The number of copies of acknowledged writes beyond the first: every serving member of the chain holds one.
pub(super) fn others(node: &Node) -> i64 {
    let chains = node.routing();
    let serving = chains.iter().flat_map(|known| known.chains.first()).flat_map(ChainConfig::serving).count();
    i64::try_from(serving.saturating_sub(1)).unwrap_or(i64::MAX)
}

/// `DBSIZE`: the number of keys at this node.
pub(super) fn size(status: &NodeStatus) -> Reply {
    Reply::Number(i64::try_from(keys(status)).unwrap_or(i64::MAX))
}

pub(super) fn keys(status: &NodeStatus) -> u64 {
    status.chains.iter().map(|chain| chain.keys).sum()
}

/// `INFO`: the given sections, or all.
pub(super) fn info(status: &NodeStatus, shared: &PortShared, sections: &[String]) -> Reply {
    let all = [
        ("server", server(status)),
        ("clients", clients(shared)),
        ("replication", replication(status)),
        ("stats", stats(status)),
        ("keyspace", keyspace(status)),
    ];
    let general = |name: &String| matches!(name.as_str(), "all" | "default" | "everything");
    let every = sections.is_empty() || sections.iter().any(general);
    let wanted = |name: &str| every || sections.iter().any(|section| section == name);
    let text: Vec<_> = all.iter().filter(|(name, _)| wanted(name)).map(|(name, text)| section(name, text)).collect();
    Reply::Text(text.join("\r\n"))
}

fn section(name: &str, text: &str) -> String {
    let (first, rest) = name.split_at(1);
    format!("# {}{rest}\r\n{text}", first.to_uppercase())
}

fn clients(shared: &PortShared) -> String {
    let (taken, all, waiting) = (shared.places.taken(), shared.places.all(), shared.backlog.taken_bytes());
    format!("connected_clients:{taken}\r\nmaxclients:{all}\r\nartillery_waiting_answer_bytes:{waiting}\r\n")
}

fn server(status: &NodeStatus) -> String {
    let (version, node, cluster) = (env!("CARGO_PKG_VERSION"), &status.node, &status.cluster);
    let id = status.cluster_id.map_or_else(String::new, |id| id.to_string());
    let addr = status.addr.map_or_else(String::new, |addr| addr.to_string());
    let process = std::process::id();
    format!(
        "redis_version:{LIKE_REDIS}\r\nredis_mode:standalone\r\nprocess_id:{process}\r\nartillery_version:{version}\r\n\
         artillery_node:{node}\r\nartillery_addr:{addr}\r\nartillery_cluster:{cluster}\r\nartillery_cluster_id:{id}\r\n\
         artillery_ready:{}\r\n",
        u8::from(status.ready),
    )
}

fn replication(status: &NodeStatus) -> String {
    let mut text = format!("role:master\r\nartillery_role:{}\r\n", status.place);
    for chain in &status.chains {
        let replicas = chain.members.len().saturating_sub(1);
        text += &format!("connected_slaves:{replicas}\r\nmaster_repl_offset:{}\r\n", chain.watermark);
        text += &format!("artillery_epoch:{}\r\nartillery_members:{}\r\n", chain.epoch, chain.members.join(","));
        text += &format!("artillery_last:{}\r\nartillery_dirty_updates:{}\r\n", chain.last, chain.dirty_updates);
    }
    text
}

fn stats(status: &NodeStatus) -> String {
    let reads = &status.reads;
    format!(
        "artillery_reads_local_clean:{}\r\nartillery_reads_dirty:{}\r\nartillery_reads_version_query:{}\r\n\
         artillery_reads_shared_query:{}\r\nartillery_reads_forwarded:{}\r\nartillery_reads_through_chain:{}\r\n",
        reads.local_clean, reads.dirty, reads.version_query, reads.shared_query, reads.forwarded, reads.through_chain
    )
}

fn keyspace(status: &NodeStatus) -> String {
    let keys = keys(status);
    let expiring: u64 = status.chains.iter().map(|chain| chain.expiring).sum();
    if keys == 0 { String::new() } else { format!("db0:keys={keys},expires={expiring},avg_ttl=0\r\n") }
}
