//! Directories in the states in which operators leave them: copied, full of other files, or missing.

use super::*;

/// A node is copied while it runs, and the copy is started concurrently.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_running_node_ends_and_the_original_goes_on() {
    let mut durable = Durable::new();
    durable.start(0..3, 3).await;
    durable.nodes[0].kv().put("key", "old").await.unwrap();
    for round in 0..3 {
        let place = durable.dir.path().join(format!("copy-{round}"));
        copy(&durable.of(2), &place);
        durable.nodes[0].kv().put("key", "new").await.unwrap();
        let second = durable.builder(2, 3).data_dir(&place).start().await.unwrap();
        let stopped = tokio::time::timeout(PATIENCE, second.stopped()).await.expect("the copy is refused in time");
        assert!(matches!(stopped, Stopped::NameTaken | Stopped::RolledBack), "{stopped:?}");
        second.abort().await;
        durable.nodes[2].kv().put("key", format!("{round}")).await.unwrap();
        tokio::select! {
            biased;
            ended = durable.nodes[2].stopped() => panic!("the original ended: {ended:?}"),
            () = std::future::ready(()) => {}
        }
    }
    durable.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_of_other_files_is_left_alone() {
    let durable = Durable::new();
    std::fs::create_dir(durable.of(0)).unwrap();
    std::fs::write(durable.of(0).join("readme.txt"), "").unwrap();
    let refused = durable.builder(0, 1).start().await;
    let Err(StartError::Data(DataDirError::Foreign { dir, file })) = refused else { panic!("{refused:?}") };
    assert_eq!((dir, &*file), (durable.of(0), "readme.txt"));
    assert_eq!(std::fs::read_dir(durable.of(0)).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_an_existing_cluster_waits_for_it() {
    let mut durable = Durable::new();
    let waiting = durable.builder(0, 1).existing(true).start().await.unwrap();
    let seed = waiting.addr().to_string();
    let founder = durable.builder(1, 1).seed(seed).start().await.unwrap();
    durable.nodes.extend([waiting, founder]);
    durable.start([], 1).await;
    let status = durable.nodes[0].status().await;
    assert_eq!(status.cluster_id, durable.nodes[1].status().await.cluster_id);
    durable.nodes[0].kv().put("key", "value").await.unwrap();
    durable.stop().await;
    // Its store is a member now, whatever its settings state.
    let again = durable.builder(0, 1).existing(true).start().await.unwrap();
    durable.nodes.push(again);
    durable.start([1], 1).await;
    durable.stop().await;
}

/// The other nodes don't reach the original when its copy starts. They have received a newer position of the original's
/// store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_original_out_of_reach_comes_back_beside_its_copy() {
    let mut durable = Durable::new();
    let cuts = durable.start_with_cuts().await;
    durable.nodes[0].kv().put("key", "old").await.unwrap();
    let place = durable.dir.path().join("copy");
    copy(&durable.of(2), &place);
    for n in 0..200 {
        durable.nodes[0].kv().put("key", format!("{n}")).await.unwrap();
    }
    let addrs: Vec<_> = durable.nodes.iter().map(Node::addr).collect();
    for other in [0, 1] {
        cuts[2].cut(addrs[other]);
        cuts[other].cut(addrs[2]);
    }
    crate::support::until(async || durable.nodes[0].status().await.chains[0].members.len() == 2).await;
    let seeds = addrs[..2].iter().map(ToString::to_string);
    let node = Node::builder().cluster(&durable.name).secret(SECRET).name("node-2").mdns(false).expect(3);
    let node = seeds.fold(node.listen("127.0.0.1:0".parse().unwrap()).data_dir(&place), NodeBuilder::seed);
    let second = node.start().await.unwrap();
    let stopped = tokio::time::timeout(PATIENCE, second.stopped()).await.expect("the copy is refused in time");
    assert_eq!(stopped, Stopped::RolledBack);
    second.abort().await;
    cuts.iter().for_each(crate::support::Cuts::heal);
    crate::support::until(async || durable.nodes[2].status().await.ready).await;
    let read = durable.nodes[2].kv().get("key").await.unwrap();
    assert_eq!(read.value().map(|value| &value[..]), Some(&b"199"[..]));
    durable.stop().await;
}
