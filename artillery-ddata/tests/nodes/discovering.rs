//! Nodes and clients that find each other without multicast DNS and without seeds, and by host names.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use artillery_core::discovery::{PolledDiscovery, Seed};
use artillery_ddata::{
    Client, Node, blocking,
    client::{ClientError, Unreached},
};

use crate::support::{SECRET, random_name, within};

#[derive(Clone, Default)]
struct Registry(Arc<Mutex<Vec<SocketAddr>>>);

impl Registry {
    fn source(&self) -> PolledDiscovery {
        let registry = self.clone();
        PolledDiscovery::new("registry", Duration::from_millis(100), move || {
            let places: Vec<_> = registry.0.lock().unwrap().iter().copied().map(Seed::from).collect();
            async move { if places.is_empty() { Err("no node is registered yet") } else { Ok(places) } }
        })
    }

    async fn node(&self, cluster: &str) -> Node {
        let node = Node::builder().cluster(cluster).secret(SECRET).mdns(false).expect(3).discovery(self.source());
        let node = node.listen(([127, 0, 0, 1], 0).into()).start().await.unwrap();
        self.0.lock().unwrap().push(node.addr());
        node
    }
}

#[tokio::test]
async fn a_cluster_forms_by_a_source_of_the_application_and_clients_find_it() {
    let (registry, cluster) = (Registry::default(), random_name());
    // A client may look for the cluster before it exists.
    let early = Client::builder().cluster(&cluster).secret(SECRET).discovery(registry.source());
    let early = tokio::spawn(early.timeout(Duration::from_secs(60)).connect());
    let nodes = [registry.node(&cluster).await, registry.node(&cluster).await, registry.node(&cluster).await];
    for node in &nodes {
        within(node.ready()).await.unwrap();
    }
    let kv = within(early).await.unwrap().unwrap().kv();
    within(kv.put("k", "v")).await.unwrap();
    let blocking = blocking::Client::builder().cluster(&cluster).secret(SECRET).discovery(registry.source());
    let (sender, read) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().spawn(move || sender.send(blocking.connect().unwrap().kv().get("k").unwrap())).unwrap();
    let read = within(read).await.unwrap();
    assert_eq!(read.value().unwrap().as_ref(), b"v");
}

#[tokio::test]
async fn a_client_is_given_host_names() {
    let cluster = random_name();
    let node = Node::builder().cluster(&cluster).secret(SECRET).mdns(false).expect(1);
    let node = node.listen(([127, 0, 0, 1], 0).into()).start().await.unwrap();
    within(node.ready()).await.unwrap();
    let builder = || Client::builder().cluster(&cluster).secret(SECRET);
    let seeds = ["unknown.invalid:7400".to_owned(), format!("LocalHost:{}", node.addr().port())];
    let client = within(builder().seeds(seeds.clone()).connect()).await.unwrap();
    within(client.kv().put("k", "v")).await.unwrap();
    let mistyped = builder().seed("localhost").connect().await;
    assert!(matches!(mistyped, Err(ClientError::Seed(_))), "{mistyped:?}");
    let unknown = within(builder().seed(&seeds[0]).timeout(Duration::from_millis(300)).connect()).await.unwrap_err();
    let ClientError::Unreachable(reasons) = &unknown else { panic!("{unknown:?}") };
    assert!(matches!(reasons[..], [Unreached::Name { .. } | Unreached::Late { .. }]), "{unknown:?}");
    assert!(unknown.to_string().contains("unknown.invalid:7400"), "{unknown}");
}
