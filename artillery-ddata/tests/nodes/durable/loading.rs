use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_loads_says_how_far_it_is() {
    let mut durable = Durable::new();
    durable.start([0], 1).await;
    for n in 0..50 {
        durable.nodes[0].kv().put(format!("key-{n}"), "value").await.unwrap();
    }
    durable.stop().await;
    let told: Arc<Mutex<Vec<Loading>>> = Arc::default();
    let node = started(|| {
        let told = told.clone();
        durable.builder(0, 1).on_loading(move |loading| told.lock().unwrap().push(loading))
    });
    let node = node.await.unwrap();
    node.ready().await.unwrap();
    let last = *told.lock().unwrap().last().expect("a report once the directory is loaded");
    assert!(!last.checks && last.records >= 50 && last.left == Some(Duration::ZERO), "{last:?}");
    assert!(last.read_bytes > 0 && last.read_bytes <= last.total_bytes, "{last:?}");
    node.abort().await;
}

/// Of three voters, one is gone, and one loads its directory until the test lets it continue. The log keeps its
/// majority, and the third node serves in that time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_loads_keeps_the_log_and_shows_how_far_it_is() {
    let mut durable = Durable::new();
    durable.start(0..3, 3).await;
    for n in 0..50 {
        durable.nodes[0].kv().put(format!("key-{n}"), "value").await.unwrap();
    }
    durable.stop().await;
    durable.start_one(0, 3).await;
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    let may_go_on = Arc::new(Mutex::new(may_go_on));
    let slow = started(|| {
        let may_go_on = may_go_on.clone();
        let wait = move |_| _ = may_go_on.lock().unwrap().recv();
        durable.builder(1, 3).on_loading(wait)
    });
    let slow = slow.await.unwrap();
    tokio::time::timeout(PATIENCE, durable.nodes[0].kv().put("key-0", "again")).await.unwrap().unwrap();
    let status = slow.status().await;
    assert!(!status.ready && status.chains.is_empty());
    let loading = status.loading.expect("it is still loading");
    assert!(loading.records >= 50 && loading.step == LoadingStep::Load, "{loading:?}");
    drop(go_on);
    tokio::time::timeout(PATIENCE, slow.ready()).await.unwrap().unwrap();
    assert_eq!(slow.status().await.loading, None);
    slow.abort().await;
    durable.stop().await;
}
