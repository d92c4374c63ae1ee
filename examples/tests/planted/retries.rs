//! Mistakes about writes whose outcome is unknown.

use std::time::Duration;

use artillery_ddata::{Error, Kv, testing::Cluster};
use tokio::time::{sleep, timeout};

use crate::{
    app::{exists, number, once, text, was_applied},
    hunt::{hunt, rough},
};

#[test]
fn double_pay() {
    async fn shop(cluster: Cluster, pay: impl AsyncFn(&Kv)) {
        let kv = cluster.client();
        for _ in 0..3 {
            pay(&kv).await;
        }
        assert_eq!(number(&kv, "paid").await.1, 120, "the customer has paid twice");
    }
    let wrong = async |kv: &Kv| while kv.increment("paid", 40).await.is_err() {};
    let right = async |kv: &Kv| {
        let _ = once(kv.increment("paid", 40)).await;
    };
    hunt("payment repeated as a new request", rough(), |cluster| shop(cluster, wrong), |cluster| shop(cluster, right));
}

#[test]
fn message_sent_twice() {
    async fn outbox(cluster: Cluster, send: impl AsyncFn(&Kv, String)) {
        let kv = cluster.kv(cluster.tail());
        let sending = async {
            for message in ["a", "b", "c"] {
                send(&kv, message.to_owned()).await;
            }
        };
        // The node of this process may crash.
        let _ = timeout(Duration::from_secs(30), sending).await;
        let (_, sent) = text(&cluster.client(), "outbox").await;
        assert!("abc".starts_with(&sent), "a message is there twice, or out of order: {sent}");
    }
    let wrong = async |kv: &Kv, message: String| {
        while kv.append("outbox", message.clone()).await.is_err() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    let right = async |kv: &Kv, message: String| {
        let _ = once(kv.append("outbox", message)).await;
    };
    hunt(
        "message repeated as a new request",
        rough(),
        |cluster| outbox(cluster, wrong),
        |cluster| outbox(cluster, right),
    );
}

/// Takes three orders, and compares the answers to the customer with the data.
async fn orders(cluster: Cluster, order: impl AsyncFn(&Kv, &str) -> bool) {
    let kv = cluster.client();
    let mut answers = Vec::new();
    for key in ["order/1", "order/2", "order/3"] {
        answers.push((key, order(&kv, key).await));
    }
    // Delayed requests have arrived.
    cluster.check().await;
    for (key, is_taken) in answers {
        assert_eq!(is_taken, exists(&kv, key).await, "{key}: the customer has a wrong answer");
    }
}

/// Settles an unknown outcome before it answers.
async fn settled(kv: &Kv, key: &str) -> bool {
    match kv.put(key, "ada").timeout(Duration::from_secs(1)).await {
        Ok(_) => true,
        Err(Error::OutcomeUnknown { request_id, .. }) => was_applied(kv, request_id).await,
        Err(_) => false,
    }
}

#[test]
fn unknown_outcome_as_failure() {
    let wrong = async |kv: &Kv, key: &str| kv.put(key, "ada").timeout(Duration::from_secs(1)).await.is_ok();
    hunt("unknown outcome as failure", rough(), |cluster| orders(cluster, wrong), |cluster| orders(cluster, settled));
}

#[test]
fn unknown_outcome_as_success() {
    let wrong = async |kv: &Kv, key: &str| !matches!(kv.put(key, "ada").timeout(Duration::from_secs(1)).await, Err(error) if error.is_not_applied());
    hunt("unknown outcome as success", rough(), |cluster| orders(cluster, wrong), |cluster| orders(cluster, settled));
}

#[test]
fn outcome_by_reading() {
    let wrong = async |kv: &Kv, key: &str| {
        kv.put(key, "ada").timeout(Duration::from_secs(1)).await.is_ok() || exists(kv, key).await
    };
    hunt("outcome by reading", rough(), |cluster| orders(cluster, wrong), |cluster| orders(cluster, settled));
}

#[test]
fn dropped_call() {
    const LIMIT: Duration = Duration::from_millis(100);
    let wrong = async |kv: &Kv, key: &str| matches!(timeout(LIMIT, kv.put(key, "ada")).await, Ok(Ok(_)));
    let right = async |kv: &Kv, key: &str| match kv.put(key, "ada").timeout(LIMIT).await {
        Ok(_) => true,
        Err(Error::OutcomeUnknown { request_id, .. }) => was_applied(kv, request_id).await,
        Err(_) => false,
    };
    hunt("dropped call as failure", rough(), |cluster| orders(cluster, wrong), |cluster| orders(cluster, right));
}

#[test]
fn copies_as_replicas() {
    async fn shop(cluster: Cluster, order: impl AsyncFn(&Kv, &str) -> bool) {
        if cluster.seed() % 5 == 4 {
            cluster.crash(cluster.tail());
        }
        orders(cluster, order).await;
    }
    let wrong = async |kv: &Kv, key: &str| once(kv.put(key, "ada")).await.copies == 3;
    let right = async |kv: &Kv, key: &str| once(kv.put(key, "ada")).await.copies > 0;
    let builder = Cluster::builder();
    hunt("as many copies as replicas", builder, |cluster| shop(cluster, wrong), |cluster| shop(cluster, right));
}
