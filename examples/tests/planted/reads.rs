//! Mistakes about what a read, a watch or a copy shows.

use std::{cell::Cell, collections::BTreeMap, time::Duration};

use artillery_ddata::{Frontier, Kv, ReadMode, Session, Version, kv::Watch, testing::Cluster};
use bytes::Bytes;
use tokio::{
    join,
    time::{Instant, sleep, timeout},
};

use crate::{
    app::{exists, once, once_if, text},
    hunt::{hunt, rough, rough_but},
};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn eventual_read_of_a_permission() {
    /// Revokes a badge, then tries it at the door, whose node may be isolated.
    async fn door(cluster: Cluster, mode: ReadMode) {
        let (admin, node) = (cluster.client(), cluster.nodes()[cluster.seed() as usize % 3]);
        let door = cluster.kv(node).with_read_mode(mode);
        once(admin.put("badge/7", "valid")).await;
        if cluster.seed() % 4 == 3 {
            cluster.isolate(node);
        }
        once(admin.delete("badge/7")).await;
        // Without an answer, the door stays closed.
        let opens = door.get("badge/7").timeout(SECOND).await.is_ok_and(|badge| badge.value().is_some());
        assert!(!opens, "the door opens for a revoked badge");
    }
    let (wrong, right) = (ReadMode::Eventual, ReadMode::Strong);
    let builder = Cluster::builder();
    hunt("eventual read of a permission", builder, |cluster| door(cluster, wrong), |cluster| door(cluster, right));
}

#[test]
fn reads_without_a_session() {
    /// A page is shown twice, by different nodes, while a counter rises.
    async fn pages(cluster: Cluster, session: Option<Session>) {
        let writer = cluster.client();
        let counts = async {
            for count in 1..6 {
                let _ = writer.put("count", count.to_string()).await;
            }
        };
        let handles = [cluster.kv(cluster.head()), cluster.kv(cluster.tail())].map(|kv| match &session {
            Some(session) => kv.in_session(session),
            None => kv,
        });
        let page = async {
            let mut shown = Version::NONE;
            for round in 0..30 {
                if let Ok(read) = handles[round % 2].get("count").mode(ReadMode::Eventual).timeout(SECOND).await {
                    assert!(read.version() >= shown, "the second page is older than the first");
                    shown = read.version();
                }
                sleep(Duration::from_millis(7)).await;
            }
        };
        join!(counts, page);
    }
    let [wrong, right] = [|| None, || Some(Session::new())];
    hunt("reads without a session", rough(), |cluster| pages(cluster, wrong()), |cluster| pages(cluster, right()));
}

#[test]
fn cache_by_time() {
    /// Changes a price, and asks another process for it.
    async fn shop(cluster: Cluster, sell: impl AsyncFn(Kv, &Session, &Cell<bool>) -> String) {
        let (owner, session, changed) = (cluster.client(), Session::new(), Cell::new(false));
        once(owner.put("price/1", "10").session(&session)).await;
        let change = async {
            sleep(SECOND / 10).await;
            once(owner.put("price/1", "12").session(&session)).await;
            changed.set(true);
        };
        let (sold_at, ()) = join!(sell(cluster.client(), &session, &changed), change);
        assert_eq!(sold_at, "12", "sold at the former price");
    }
    async fn until(changed: &Cell<bool>) {
        while !changed.get() {
            sleep(SECOND / 50).await;
        }
    }
    let wrong = async |kv: Kv, _: &Session, changed: &Cell<bool>| {
        let (cached, since) = (text(&kv, "price/1").await.1, Instant::now());
        until(changed).await;
        if since.elapsed() < SECOND { cached } else { text(&kv, "price/1").await.1 }
    };
    let right = async |kv: Kv, session: &Session, changed: &Cell<bool>| {
        let view = loop {
            if let Ok(view) = kv.view("price/").await {
                break view;
            }
        };
        until(changed).await;
        view.caught_up_to_session(session).await.expect("the view follows its chain");
        String::from_utf8(view.get("price/1").expect("a price").value.to_vec()).expect("a text")
    };
    hunt("cache by time", rough(), |cluster| shop(cluster, wrong), |cluster| shop(cluster, right));
}

/// The entries of a copy.
type Entries = BTreeMap<Bytes, (Version, Bytes)>;

/// All keys of the prefix. A scan that fails is repeated.
async fn scan(kv: &Kv, session: &Session) -> Entries {
    loop {
        let (mut entries, mut copy) = (kv.scan("stock/").session(session), Entries::new());
        loop {
            match entries.next().await {
                Some(Ok(entry)) => copy.insert(entry.key, (entry.version, entry.value)),
                Some(Err(_)) => break,
                None => return copy,
            };
        }
    }
}

async fn watch(kv: &Kv, from: Option<&Frontier>) -> Watch {
    loop {
        let opened = match from {
            Some(position) => kv.watch("stock/").from(position.clone()).await,
            None => kv.watch("stock/").await,
        };
        match opened {
            Ok(watch) => return watch,
            Err(_) => sleep(SECOND / 50).await,
        }
    }
}

/// Writes some keys until the end, and sets `over`.
async fn write(kv: Kv, over: &Cell<bool>) {
    for number in 0..8 {
        once(kv.put(format!("stock/{number}"), number.to_string())).await;
        sleep(Duration::from_millis(15)).await;
    }
    over.set(true);
}

#[test]
fn gap_before_a_watch() {
    async fn mirror(cluster: Cluster, open: impl AsyncFn(&Kv) -> (Watch, Entries)) {
        let (kv, over) = (cluster.client(), Cell::new(false));
        let follow = async {
            sleep(Duration::from_millis(cluster.seed() % 10 * 10)).await;
            let (mut watch, mut copy) = open(&kv).await;
            loop {
                match timeout(SECOND * 3, watch.next()).await {
                    Ok(Some(Ok(change))) => {
                        if copy.get(&change.key).is_none_or(|&(version, _)| version < change.version) {
                            copy.insert(change.key, (change.version, change.value.expect("no key is deleted")));
                        }
                    }
                    Ok(_) => watch = self::watch(&kv, Some(&watch.position())).await,
                    Err(_) if over.get() => break,
                    Err(_) => {}
                }
            }
            copy
        };
        let (copy, ()) = join!(follow, write(cluster.client(), &over));
        assert_eq!(copy, scan(&kv, &Session::new()).await, "the copy has missed a change");
    }
    let wrong = async |kv: &Kv| {
        let copy = scan(kv, &Session::new()).await;
        (watch(kv, None).await, copy)
    };
    let right = async |kv: &Kv| {
        let watch = watch(kv, None).await;
        let copy = scan(kv, &Session::resume(watch.position())).await;
        (watch, copy)
    };
    let builder = rough_but(|trouble| (trouble.crashes, trouble.interruptions) = (false, false));
    hunt("gap before a watch", builder, |cluster| mirror(cluster, wrong), |cluster| mirror(cluster, right));
}

#[test]
fn watch_restarted_from_now() {
    /// Delivers each message to a receiver outside of the cluster. Its process dies with its node, and is restarted.
    async fn deliver(cluster: Cluster, keeps_position: bool) {
        let (node, over) = (cluster.nodes()[cluster.seed() as usize % 3], Cell::new(false));
        let (mut position, mut received) = (None, Entries::new());
        let process = async {
            for ends in [false, true] {
                let kv = if ends { cluster.kv(cluster.restart(node).await) } else { cluster.kv(node) };
                let mut watch = watch(&kv, position.as_ref().filter(|_| keeps_position)).await;
                let until = Instant::now() + Duration::from_millis(cluster.seed() % 12 * 20);
                loop {
                    let next = if ends { Instant::now() + SECOND * 10 } else { until };
                    let Ok(Some(Ok(change))) = tokio::time::timeout_at(next, watch.next()).await else { break };
                    received.insert(change.key, (change.version, change.value.unwrap_or_default()));
                    position = Some(watch.position());
                }
                position = Some(watch.position());
                if !ends {
                    cluster.crash(node);
                }
            }
        };
        let write = async {
            sleep(SECOND / 50).await;
            write(cluster.client(), &over).await;
        };
        join!(process, write);
        assert!(over.get());
        assert_eq!(received, scan(&cluster.client(), &Session::new()).await, "a message wasn't delivered");
    }
    hunt(
        "watch restarted from now",
        Cluster::builder(),
        |cluster| deliver(cluster, false),
        |cluster| deliver(cluster, true),
    );
}

#[test]
fn refresh_by_get_and_put() {
    async fn website(cluster: Cluster, touch: impl AsyncFn(&Kv)) {
        let (page, other) = (cluster.client(), cluster.client());
        once(page.put("login/7", "ada").ttl(SECOND * 60)).await;
        let log_out = async {
            sleep(Duration::from_millis(cluster.seed() % 20)).await;
            once(other.delete("login/7")).await;
        };
        join!(touch(&page), log_out);
        assert!(!exists(&page, "login/7").await, "a user who has logged out is logged in");
    }
    let wrong = async |kv: &Kv| {
        if let (_, user) = text(kv, "login/7").await
            && !user.is_empty()
        {
            once(kv.put("login/7", user).ttl(SECOND * 60)).await;
        }
    };
    let right = async |kv: &Kv| {
        let _ = once(kv.expire("login/7", SECOND * 60)).await;
    };
    hunt("refresh by get and put", rough(), |cluster| website(cluster, wrong), |cluster| website(cluster, right));
}

#[test]
fn queue_without_a_condition() {
    async fn queue(cluster: Cluster, take: impl AsyncFn(&Kv, &Bytes, Version) -> bool) {
        let (one, other) = (cluster.client(), cluster.client());
        for job in ["stock/1", "stock/2"] {
            once(one.put(job, "a job")).await;
        }
        let done = Cell::new(0);
        let work = async |kv: &Kv| {
            for (key, (version, _)) in scan(kv, &Session::new()).await {
                if take(kv, &key, version).await {
                    done.set(done.get() + 1);
                }
            }
        };
        join!(work(&one), async {
            sleep(Duration::from_millis(cluster.seed() % 10)).await;
            work(&other).await;
        });
        assert_eq!(done.get(), 2, "a job was done twice");
    }
    let wrong = async |kv: &Kv, key: &Bytes, _| {
        once(kv.delete(key)).await;
        true
    };
    let right = async |kv: &Kv, key: &Bytes, version| once_if(kv.compare_and_delete(key, version)).await.is_ok();
    hunt("queue without a condition", rough(), |cluster| queue(cluster, wrong), |cluster| queue(cluster, right));
}
