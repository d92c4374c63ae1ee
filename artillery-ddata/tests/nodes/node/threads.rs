use std::{thread, time::Duration};

use artillery_ddata::{Node, NodeBuilder, Place, blocking, config::Threads};

use crate::support::{TestCluster, within};

const SECRET: &str = "of a node and its threads";

fn alone(name: &str) -> NodeBuilder {
    Node::builder().cluster(name).secret(SECRET).mdns(false).expect(1).listen(([127, 0, 0, 1], 0).into())
}

#[allow(clippy::disallowed_methods, reason = "a client that blocks needs a thread of its own")]
/// The application blocks the only thread of its runtime while a client on another runtime asks the node.
#[tokio::test(flavor = "current_thread")]
async fn own_threads_answer_while_the_application_is_busy() {
    let node = within(alone("busy").start()).await.unwrap();
    within(node.ready()).await.unwrap();
    let seed = node.addr();
    let client = thread::spawn(move || {
        let client = blocking::Client::builder().cluster("busy").secret(SECRET).seed(seed).connect()?;
        let put = client.kv().put("k", "v")?;
        let got = client.kv().get("k")?;
        client.close();
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>((put.version, got.version()))
    });
    let (put, got) = client.join().unwrap().unwrap();
    assert_eq!(put, got);
    node.leave().await;
}

#[tokio::test(flavor = "current_thread")]
async fn chains_with_threads_of_their_own_serve_all_keys() {
    let node = alone("many").threads(Threads::Own { chains: 2 }).configure(|config| config.chains.chains = 5);
    let node = within(node.start()).await.unwrap();
    within(node.ready()).await.unwrap();
    let kv = node.kv();
    for key in 0..50_u32 {
        let key = key.to_string();
        let put = within(kv.put(key.clone(), key.clone())).await.unwrap();
        assert_eq!(within(kv.get(&key)).await.unwrap().version(), put.version);
    }
    node.leave().await;
}

/// Timeouts of the requests of a node run on its own thread, not on the runtime of the application.
#[tokio::test(flavor = "current_thread")]
async fn call_with_a_silent_head_times_out_on_own_threads() {
    let cluster = TestCluster::start(3).await;
    let kv = cluster.node(Place::Tail).kv();
    within(kv.put("k", "v")).await.unwrap();
    cluster.cut(Place::Head, Place::Tail);
    let lost = within(kv.put("k", "w").timeout(Duration::from_millis(200))).await;
    assert!(lost.is_err(), "{lost:?}");
}
