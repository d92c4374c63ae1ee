//! What `ctl` answers, and its exit codes.

use crate::support::{CTL, Cluster, expect, token};

#[tokio::test]
async fn values_versions_and_exit_codes() {
    let cluster = Cluster::start(&[]).await;
    let at = cluster.addrs[1].as_str();
    let (out, err) = cluster.ctl(at, 1, &["get", "absent"]).await;
    assert!(out.is_empty() && err.contains("absent"), "{err}");
    cluster.ctl(at, 0, &["put", "key", "one"]).await;

    let read = cluster.json(0, &["get", "key"]).await;
    assert_eq!((&read["key"], &read["value"], &read["state"]), (&"key".into(), &"one".into(), &"clean".into()));
    let version = read["version"].as_str().unwrap();
    let swapped = cluster.json(0, &["cas", "key", version, "two"]).await;
    assert_ne!(swapped["version"], read["version"]);
    let conflict = cluster.json(4, &["cas", "key", version, "three"]).await;
    assert_eq!(conflict["conflict"], swapped["version"]);
    cluster.ctl(at, 4, &["cas", "key", "0.0", "three"]).await;
    cluster.ctl(at, 0, &["cas", "created", "0.0", "new"]).await;

    for mode in ["strong", "chain", "eventual"] {
        assert_eq!(cluster.ctl(at, 0, &["get", "key", "--read", mode]).await.0, "two\n");
    }
    cluster.ctl(at, 0, &["del", "key"]).await;
    let absent = cluster.json(1, &["get", "key"]).await;
    assert!(absent["value"].is_null() && absent["version"] == "0.0", "{absent}");
}

#[tokio::test]
async fn by_mdns_the_cluster_is_found_too() {
    let cluster = Cluster::start(&[]).await;
    cluster.ctl(&cluster.addrs[0], 0, &["put", "key", "value"]).await;
    let secret = Some(cluster.secret.as_str());
    let found = ["--cluster", &cluster.name, "--timeout", "30000", "get", "key"];
    assert_eq!(expect(0, CTL, secret, &found).await.0, "value\n");
}

#[tokio::test]
async fn an_unknown_outcome_has_its_own_code() {
    let mut cluster = Cluster::start(&[]).await;
    cluster.nodes[2].kill().await;
    // The head takes the write in, and the tail will never commit it.
    let answer = cluster.json(3, &["--timeout", "1500", "put", "key", "value"]).await;
    assert_eq!(answer["kind"], "outcome_unknown", "{answer}");
}

#[tokio::test]
async fn a_wrong_secret_is_named() {
    let cluster = Cluster::start(&[]).await;
    let wrong = token();
    let args = ["--cluster", &cluster.name, "--no-mdns", "--seed", &cluster.addrs[0], "get", "key"];
    let (out, err) = expect(1, CTL, Some(&wrong), &args).await;
    assert!(out.is_empty() && err.contains("secret"), "{err}");
}
