//! The output of `ctl` and its exit codes.

use artillery_processes::{CTL, Cluster, Node, expect, token};

#[tokio::test]
async fn answers_carry_values_versions_and_exit_codes() {
    let cluster = Cluster::start(&[]).await;
    let at = cluster.addrs[1].as_str();
    let (out, err) = cluster.ctl(at, 1, &["get", "absent"]).await;
    assert!(out.is_empty() && err.contains("absent"), "{err}");
    cluster.ctl(at, 0, &["put", "key", "one"]).await;

    let read = cluster.json(0, &["get", "key"]).await;
    assert_eq!((&read["key"], &read["value"], &read["state"]), (&"key".into(), &"one".into(), &"clean".into()));
    assert!(read["node"].is_string() && read["role"].is_string(), "{read}");
    let version = read["version"].as_str().unwrap();
    let swapped = cluster.json(0, &["cas", "key", version, "two"]).await;
    assert_ne!(swapped["version"], read["version"]);
    let conflict = cluster.json(4, &["cas", "key", version, "three"]).await;
    assert_eq!(conflict["conflict"], swapped["version"]);
    cluster.ctl(at, 4, &["cas", "key", "0.0", "three"]).await;
    cluster.ctl(at, 0, &["cas", "created", "0.0", "new"]).await;

    for mode in ["strong", "chain", "eventual", "bounded:10,60000"] {
        let (out, err) = cluster.ctl(at, 0, &["get", "key", "--read", mode]).await;
        assert_eq!(out, "two\n");
        // Reads that may be stale or uncommitted are marked.
        let word = mode.split(':').next().unwrap();
        assert_eq!(err.contains(&format!("{word} read")), !["strong", "chain"].contains(&mode), "{err}");
        assert_eq!(cluster.json(0, &["get", "key", "--read", mode]).await["read"], *word);
    }
    cluster.ctl(at, 0, &["del", "key"]).await;
    let absent = cluster.json(1, &["get", "key"]).await;
    assert!(absent["value"].is_null() && absent["version"] == "0.0", "{absent}");
}

#[tokio::test]
async fn the_cluster_is_found_by_mdns() {
    let cluster = Cluster::start(&[]).await;
    cluster.ctl(&cluster.addrs[0], 0, &["put", "key", "value"]).await;
    let secret = Some(cluster.secret.as_str());
    let found = ["--cluster", &cluster.name, "--timeout", "30000", "get", "key"];
    assert_eq!(expect(0, &CTL, secret, &found).await.0, "value\n");
}

#[tokio::test]
async fn an_unknown_outcome_has_its_own_code() {
    let mut cluster = Cluster::start(&[]).await;
    let put = cluster.json(0, &["put", "key", "value"]).await;
    // The head can settle the next request only by an update, which the dead tail can't commit. The middle is dead too,
    // so no majority can shorten the chain.
    cluster.nodes[2].kill().await;
    cluster.nodes[1].kill().await;
    let request = put["request"].as_str().unwrap();
    let next = request.strip_suffix('1').unwrap().to_owned() + "2";
    let answer = cluster.json(3, &["--timeout", "1500", "outcome", &next]).await;
    assert_eq!(answer["kind"], "outcome_unknown", "{answer}");
    let settled = cluster.json(0, &["outcome", request]).await;
    assert_eq!((&settled["outcome"], &settled["version"]), (&"applied".into(), &put["version"]), "{settled}");
    // The client can't get a session, so the write itself isn't sent.
    let answer = cluster.json(1, &["--timeout", "1500", "put", "key", "value"]).await;
    assert_eq!(answer["kind"], "not_applied", "{answer}");
}

#[tokio::test]
async fn increments_appends_and_scans_are_answered() {
    let cluster = Cluster::start(&[]).await;
    let at = cluster.addrs[2].as_str();
    assert_eq!(cluster.ctl(at, 0, &["incr", "n/sold"]).await.0, "1\n");
    assert_eq!(cluster.ctl(at, 0, &["incr", "n/sold", "-3"]).await.0, "-2\n");
    assert_eq!(cluster.ctl(at, 0, &["append", "n/log", "abc"]).await.0, "3\n");
    let appended = cluster.json(0, &["append", "n/log", "de"]).await;
    assert_eq!((&appended["length"], &appended["replayed"]), (&5.into(), &false.into()), "{appended}");
    let (_, err) = cluster.ctl(at, 1, &["incr", "n/log"]).await;
    assert!(err.contains("not a decimal integer"), "{err}");
    cluster.ctl(at, 0, &["put", "other", "x"]).await;
    assert_eq!(cluster.ctl(at, 0, &["scan", "n/"]).await.0, "n/log\nn/sold\n");
    let (lines, _) = cluster.ctl(at, 0, &["--json", "scan", "n/s"]).await;
    let entry: serde_json::Value = serde_json::from_str(lines.trim()).unwrap();
    assert_eq!((&entry["key"], &entry["value"]), (&"n/sold".into(), &"-2".into()), "{entry}");
    let request = appended["request"].as_str().unwrap().strip_suffix('1').unwrap().to_owned() + "9";
    let never = cluster.json(0, &["outcome", &request]).await;
    assert_eq!(never["outcome"], "never_applied", "{never}");
}

/// Puts `w/a`, and returns the position of that change.
async fn put_and_follow(cluster: &Cluster) -> String {
    let first = cluster.json(0, &["put", "w/a", "1"]).await;
    let cluster_id = first["request"].as_str().unwrap().split_once('/').unwrap().0;
    format!("{cluster_id}/0={}", first["version"].as_str().unwrap().split_once('.').unwrap().1)
}

/// Watches `w/` from a position, by `ctl --json watch`.
fn watch(cluster: &Cluster, from: &str) -> Node {
    let known = ["--json", "--cluster", &cluster.name, "--no-mdns", "--seed", &cluster.addrs[1]];
    Node::of(&CTL, &cluster.secret, &[&known[..], &["watch", "w/", "--from", from]].concat())
}

#[tokio::test]
async fn changes_are_watched_from_a_position() {
    let cluster = Cluster::start(&[]).await;
    let at = cluster.addrs[1].as_str();
    let mut one = watch(&cluster, &put_and_follow(&cluster).await);
    cluster.ctl(at, 0, &["put", "other", "x"]).await;
    cluster.ctl(at, 0, &["put", "w/b", "2"]).await;
    cluster.ctl(at, 0, &["del", "w/a"]).await;
    let lines = one.out.until(|lines| lines.len() >= 2).await.unwrap();
    let changes: Vec<serde_json::Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&changes[0]["key"], &changes[0]["value"]), (&"w/b".into(), &"2".into()), "{lines:?}");
    assert_eq!((&changes[1]["key"], &changes[1]["value"]), (&"w/a".into(), &serde_json::Value::Null), "{lines:?}");
    // A watch from the first change's position prints only the second change.
    let mut other = watch(&cluster, changes[0]["position"].as_str().unwrap());
    assert_eq!(other.out.until(|lines| !lines.is_empty()).await.unwrap(), lines[1..]);
    let (_, err) = cluster.ctl(at, 2, &["watch", "w/", "--from", "1.7"]).await;
    assert!(err.contains("frontier"), "{err}");
}

#[tokio::test]
async fn keys_expire_and_their_expiry_is_shown_and_changed() {
    let cluster = Cluster::start(&[]).await;
    let at = cluster.addrs[1].as_str();
    for args in [&["ttl", "key"][..], &["ttl", "key", "--set", "1h"], &["ttl", "key", "--persist"]] {
        let (out, err) = cluster.ctl(at, 1, args).await;
        assert!(out.is_empty() && err.contains("key: not found"), "{err}");
    }
    cluster.ctl(at, 0, &["put", "key", "value"]).await;
    assert_eq!(cluster.ctl(at, 0, &["ttl", "key"]).await.0, "none\n");
    let plain = cluster.json(0, &["ttl", "key"]).await;
    assert!(plain["key"] == "key" && plain["expires_in_ms"].is_null(), "{plain}");
    let kept = cluster.json(0, &["ttl", "key", "--persist"]).await;
    assert_eq!(kept["changed"], false, "{kept}");

    // The key is due one millisecond after an hour of chain time.
    let hour = |left: u64| (3_000_000..=3_600_001).contains(&left);
    let renewed = cluster.json(0, &["ttl", "key", "--set", "1h"]).await;
    assert_eq!(renewed["changed"], true, "{renewed}");
    let (left, _) = cluster.ctl(at, 0, &["ttl", "key"]).await;
    assert!(hour(left.trim().parse().unwrap()), "{left}");
    let read = cluster.json(0, &["get", "key"]).await;
    assert!(hour(read["expires_in_ms"].as_u64().unwrap()), "{read}");
    cluster.ctl(at, 0, &["ttl", "key", "--persist"]).await;
    assert_eq!(cluster.ctl(at, 0, &["ttl", "key"]).await.0, "none\n");

    let mut watch = watch(&cluster, &put_and_follow(&cluster).await);
    cluster.ctl(at, 0, &["put", "w/short", "x", "--ttl", "250ms"]).await;
    let lines = watch.out.until(|lines| lines.len() >= 2).await.unwrap();
    let changes: Vec<serde_json::Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&changes[0]["value"], &changes[0]["expired"]), (&"x".into(), &false.into()), "{lines:?}");
    assert_eq!((&changes[1]["key"], &changes[1]["value"]), (&"w/short".into(), &serde_json::Value::Null), "{lines:?}");
    assert_eq!(changes[1]["expired"], true, "{lines:?}");
    cluster.ctl(at, 1, &["get", "w/short"]).await;
}

/// `ctl` must end when its reader closes the pipe, although no further change makes it write.
#[tokio::test]
async fn a_watch_ends_when_its_reader_is_gone() {
    const PIPE: &str = r#"{ "$0" "$@"; echo "exit code $?" >&2; } | head -n 1"#;
    let cluster = Cluster::start(&[]).await;
    let at = cluster.addrs[1].as_str();
    let from = put_and_follow(&cluster).await;
    cluster.ctl(at, 0, &["put", "w/b", "2"]).await;
    let known = ["-c", PIPE, &CTL, "--cluster", &cluster.name, "--no-mdns", "--seed", at];
    for (command, line) in [(&["watch", "w/", "--from", &from][..], "w/b\n"), (&["status", "--watch"], "")] {
        let (out, err) = expect(0, "sh", Some(&cluster.secret), &[&known[..], command].concat()).await;
        assert!(out.lines().count() == 1 && out.starts_with(line), "{out}");
        assert_eq!(err, "exit code 0\n");
    }
}

#[tokio::test]
async fn a_wrong_secret_is_named() {
    let cluster = Cluster::start(&[]).await;
    let wrong = token();
    let args = ["--cluster", &cluster.name, "--no-mdns", "--seed", &cluster.addrs[0], "get", "key"];
    let (out, err) = expect(1, &CTL, Some(&wrong), &args).await;
    assert!(out.is_empty() && err.contains("secret"), "{err}");
}
