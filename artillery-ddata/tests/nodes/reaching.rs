//! Clients reach nodes at every kind of address, and report why they don't.

use artillery_core::{config::TransportConfig, error::ConnectError};
use artillery_ddata::{
    Client, Kv, Node, Place,
    client::{ClientError, Spread, Unreached},
};

use crate::support::{PATIENCE, SECRET, TestCluster, classic, random_name, until, within};

/// Whether this host has IPv6. Without it, the tests print that they cover less.
fn has_ipv6() -> bool {
    let has = std::net::UdpSocket::bind("[::1]:0").is_ok();
    if !has {
        eprintln!("SKIPPED: this host has no address ::1: only IPv4 is tested");
    }
    has
}

async fn node_at(listen: &str) -> (String, Node) {
    let name = random_name();
    let node = Node::builder().cluster(&name).secret(SECRET).mdns(false).expect(1).listen(listen.parse().unwrap());
    let node = node.start().await.unwrap();
    within(node.ready()).await.unwrap();
    (name, node)
}

#[tokio::test]
async fn a_client_reaches_both_families() {
    let has_ipv6 = has_ipv6();
    for listen in
        ["127.0.0.1:0", "0.0.0.0:0", "[::]:0", "[::1]:0"].into_iter().filter(|at| has_ipv6 || *at != "[::1]:0")
    {
        let (name, node) = node_at(listen).await;
        let client = Client::builder().cluster(&name).secret(SECRET).seed(node.addr());
        let client = within(client.connect()).await.unwrap();
        within(client.kv().put("k", listen.to_owned())).await.unwrap();
        assert_eq!(within(client.kv().get("k")).await.unwrap().value().unwrap(), listen);
    }
}

/// One socket has both families, so a node is reached by either.
#[tokio::test]
async fn a_node_on_all_addresses_is_reached_by_both_families() {
    let (name, node) = node_at("[::]:0").await;
    let has_ipv6 = has_ipv6();
    for ip in ["127.0.0.1", "[::1]"].into_iter().filter(|ip| has_ipv6 || *ip != "[::1]") {
        let seed = format!("{ip}:{}", node.addr().port());
        let client = within(Client::builder().cluster(&name).secret(SECRET).seed(seed).connect()).await.unwrap();
        within(client.kv().put("k", ip.to_owned())).await.unwrap();
    }
}

#[tokio::test]
async fn a_client_passes_over_a_silent_seed() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (name, node) = node_at("127.0.0.1:0").await;
    let seeds = [silent.local_addr().unwrap(), node.addr()];
    within(Client::builder().cluster(&name).secret(SECRET).seeds(seeds).connect()).await.unwrap();
}

#[tokio::test]
async fn a_socket_that_does_not_reach_the_seed_is_named() {
    for (listen, seed) in [("127.0.0.1:0", "192.0.2.1:7400"), ("0.0.0.0:0", "[2001:db8::1]:7400")] {
        let mut transport = TransportConfig::default();
        transport.listen = listen.parse().unwrap();
        let client = Client::builder().secret(SECRET).transport(transport).seed(seed);
        let error = within(client.connect()).await.unwrap_err();
        let ClientError::Unreachable(reasons) = &error else { panic!("{error:?}") };
        assert!(matches!(reasons[..], [Unreached::Addr { reason: ConnectError::BadAddress { .. }, .. }]), "{error:?}");
        let (ip, text) = (listen.trim_end_matches('0'), error.to_string());
        assert!(text.contains(ip) && text.contains("`listen`") && text.contains(seed), "{text}");
    }
}

/// Adds to a counter many times. Each addition must be applied once.
async fn count(kv: &Kv, key: &'static str) {
    const ADDITIONS: i64 = 20;
    for sum in 1..=ADDITIONS {
        let added = within(kv.increment(key, 1).timeout(PATIENCE)).await.unwrap();
        assert_eq!((added.result, added.copies), (sum, 3));
    }
}

/// A client of a cluster whose head exchanges packets only with nodes, as behind a firewall.
async fn shut_out(cluster: &TestCluster) -> Client {
    let nodes: Vec<_> = cluster.nodes.iter().map(Node::addr).collect();
    cluster.cuts[cluster.index(Place::Head)].only(nodes);
    let seed = cluster.node(Place::Tail).addr();
    let client = Client::builder().cluster(&cluster.name).secret(SECRET).seed(seed).spread(Spread::RoundRobin);
    within(client.connect()).await.unwrap()
}

#[tokio::test]
async fn a_client_that_does_not_reach_the_head_writes_by_another_member() {
    let cluster = TestCluster::start(3).await;
    let head = cluster.node(Place::Head).clone();
    let client = shut_out(&cluster).await;
    count(&client.kv(), "count").await;
    assert_eq!(head.place(), Place::Head);
    // The client asks the head again once it can.
    cluster.heal();
    until(|| async {
        let before = forwarded(&cluster).await;
        within(client.kv().put("k", "v")).await.unwrap();
        before == forwarded(&cluster).await
    })
    .await;
}

async fn forwarded(cluster: &TestCluster) -> u64 {
    let mut sum = 0;
    for node in &cluster.nodes {
        sum += node.status().await.reads.forwarded;
    }
    sum
}

/// Only the tail serves strong reads of a classic chain.
#[tokio::test]
async fn a_client_that_does_not_reach_the_tail_reads_by_another_member() {
    let cluster = TestCluster::start_with(3, classic).await;
    let nodes: Vec<_> = cluster.nodes.iter().map(Node::addr).collect();
    cluster.cuts[cluster.index(Place::Tail)].only(nodes);
    let seed = cluster.node(Place::Head).addr();
    let client = within(Client::builder().cluster(&cluster.name).secret(SECRET).seed(seed).connect()).await.unwrap();
    within(client.kv().put("k", "v")).await.unwrap();
    let read = within(client.kv().get("k").timeout(PATIENCE)).await.unwrap();
    assert_eq!((read.value().unwrap().as_ref(), read.served.place), (&b"v"[..], Place::Tail));
}

/// Every write at such a node takes this path, including those by its Redis port.
#[tokio::test]
async fn a_node_that_does_not_reach_the_head_writes_by_another_member() {
    let mut cluster = TestCluster::start(3).await;
    let spare = cluster.add(|builder| builder.expect(3)).await;
    within(spare.ready()).await.unwrap();
    let (at, head) = (cluster.nodes.len() - 1, cluster.index(Place::Head));
    cluster.cuts[at].cut(cluster.nodes[head].addr());
    cluster.cuts[head].cut(spare.addr());
    count(&spare.kv(), "count").await;
}
