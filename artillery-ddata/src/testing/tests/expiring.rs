//! Applications whose keys expire, under many seeds.

use std::time::Duration;

use tokio::time::sleep;

use super::super::*;
use crate::{
    Batch, Kv, Script, Version,
    kv::{ExpireIf, Group},
};

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(3);

/// Single writes, batches and scripts that set, keep and remove expiries. Their results are ignored: the check verifies
/// them.
pub(super) async fn expiring(cluster: Cluster) {
    let handles = [cluster.client(), cluster.client(), cluster.kv(cluster.head()), cluster.kv(cluster.tail())];
    let tasks: Vec<_> = handles.into_iter().enumerate().map(|(number, kv)| tokio::spawn(mix(number, kv))).collect();
    for task in tasks {
        task.await.unwrap();
    }
}

async fn mix(number: usize, kv: Kv) {
    for round in 0..5_u32 {
        let name = format!("{number}/{round}");
        let _ = kv.compare_and_swap("lock", Version::NONE, name.clone()).ttl(SHORT).await;
        let _ = kv.increment("rate", 1).ttl_if_new(SHORT).await;
        let _ = kv.put("a", name.clone()).ttl(if round % 2 == 0 { SHORT } else { LONG }).await;
        let _ = kv.get("lock").await;
        let _ = kv.append("a", "x").await;
        let _ = kv.expire("lock", LONG).when(ExpireIf::Later).await;
        let _ = kv.get_many(["lock", "rate", "a", "b"]).await;
        sleep(SHORT * (1 + round % 3)).await;
        let _ = kv.get("a").await;
        let _ = kv.write(Batch::new().put("b", name.clone()).ttl(SHORT).expire("a", SHORT).increment("n", 1)).await;
        let _ = kv.put_sequential("queue/", name.clone()).ttl(LONG).await;
        if number == 0 {
            let _ = kv.persist("a").await;
            let _ = kv.put("b", name).keep_ttl().await;
        }
        let _ = kv.get_delete("b").await;
        let script = Group::new().put("s", "1").ttl(SHORT).copy("s", "t").expires_in("t").prepend("t", "0");
        let _ = kv.run(Script::new().group(script).group(Group::new().expire("u", SHORT, None).append("u", "y"))).await;
        let mut scan = kv.scan("");
        while let Some(Ok(_)) = scan.next().await {}
        sleep(SHORT).await;
        let _ = kv.run(Script::new().group(Group::new().get("s").get("t").increment("t", 1).persist("u"))).await;
    }
}

#[test]
fn keys_expire_correctly_under_trouble() {
    explore(0..40, expiring);
    Cluster::builder().durable().trouble(Trouble::rough()).explore(0..10, expiring);
}

/// A lock that frees itself: nobody else gets it before its time, and somebody gets it afterwards.
#[tokio::test(start_paused = true)]
async fn a_lock_frees_itself() {
    let cluster = Cluster::builder().seed(3).start().await;
    let (first, second) = (cluster.client(), cluster.client());
    first.compare_and_swap("lock", Version::NONE, "first").ttl(LONG).await.unwrap();
    sleep(LONG - SHORT).await;
    second.compare_and_swap("lock", Version::NONE, "second").ttl(LONG).await.unwrap_err();
    assert!(first.expire("lock", LONG).await.unwrap().result, "the first one renews it");
    sleep(LONG - SHORT).await;
    second.compare_and_swap("lock", Version::NONE, "second").ttl(LONG).await.unwrap_err();
    sleep(SHORT * 2).await;
    second.compare_and_swap("lock", Version::NONE, "second").ttl(LONG).await.unwrap();
    cluster.check().await;
}

/// Members that crash take their clocks with them: a key then stays longer, but never shorter.
#[test]
fn expiries_survive_crashes() {
    Cluster::builder().durable().explore(0..5, |cluster| async move {
        let kv = cluster.client();
        kv.put("k", "v").ttl(LONG).await.unwrap();
        for node in cluster.nodes() {
            cluster.power_cut(node);
        }
        sleep(LONG * 10).await;
        cluster.restart_all().await;
        assert_eq!(kv.get("k").await.unwrap().value().unwrap(), "v", "time without a member isn't counted");
        sleep(LONG + SHORT).await;
        assert!(kv.get("k").await.unwrap().value().is_none());
    });
}
