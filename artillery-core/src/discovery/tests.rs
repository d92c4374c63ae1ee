//! Sources on this machine: loopback only, with an mDNS port for each test.

use std::{collections::BTreeSet, future::poll_fn, net::UdpSocket, task::Poll, time::Duration};

use mdns_sd::{IfKind, ServiceDaemon, ServiceInfo};

use super::{
    mdns::{self, SERVICE_TYPE, announced_interfaces},
    *,
};
use crate::NodeId;

/// Far longer than any step takes. A test that reaches it fails.
const LIMIT: Duration = Duration::from_secs(30);

async fn next(candidates: &mut Candidates) -> Option<Candidate> {
    tokio::time::timeout(LIMIT, poll_fn(|context| candidates.as_mut().poll_next(context))).await.expect("no candidate")
}

async fn find(candidates: &mut Candidates, node: NodeId, gone: bool) -> Candidate {
    loop {
        let candidate = next(candidates).await.expect("the stream ended");
        if candidate.node == Some(node) && candidate.gone == gone {
            return candidate;
        }
    }
}

fn seeds<const N: usize>(texts: [&str; N]) -> SeedDiscovery {
    SeedDiscovery::new(texts.map(|text| text.parse().unwrap()))
}

fn free_port() -> u16 {
    UdpSocket::bind(("0.0.0.0", 0)).unwrap().local_addr().unwrap().port()
}

fn mdns(cluster: &str, port: u16) -> MdnsDiscovery {
    MdnsDiscovery::new(MdnsSettings::new(cluster).interfaces(Interfaces::Loopback).port(port)).unwrap()
}

fn announcement(cluster: &str, name: &str, addr: &str) -> Announcement {
    Announcement {
        by_interface: false,
        cluster: cluster.into(),
        node: NodeId::from_name(name),
        name: name.into(),
        addrs: vec![addr.parse().unwrap()],
    }
}

#[tokio::test]
async fn three_nodes_find_each_other_on_loopback() {
    let port = free_port();
    let nodes = ["a", "b", "c"];
    let addrs = ["127.0.0.1:7401", "127.0.0.1:7402", "127.0.0.1:7403"];
    let sources: Vec<_> = nodes.iter().map(|_| mdns("shop", port)).collect();
    let mut streams: Vec<_> = sources.iter().map(|source| source.candidates()).collect();
    for (at, source) in sources.iter().enumerate() {
        source.announce(&announcement("shop", nodes[at], addrs[at]));
    }
    for (at, stream) in streams.iter_mut().enumerate() {
        // In any order, since a skipped candidate may not be reported again.
        let mut missing: Vec<_> = (0..3).filter(|other| *other != at).collect();
        while !missing.is_empty() {
            let candidate = next(stream).await.unwrap();
            assert_ne!(candidate.node, Some(NodeId::from_name(nodes[at])), "a node does not find itself");
            let found = nodes.iter().position(|name| candidate.node == Some(NodeId::from_name(name))).unwrap();
            assert_eq!(candidate.addrs, [addrs[found].parse().unwrap()]);
            assert_eq!((candidate.source, candidate.gone), (Source::Mdns, false));
            missing.retain(|other| *other != found);
        }
    }
}

#[tokio::test]
async fn a_late_node_finds_earlier_ones() {
    let port = free_port();
    let early = mdns("shop", port);
    early.announce(&announcement("shop", "early", "127.0.0.1:7401"));
    let witness = mdns("shop", port);
    find(&mut witness.candidates(), NodeId::from_name("early"), false).await;
    let late = mdns("shop", port);
    find(&mut late.candidates(), NodeId::from_name("early"), false).await;
    find(&mut late.candidates(), NodeId::from_name("early"), false).await;
}

#[tokio::test]
async fn other_clusters_and_strangers_are_passed_over() {
    let port = free_port();
    let (other, mine, here) = (mdns("other", port), mdns("shop", port), mdns("shop", port));
    let mut candidates = here.candidates();
    other.announce(&announcement("other", "x", "127.0.0.1:7401"));
    let malformed = ServiceDaemon::new_with_port(port).unwrap();
    malformed.disable_interface(IfKind::All).unwrap();
    malformed.enable_interface(IfKind::LoopbackV4).unwrap();
    let nonsense = [("v", "1"), ("cluster", "shop"), ("node", "nonsense")];
    let mut info = ServiceInfo::new(SERVICE_TYPE, "bad", "bad.local.", "127.0.0.1", 7409, &nonsense[..]).unwrap();
    info.set_requires_probe(false);
    malformed.register(info).unwrap();
    // The other cluster can be found by a search for it ...
    let watcher = mdns("other", port);
    find(&mut watcher.candidates(), NodeId::from_name("x"), false).await;
    // ... but this search finds only the node that is announced last.
    mine.announce(&announcement("shop", "y", "127.0.0.1:7402"));
    let first = next(&mut candidates).await.unwrap();
    assert_eq!(first.node, Some(NodeId::from_name("y")));
    malformed.shutdown().unwrap();
}

#[tokio::test]
async fn a_withdrawn_node_is_gone() {
    let port = free_port();
    let (here, there) = (mdns("shop", port), mdns("shop", port));
    let mut candidates = here.candidates();
    there.announce(&announcement("shop", "there", "127.0.0.1:7401"));
    let found = find(&mut candidates, NodeId::from_name("there"), false).await;
    there.close().await;
    let gone = find(&mut candidates, NodeId::from_name("there"), true).await;
    assert_eq!(gone.addrs, found.addrs);
}

#[tokio::test]
async fn a_new_address_is_announced_in_place_of_the_old() {
    let port = free_port();
    let (here, there) = (mdns("shop", port), mdns("shop", port));
    let mut candidates = here.candidates();
    there.announce(&announcement("shop", "there", "127.0.0.1:7401"));
    find(&mut candidates, NodeId::from_name("there"), false).await;
    there.announce(&announcement("shop", "there", "127.0.0.1:7402"));
    loop {
        let candidate = find(&mut candidates, NodeId::from_name("there"), false).await;
        if candidate.addrs == ["127.0.0.1:7402".parse().unwrap()] {
            break;
        }
    }
}

fn settings(cluster: &str, port: u16) -> MdnsSettings {
    MdnsSettings::new(cluster).interfaces(Interfaces::Loopback).port(port)
}

async fn answers(cluster: &str, port: u16) -> Vec<Candidate> {
    let mut answers = mdns::one_shot::ask(&settings(cluster, port));
    let mut all = Vec::new();
    while let Some(candidate) = tokio::time::timeout(LIMIT, answers.recv()).await.expect("the query ends") {
        if !all.contains(&candidate) {
            all.push(candidate);
        }
    }
    all
}

/// A responder multicasts its record at most once a second. Commands in a script search more often than that.
#[tokio::test]
async fn a_search_right_after_another_one_is_answered() {
    let port = free_port();
    let (here, there) = (mdns("shop", port), mdns("shop", port));
    there.announce(&announcement("shop", "there", "127.0.0.1:7401"));
    let node = NodeId::from_name("there");
    find(&mut here.candidates(), node, false).await;
    for _ in 0..3 {
        let mut found = mdns::one_shot::ask(&settings("shop", port));
        let found = tokio::time::timeout(LIMIT, found.recv()).await.unwrap().expect("an answer to one query");
        assert_eq!((found.node, found.addrs), (Some(node), vec!["127.0.0.1:7401".parse().unwrap()]));
    }
    assert_eq!(answers("other", port).await, []);
}

/// The nodes share the port, and each must receive the query.
#[tokio::test]
async fn all_nodes_of_a_machine_answer_one_question() {
    let port = free_port();
    let names = ["a", "b", "c"];
    let sources = names.map(|_| mdns("shop", port));
    let witness = mdns("shop", port);
    let mut announced = witness.candidates();
    for (at, source) in sources.iter().enumerate() {
        source.announce(&announcement("shop", names[at], &format!("127.0.0.1:740{at}")));
        find(&mut announced, NodeId::from_name(names[at]), false).await;
    }
    let found: BTreeSet<_> = answers("shop", port).await.into_iter().filter_map(|one| one.node).collect();
    assert_eq!(found, names.map(NodeId::from_name).into());
}

/// A missing interface, or one that cannot send, yields no answers. A stream can be created outside a runtime.
#[test]
fn a_question_that_can_not_be_sent_ends() {
    let nowhere = Interfaces::Named(vec!["no-such-interface".into()]);
    let settings = MdnsSettings::new("shop").interfaces(nowhere).port(free_port());
    assert!(mdns::one_shot::ask(&settings).try_recv().is_err(), "no runtime");
    let source = MdnsDiscovery::new(settings.clone()).unwrap();
    let candidates = source.candidates();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async move {
        let mut answers = mdns::one_shot::ask(&settings);
        assert_eq!(tokio::time::timeout(LIMIT, answers.recv()).await.unwrap(), None);
        let mut candidates = candidates;
        let waits = poll_fn(|context| Poll::Ready(candidates.as_mut().poll_next(context).is_pending())).await;
        assert!(waits, "the continuous search goes on");
    });
}

/// A search may be dropped long before its answers are due.
#[cfg(feature = "testing")]
#[tokio::test]
async fn a_question_ends_with_its_search() {
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = alive();
    let port = free_port();
    let there = mdns("shop", port);
    there.announce(&announcement("shop", "there", "127.0.0.1:7401"));
    let mut candidates = mdns("shop", port).candidates();
    next(&mut candidates).await.unwrap();
    assert!(alive() > before, "it waits for more answers");
    // From now on no timer ends a task.
    tokio::time::pause();
    drop(candidates);
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(alive(), before);
}

/// IPv6 multicast does not reach other processes by loopback.
#[tokio::test]
async fn a_node_at_the_loopback_address_of_ipv6_is_found() {
    let port = free_port();
    let (here, there) = (mdns("shop", port), mdns("shop", port));
    let mut candidates = here.candidates();
    there.announce(&announcement("shop", "there", "[::1]:7401"));
    let found = find(&mut candidates, NodeId::from_name("there"), false).await;
    assert_eq!(found.addrs, ["[::1]:7401".parse().unwrap()]);
}

#[tokio::test]
async fn the_addresses_of_interfaces_are_announced_on_each_of_them() {
    let port = free_port();
    let (here, there) = (mdns("shop", port), mdns("shop", port));
    let mut candidates = here.candidates();
    // Only loopback is used, and it does not have this address.
    let me = Announcement { by_interface: true, ..announcement("shop", "there", "172.17.0.1:7401") };
    there.announce(&me);
    let found = find(&mut candidates, NodeId::from_name("there"), false).await;
    assert!(found.addrs.iter().all(|addr| addr.ip().is_loopback() && addr.port() == 7401), "{found:?}");
}

/// Nothing listens at the addresses of the other family.
#[test]
fn a_node_that_advertises_no_address_of_ipv6_announces_none() {
    let me = |by_interface, addr: &str| Announcement { by_interface, ..announcement("shop", "there", addr) };
    let (v4, v6, fixed) = (me(true, "10.0.0.1:7401"), me(true, "[fd00::1]:7401"), me(false, "10.0.0.1:7401"));
    let kinds = |interfaces: &Interfaces, me| announced_interfaces(interfaces, me).unwrap_or_default();
    assert!(matches!(kinds(&Interfaces::All, &v4)[..], [IfKind::IPv4]));
    assert!(matches!(kinds(&Interfaces::Loopback, &v4)[..], [IfKind::LoopbackV4]));
    assert!(matches!(kinds(&Interfaces::Named(vec!["eth0".into()]), &v4)[..], [IfKind::Predicate(_)]));
    for me in [&v6, &fixed] {
        assert!(kinds(&Interfaces::All, me).is_empty());
        assert!(matches!(kinds(&Interfaces::Named(vec!["eth0".into()]), me)[..], [IfKind::Name(_)]));
    }
}

/// Any host on the network may add addresses to those of a node.
#[tokio::test]
async fn only_so_many_addresses_of_an_instance_are_taken() {
    let port = free_port();
    let here = mdns("shop", port);
    let mut candidates = here.candidates();
    let daemon = ServiceDaemon::new_with_port(port).unwrap();
    daemon.disable_interface(IfKind::All).unwrap();
    daemon.enable_interface(vec![IfKind::LoopbackV4]).unwrap();
    let node = NodeId::from_name("there");
    let txt = [("v", "1".to_owned()), ("cluster", "shop".to_owned()), ("node", node.to_string())];
    let ips: Vec<std::net::IpAddr> = (1..100).map(|n| [127, 0, 0, n].into()).collect();
    let mut info = ServiceInfo::new(SERVICE_TYPE, "there", "there.local.", ips.as_slice(), 7401, &txt[..]).unwrap();
    info.set_requires_probe(false);
    daemon.register(info).unwrap();
    let found = find(&mut candidates, node, false).await;
    assert_eq!(found.addrs.len(), 16);
    daemon.shutdown().unwrap();
}

/// Nodes are often called `a`, `node-1` or `db-0`, and a node's id follows from its name alone.
#[test]
fn nodes_of_one_name_in_two_clusters_are_two_instances_at_two_hosts() {
    let source = mdns("shop", free_port());
    let describe = |cluster, name| source.describe(&announcement(cluster, name, "127.0.0.1:7401")).unwrap();
    let names = |info: ServiceInfo| [info.get_fullname().to_owned(), info.get_hostname().to_owned()];
    let all = [("shop", "a"), ("other", "a"), ("shop", "b")].map(|(cluster, name)| names(describe(cluster, name)));
    assert_eq!(all.iter().flatten().collect::<BTreeSet<_>>().len(), 6, "{all:?}");
    assert_eq!(names(describe("shop", "a")), all[0], "the same after a restart");
}

#[tokio::test]
async fn a_node_without_address_cannot_be_announced() {
    let nowhere = Announcement { addrs: Vec::new(), ..announcement("shop", "a", "127.0.0.1:1") };
    let source = mdns("shop", free_port());
    assert_eq!(source.try_announce(&nowhere), Err(MdnsError::NoAddress));
    let long = Announcement { cluster: "x".repeat(300), ..announcement("shop", "a", "127.0.0.1:1") };
    assert!(matches!(source.try_announce(&long), Err(MdnsError::Unannounceable(_))));
    source.announce(&nowhere);
}

#[test]
fn seeds_are_read_or_refused() {
    for text in ["10.0.0.5:7400", "[::1]:7400", "db-1.example:7400", "localhost:1", "a.b_c.d.:65535"] {
        assert_eq!(text.parse::<Seed>().map(|seed| seed.to_string()).as_deref(), Ok(text));
    }
    assert_eq!("LOCALHOST:1".parse::<Seed>(), "localhost:1".parse());
    let error = |text: &str| text.parse::<Seed>().unwrap_err();
    for text in ["", "localhost", "10.0.0.5"] {
        assert_eq!(error(text), SeedError::NoPort(text.into()));
    }
    for text in ["localhost:", "localhost:0", "localhost:70000", "localhost:x", "10.0.0.5:0"] {
        assert_eq!(error(text), SeedError::BadPort(text.into()));
    }
    for text in [":7400", "10.0.0:7400", "300.1.1.1:7400", "::1:7400", "a b:7400", "a..b:7400", "http://a:80"] {
        assert_eq!(error(text), SeedError::BadHost(text.into()));
    }
}

#[tokio::test]
async fn seeds_are_candidates_and_names_are_looked_up_at_each_dial() {
    let source = seeds(["localhost:7400", "127.0.0.1:7401"]);
    for _ in 0..2 {
        let mut candidates = source.candidates();
        let by_name = next(&mut candidates).await.unwrap();
        assert_eq!((by_name.addrs.as_slice(), &by_name.source), (&[][..], &Source::Seed("localhost:7400".into())));
        for _ in 0..2 {
            let addrs = by_name.resolve().await.unwrap();
            assert!(addrs.iter().all(|addr| addr.ip().is_loopback() && addr.port() == 7400) && !addrs.is_empty());
        }
        let by_addr = next(&mut candidates).await.unwrap();
        assert_eq!(by_addr.resolve().await.unwrap(), ["127.0.0.1:7401".parse().unwrap()]);
        assert_eq!(next(&mut candidates).await, None);
    }
}

#[tokio::test]
async fn an_unknown_host_name_is_an_error() {
    let seed: Seed = "nobody.invalid:7400".parse().unwrap();
    let error = seed.candidate().resolve().await.unwrap_err();
    assert!(error.to_string().contains("nobody.invalid:7400"), "{error}");
}

#[tokio::test]
async fn several_sources_are_one() {
    let port = free_port();
    let there = mdns("shop", port);
    let seeds = seeds(["127.0.0.1:1", "127.0.0.1:2"]);
    let all = Combined::new().with(seeds.clone()).with(mdns("shop", port)).with(Combined::new()).with(seeds);
    let mut candidates = all.candidates();
    all.announce(&announcement("shop", "here", "127.0.0.1:7401"));
    let mut found = there.candidates();
    find(&mut found, NodeId::from_name("here"), false).await;
    there.announce(&announcement("shop", "there", "127.0.0.1:7402"));
    // The order of the sources is unspecified.
    let (mut seeds_seen, mut there_seen) = (0, false);
    while seeds_seen < 4 || !there_seen {
        let candidate = next(&mut candidates).await.unwrap();
        match candidate.source {
            Source::Seed(_) => seeds_seen += 1,
            _ => there_seen |= candidate.node == Some(NodeId::from_name("there")),
        }
    }
    assert_eq!(seeds_seen, 4);
    assert_eq!(next(&mut Combined::new().candidates()).await, None);
}
