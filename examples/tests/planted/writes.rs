//! Mistakes of writes that depend on what was read before, or on each other.

use std::time::Duration;

use artillery_ddata::{
    Batch, Error, Kv, Version,
    error::Advice,
    kv::{Expected, WriteError},
    testing::Cluster,
};
use tokio::{join, time::sleep};

use crate::{
    app::{exists, number, once, once_if, text},
    hunt::{hunt, rough, rough_but},
};

#[test]
fn lost_update() {
    async fn shop(cluster: Cluster, add: impl AsyncFn(&Kv, &str)) {
        let (phone, laptop) = (cluster.client(), cluster.client());
        join!(add(&phone, "milk"), add(&laptop, "bread"));
        let (_, cart) = text(&phone, "cart").await;
        assert!(cart.contains("milk") && cart.contains("bread"), "the cart has lost an item");
    }
    let wrong = async |kv: &Kv, item: &str| {
        let (_, cart) = text(kv, "cart").await;
        once(kv.put("cart", format!("{cart}{item} "))).await;
    };
    let right = async |kv: &Kv, item: &str| {
        loop {
            let (version, cart) = text(kv, "cart").await;
            if once_if(kv.compare_and_swap("cart", version, format!("{cart}{item} "))).await.is_ok() {
                return;
            }
        }
    };
    hunt("lost update", rough(), |cluster| shop(cluster, wrong), |cluster| shop(cluster, right));
}

#[test]
fn counter_by_read_and_write() {
    async fn visits(cluster: Cluster, count: impl AsyncFn(&Kv)) {
        let (one, other) = (cluster.client(), cluster.client());
        join!(count(&one), async {
            sleep(Duration::from_millis(cluster.seed() % 20)).await;
            count(&other).await;
        });
        assert_eq!(number(&one, "visits").await.1, 2, "a visit wasn't counted");
    }
    let wrong = async |kv: &Kv| {
        let (_, visits) = number(kv, "visits").await;
        once(kv.put("visits", (visits + 1).to_string())).await;
    };
    let right = async |kv: &Kv| {
        let _ = once(kv.increment("visits", 1)).await;
    };
    hunt("counter by read and write", rough(), |cluster| visits(cluster, wrong), |cluster| visits(cluster, right));
}

#[test]
fn check_then_act() {
    async fn sign_up(cluster: Cluster, claim: impl AsyncFn(&Kv, &'static str) -> bool) {
        let (one, other) = (cluster.client(), cluster.client());
        let (first, second) = join!(claim(&one, "first"), claim(&other, "second"));
        assert!(!(first && second), "two users have the same name");
    }
    let wrong = async |kv: &Kv, user: &'static str| {
        let is_free = !exists(kv, "name/ada").await;
        if is_free {
            once(kv.put("name/ada", user)).await;
        }
        is_free
    };
    let right =
        async |kv: &Kv, user: &'static str| once_if(kv.compare_and_swap("name/ada", Version::NONE, user)).await.is_ok();
    hunt("check then act", rough(), |cluster| sign_up(cluster, wrong), |cluster| sign_up(cluster, right));
}

#[test]
fn ignored_conflict() {
    const SEATS: i64 = 5;
    async fn theatre(cluster: Cluster, sell: impl AsyncFn(&Kv)) {
        let (one, other) = (cluster.client(), cluster.client());
        once(one.put("seats", SEATS.to_string())).await;
        join!(sell(&one), sell(&other));
        assert_eq!(number(&one, "seats").await.1, SEATS - 2, "a seat was sold twice");
    }
    let wrong = async |kv: &Kv| {
        let (version, seats) = number(kv, "seats").await;
        let _ = once_if(kv.compare_and_swap("seats", version, (seats - 1).to_string())).await;
    };
    let right = async |kv: &Kv| {
        loop {
            let (version, seats) = number(kv, "seats").await;
            if once_if(kv.compare_and_swap("seats", version, (seats - 1).to_string())).await.is_ok() {
                return;
            }
        }
    };
    hunt("ignored conflict", rough(), |cluster| theatre(cluster, wrong), |cluster| theatre(cluster, right));
}

#[test]
fn two_puts_instead_of_a_batch() {
    async fn bank(cluster: Cluster, transfer: impl AsyncFn(&Kv)) {
        let (teller, auditor) = (cluster.client(), cluster.client());
        once(teller.put("ada", "100")).await;
        once(teller.put("bob", "0")).await;
        let audit = async {
            for _ in 0..8 {
                if let Ok(read) = auditor.get_many(["ada", "bob"]).await {
                    let parse = |value: &bytes::Bytes| std::str::from_utf8(value).unwrap().parse::<i64>().unwrap();
                    let sum: i64 = read.values().flatten().map(parse).sum();
                    assert_eq!(sum, 100, "money has disappeared");
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        join!(transfer(&teller), audit);
    }
    let wrong = async |kv: &Kv| {
        once(kv.increment("ada", -30)).await;
        once(kv.increment("bob", 30)).await;
    };
    let right = async |kv: &Kv| {
        let batch = Batch::new().increment("ada", -30).increment("bob", 30);
        once_if(kv.write(batch)).await.expect("a batch without requirements");
    };
    hunt("two puts instead of a batch", rough(), |cluster| bank(cluster, wrong), |cluster| bank(cluster, right));
}

#[test]
fn batch_over_several_chains() {
    /// Whether the order was accepted. Refuses it if nothing is left, and treats no other error as final.
    async fn order(kv: &Kv, stock: &str, order: &str) -> bool {
        let batch = Batch::new().require(stock, Expected::Present).delete(stock).put(order, "ada");
        let mut call = kv.write(batch.clone());
        loop {
            call = match call.await {
                Ok(_) => return true,
                Err(WriteError::Call(Error::OutcomeUnknown { request_id, .. })) => {
                    kv.write(batch.clone()).request_id(request_id)
                }
                Err(WriteError::Call(error)) if error.way_on() == Advice::Retry => kv.write(batch.clone()),
                Err(_) => return false,
            };
        }
    }
    async fn shop(cluster: Cluster, [stock, key]: [&str; 2]) {
        let kv = cluster.client();
        once(kv.put(stock, "one piece")).await;
        assert!(order(&kv, stock, key).await, "an order was refused although there is stock");
    }
    // On one chain the mistake would be correct.
    let chains = rough().chains(4);
    let (wrong, right) = (["stock/7", "order/1"], ["stock/{7}", "order/{7}/1"]);
    hunt("batch over several chains", chains, |cluster| shop(cluster, wrong), |cluster| shop(cluster, right));
}

#[test]
fn outcome_by_comparing_values() {
    /// Deposits 5, and withdraws 5 elsewhere.
    async fn bank(cluster: Cluster, deposit: impl AsyncFn(&Kv)) {
        let (one, other) = (cluster.client(), cluster.client());
        once(one.put("balance", "50")).await;
        join!(deposit(&one), async {
            sleep(Duration::from_millis(cluster.seed() % 30 * 200)).await;
            once(other.increment("balance", -5)).await
        });
        // Delayed requests have arrived.
        cluster.check().await;
        assert_eq!(number(&one, "balance").await.1, 50, "a deposit was made twice, or not at all");
    }
    let wrong = async |kv: &Kv| {
        let (_, before) = number(kv, "balance").await;
        while kv.increment("balance", 5).timeout(Duration::from_secs(1)).await.is_err()
            && number(kv, "balance").await.1 == before
        {}
    };
    let right = async |kv: &Kv| {
        let _ = once(kv.increment("balance", 5).timeout(Duration::from_secs(1))).await;
    };
    let builder = rough_but(|trouble| trouble.lost_answers = 0.5);
    hunt("outcome by comparing values", builder, |cluster| bank(cluster, wrong), |cluster| bank(cluster, right));
}
