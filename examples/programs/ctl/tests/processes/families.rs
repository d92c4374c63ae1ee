//! IPv6 alone and both address families, with the programs and with the library; and host names.

use std::time::Duration;

use artillery_ddata::Client;
use artillery_processes::{CTL, Cluster, Node, eventually, expect, token};

/// Whether this host has IPv6. Without it, the tests report that they are skipped.
fn has_ipv6() -> bool {
    let has = std::net::UdpSocket::bind("[::1]:0").is_ok();
    if !has {
        eprintln!("SKIPPED: this host has no address ::1");
    }
    has
}

/// Checks that `ctl`, a client and a blocking client reach the cluster at this seed.
async fn is_reached_at(cluster: &Cluster, seed: &str) {
    cluster.ctl(seed, 0, &["put", "key", seed]).await;
    let builder = || Client::builder().cluster(&cluster.name).secret(&cluster.secret).seed(seed);
    let kv = builder().connect().await.unwrap().kv();
    assert_eq!(kv.get("key").await.unwrap().value().unwrap(), seed);
    let (sender, read) = tokio::sync::oneshot::channel();
    let blocking = artillery_ddata::blocking::ClientBuilder::from(builder());
    let read_all = move || {
        let client = blocking.connect().unwrap();
        // A handle of an asynchronous client can block as well.
        let found = [client.kv().get("key").unwrap(), kv.blocking().get("key").unwrap()];
        drop(sender.send(found));
    };
    std::thread::Builder::new().spawn(read_all).unwrap();
    for found in read.await.unwrap() {
        assert_eq!(found.value().unwrap(), seed);
    }
}

async fn is_found_by_mdns(cluster: &Cluster) {
    let find = ["--cluster", &cluster.name, "--timeout", "30000", "--interface", "lo", "get", "key"];
    expect(0, &CTL, Some(&cluster.secret), &find).await;
}

fn port(addr: &str) -> &str {
    addr.rsplit_once(':').unwrap().1
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_at_the_loopback_address_of_ipv6() {
    if !has_ipv6() {
        return;
    }
    let cluster = Cluster::start(&["--listen", "[::1]:0"]).await;
    assert!(cluster.addrs[0].starts_with("[::1]:"), "{:?}", cluster.addrs);
    is_reached_at(&cluster, &cluster.addrs[1]).await;
    is_found_by_mdns(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_at_all_addresses_of_both_families() {
    let cluster = Cluster::start(&["--listen", "[::]:0", "--interface", "lo"]).await;
    let port = port(&cluster.addrs[2]);
    is_reached_at(&cluster, &format!("127.0.0.1:{port}")).await;
    is_reached_at(&cluster, &format!("localhost:{port}")).await;
    if has_ipv6() {
        is_reached_at(&cluster, &format!("[::1]:{port}")).await;
    }
    is_found_by_mdns(&cluster).await;
}

#[tokio::test]
async fn a_name_that_is_advertised_stands_in_the_log() {
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (secret, name) = (token(), format!("LocalHost:{}", free.port()));
    let (_node, line) = Node::alone(&secret, &["--listen", &free.to_string(), "--advertise", &name]).await;
    let client =
        Client::builder().cluster(format!("test-{secret}")).secret(&secret).seed(&name).connect().await.unwrap();
    let routing = eventually(async || {
        let routing = client.refresh(Duration::from_secs(5)).await.map_err(|error| error.to_string())?;
        let known = routing.nodes.values().next().cloned();
        known.filter(|node| node.host.is_some()).ok_or_else(|| format!("{routing:?}"))
    })
    .await;
    assert_eq!(routing.host, Some(name.to_lowercase()));
    assert_eq!((routing.addrs, line["addr"].as_str()), (vec![free], Some(free.to_string().as_str())));
}
