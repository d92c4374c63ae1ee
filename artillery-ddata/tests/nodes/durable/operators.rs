//! Decisions of operators when nodes with directories can't continue by themselves.

use super::*;

impl Durable {
    async fn client(&self, seed: &Node) -> Client {
        let builder = Client::builder().cluster(&self.name).secret(SECRET).seed(seed.addr());
        tokio::time::timeout(PATIENCE, builder.connect()).await.expect("a client in time").unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_goes_on_with_what_the_disk_of_a_node_holds_that_serves_nothing() {
    let mut durable = Durable::new();
    durable.start(0..3, 3).await;
    for n in 0..50u32 {
        durable.nodes[0].kv().put(format!("key-{n}"), format!("{n}")).await.unwrap();
    }
    durable.stop().await;
    for lost in [0, 1] {
        std::fs::remove_dir_all(durable.of(lost)).unwrap();
    }
    let third = started(|| durable.builder(2, 3)).await.unwrap();
    let client = durable.client(&third).await;
    let mut survey = client.survey(Duration::from_secs(2)).await;
    let cluster = survey.standings[0].cluster;
    let is_known = |survey: &Survey| plan_recovery(cluster, &survey.standings, Duration::ZERO).is_ok();
    for _ in 0..10 {
        // The node may not know its chains yet.
        if !is_known(&survey) {
            survey = client.survey(Duration::from_secs(2)).await;
        }
    }
    let no_lease = Duration::ZERO;
    let founding = plan_succession(cluster, &survey.standings, no_lease, no_lease, Replacement::Join);
    assert_eq!(founding, Err(NotReplaced::Served { node: "node-2".into() }));
    let plan = plan_recovery(cluster, &survey.standings, Duration::ZERO);
    let plan = plan.unwrap_or_else(|error| panic!("{error}: {survey:#?}"));
    assert_eq!((plan.by.id, plan.chains[0].gone_on_to, plan.chains[0].synced), (third.id(), None, true));
    let recovered = client.recover(&plan.by, cluster, plan.history, PATIENCE).await.unwrap();
    client.close().await;
    assert_eq!(recovered.plan.chains[0].last, plan.chains[0].last);
    durable.nodes.push(third);
    // The others begin with empty directories, and all restart once more.
    durable.start(0..2, 3).await;
    let read = async |durable: &Durable| {
        for n in 0..50u32 {
            let read = durable.nodes[0].kv().get(&format!("key-{n}")).await.unwrap();
            assert_eq!(read.value().map(|value| value.to_vec()), Some(format!("{n}").into_bytes()));
        }
    };
    read(&durable).await;
    durable.stop().await;
    durable.start(0..3, 3).await;
    read(&durable).await;
    durable.stop().await;
}

impl Durable {
    /// Starts three nodes that a test can cut off from each other.
    pub(super) async fn start_with_cuts(&mut self) -> Vec<Cuts> {
        let cuts: Vec<_> = (0..3).map(|_| Cuts::default()).collect();
        for (n, cuts) in (0..).zip(cuts.clone()) {
            let node = self.builder(n, 3).link_filter(Arc::new(move |addr| cuts.passes(addr)));
            self.nodes.push(node.start().await.unwrap());
        }
        self.start([], 3).await;
        cuts
    }

    async fn recover_first(&self) {
        let client = self.client(&self.nodes[0]).await;
        let survey = client.survey(Duration::from_secs(2)).await;
        let mine = survey.standings.iter().find(|standing| standing.me.id == self.nodes[0].id()).unwrap();
        let recovered = client.recover(&mine.me, mine.cluster, mine.history, PATIENCE).await;
        recovered.unwrap_or_else(|why| panic!("{why}: {survey:#?}"));
        client.close().await;
    }
}

async fn parted(node: &Node) -> Option<History> {
    node.status().await.log.and_then(|log| log.parted)
}

/// Two nodes continue and acknowledge writes, out of reach of the third, which an operator makes continue alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parted_histories_are_both_kept_until_an_operator_decides() {
    let mut durable = Durable::new();
    let cuts = durable.start_with_cuts().await;
    durable.nodes[0].kv().put("key", "both").await.unwrap();
    let addrs: Vec<_> = durable.nodes.iter().map(Node::addr).collect();
    for other in [1, 2] {
        cuts[0].cut(addrs[other]);
        cuts[other].cut(addrs[0]);
    }
    crate::support::until(async || durable.nodes[1].kv().put("theirs", "1").await.is_ok()).await;
    durable.recover_first().await;
    durable.nodes[0].kv().put("ours", "1").await.unwrap();
    cuts.iter().for_each(Cuts::heal);
    let newer = durable.nodes[0].status().await.log.unwrap().history;
    crate::support::until(async || {
        parted(&durable.nodes[1]).await == newer && parted(&durable.nodes[2]).await == newer
    })
    .await;
    // One of the waiting nodes restarts, and waits again.
    durable.nodes.remove(1).abort().await;
    let again = started(|| durable.builder(1, 3)).await.unwrap();
    crate::support::until(async || parted(&again).await == newer).await;
    durable.nodes.insert(1, again);
    for waiting in &durable.nodes[1..] {
        assert!(!waiting.status().await.ready);
        assert!(waiting.kv().get_local(b"theirs").is_err());
    }
    let client = durable.client(&durable.nodes[0]).await;
    let standings = client.survey_at(durable.nodes.iter().map(Node::addr), PATIENCE).await;
    let of = |n: usize| standings.iter().find(|standing| standing.me.id == durable.nodes[n].id()).unwrap();
    assert_eq!((of(0).yields, of(1).yields, of(2).yields), (false, true, true));
    assert_eq!((Some(of(0).history), of(0).branches[0].from), (newer, of(1).history));
    assert!(of(2).chains[0].last > of(0).branches[0].chains[0].last);
    client.close().await;
    // The operator keeps the older history.
    durable.stop().await;
    durable.start(1..3, 3).await;
    let kv = durable.nodes[0].kv();
    assert_eq!(kv.get("theirs").await.unwrap().value().map(|value| &value[..]), Some(&b"1"[..]));
    assert_eq!(kv.get("ours").await.unwrap().value(), None);
    durable.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_holds_nothing_beyond_the_branch_is_left_behind_and_stays_on_the_disk() {
    let mut durable = Durable::new();
    let cuts = durable.start_with_cuts().await;
    durable.nodes[0].kv().put("key", "value").await.unwrap();
    let addrs: Vec<_> = durable.nodes.iter().map(Node::addr).collect();
    for (n, cuts) in cuts.iter().enumerate() {
        addrs.iter().enumerate().filter(|(other, _)| *other != n).for_each(|(_, &addr)| cuts.cut(addr));
    }
    durable.recover_first().await;
    cuts.iter().for_each(Cuts::heal);
    for node in &durable.nodes[1..] {
        let stopped = tokio::time::timeout(PATIENCE, node.stopped()).await.expect("it learns of the recovery in time");
        assert_eq!(stopped, Stopped::LeftBehind);
    }
    assert!(durable.of(1).join("control-1").exists());
    durable.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chain_whose_only_store_is_gone_goes_on_when_an_operator_accepts_that() {
    let mut durable = Durable::new();
    for n in 0..3 {
        let node = durable.builder(n, 3).configure(|config| config.chains.replicas = 1).start().await.unwrap();
        durable.nodes.push(node);
    }
    durable.start([], 3).await;
    durable.nodes[0].kv().put("key", "lost").await.unwrap();
    let guard = durable.nodes[0].kv().lock("jobs").acquire().await.unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    let mut served = 0;
    while durable.nodes[served].status().await.chains.is_empty() {
        served += 1;
    }
    let lost = durable.nodes.remove(served);
    let (name, member) = (lost.name().to_owned(), lost.id());
    let client = durable.client(&durable.nodes[0]).await;
    let leader_says = async || {
        let mut nodes: Vec<_> = durable.nodes.iter().map(|node| node.id().node).collect();
        nodes.push(member.node);
        for node in nodes {
            match client.reopen(node, ChainId(0), Duration::from_secs(10)).await {
                Err(AdminError::Rejected(NotReopened::NotLeading { .. })) => {}
                Err(AdminError::Rejected(why)) => return Some(Err(why)),
                Err(_) => {}
                Ok(reopened) => return Some(Ok(reopened)),
            }
        }
        None
    };
    crate::support::until(async || leader_says().await == Some(Err(NotReopened::Lives { member }))).await;
    lost.abort().await;
    drop(lost);
    std::fs::remove_dir_all(durable.dir.path().join(&name)).unwrap();
    let reopened = Mutex::new(None);
    crate::support::until(async || {
        *reopened.lock().unwrap() = leader_says().await.and_then(Result::ok);
        reopened.lock().unwrap().is_some()
    })
    .await;
    let reopened = reopened.into_inner().unwrap().unwrap();
    assert!(reopened.last.is_none() && reopened.by != member, "{reopened}");
    client.close().await;
    let kv = durable.nodes[0].kv();
    assert!(kv.get("key").await.unwrap().value().is_none());
    kv.put("key", "anew").await.unwrap();
    let guard = kv.lock("jobs").acquire().await.unwrap();
    assert!(guard.token() > token, "the chain has forgotten the lock, and its tokens rise");
    guard.release().await.unwrap();
    // The node whose directory is gone begins with an empty one, and all restart once more.
    let number = name.strip_prefix("node-").unwrap().parse().unwrap();
    durable.start([number], 3).await;
    for _ in 0..2 {
        for node in &durable.nodes {
            assert_eq!(node.kv().get("key").await.unwrap().value().map(|value| value.to_vec()), Some(b"anew".to_vec()));
        }
        durable.stop().await;
        durable.start(0..3, 3).await;
    }
    durable.stop().await;
}
