//! Most voters of the configuration log are lost permanently: what still works, what is refused, and how an operator
//! recovers the cluster (docs/DESIGN.md §5.12).

use std::time::Duration;

use artillery_ddata::{Client, Error, ReadMode, Refusal, Session};
use artillery_processes::{CTL, Cluster, Node, expect, run, text, token};
use serde_json::Value;
use tokio::time::Instant;

async fn ctl(cluster: &Cluster, addr: &str, args: &[&str]) -> (Option<i32>, String, String) {
    let all = [&["--cluster", &cluster.name, "--no-mdns", "--seed", addr, "--timeout", "2000"], args].concat();
    let done = run(&CTL, Some(&cluster.secret), &all).await;
    (done.status.code(), text(&done.stdout), text(&done.stderr))
}

async fn id(cluster: &Cluster) -> String {
    cluster.json(0, &["status"]).await["cluster_id"].as_str().unwrap().to_owned()
}

async fn fill(cluster: &Cluster) {
    for n in 0..20 {
        cluster.ctl(&cluster.addrs[0], 0, &["put", &format!("k/{n}"), &n.to_string()]).await;
    }
}

/// Three nodes with data, the id of their cluster, and the address of the last one.
async fn filled() -> (Cluster, String, String) {
    let cluster = Cluster::start(&[]).await;
    let id = id(&cluster).await;
    fill(&cluster).await;
    let last = cluster.addrs[2].clone();
    (cluster, id, last)
}

/// Runs a command under a lock, and returns the cluster and the token of the lock.
async fn locked(cluster: &Cluster, addr: &str) -> (String, String) {
    let print = ["lock", "jobs", "--", "sh", "-c", "echo $ARTILLERY_CLUSTER $ARTILLERY_TOKEN"];
    let (out, _) = cluster.ctl(addr, 0, &print).await;
    let (cluster, token) = out.trim().split_once(' ').unwrap();
    (cluster.to_owned(), token.to_owned())
}

async fn is_whole(cluster: &Cluster, addr: &str) {
    for n in [0, 7, 19] {
        let (out, _) = cluster.ctl(addr, 0, &["get", &format!("k/{n}")]).await;
        assert_eq!(out, format!("{n}\n"));
    }
}

/// Chain time continues after a recovery: a key stays as long as it should, and then ends.
async fn keys_end(cluster: &Cluster, addr: &str, key: &str) {
    let builder = Client::builder().cluster(&cluster.name).secret(&cluster.secret).seed(addr);
    let client = builder.connect().await.unwrap();
    let (kv, ttl, begun) = (client.kv(), Duration::from_secs(2), Instant::now());
    assert!(kv.expire(key, ttl).await.unwrap().result);
    while kv.get(key).await.unwrap().value().is_some() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the key stays");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(begun.elapsed() >= ttl.mul_f64(0.99), "{:?}", begun.elapsed());
}

/// Recovers the cluster at `addr`, the surviving node. Returns the output of `ctl`.
async fn recover(cluster: &Cluster, addr: &str, id: &str) -> Value {
    let begun = Instant::now();
    let (code, out, err) = ctl(cluster, addr, &["--json", "recover", "--accept-loss", id]).await;
    assert_eq!(code, Some(0), "{out}\n{err}");
    cluster.ctl(addr, 0, &["put", "after", "recovery"]).await;
    println!("recovered, and serving, after {:.1} s", begun.elapsed().as_secs_f64());
    serde_json::from_str(out.trim()).unwrap()
}

#[tokio::test]
async fn the_last_of_three_goes_on_when_it_is_told_to() {
    let (mut cluster, id, last) = filled().await;
    let lock = locked(&cluster, &last).await;
    assert!(lock < locked(&cluster, &last).await, "tokens rise");
    let lock = locked(&cluster, &last).await;
    let (code, _, err) = ctl(&cluster, &last, &["recover", "--accept-loss", &id]).await;
    assert!(code == Some(1) && err.contains("nothing is lost"), "{code:?} {err}");
    let (code, ..) = ctl(&cluster, &last, &["recover"]).await;
    assert_eq!(code, Some(2), "--accept-loss is required");
    let (code, _, err) = ctl(&cluster, &last, &["recover", "--accept-loss", "all"]).await;
    assert!(code == Some(2) && err.contains("32 hexadecimal digits"), "{err}");
    cluster.nodes[0].kill().await;
    let (code, _, err) = ctl(&cluster, &last, &["recover", "--accept-loss", &id]).await;
    assert!(code == Some(1) && err.contains("nothing is lost"), "{code:?} {err}");
    cluster.nodes[1].kill().await;
    // No configuration can remove the dead nodes, but the status counts only live copies.
    while status_at(&cluster, &last).await["chains"][0]["copies"] != 1 {}
    let (_, text, _) = ctl(&cluster, &last, &["status"]).await;
    assert!(text.contains(", 1 copies of each committed update"), "{text}");
    // Requests that need the other nodes are refused; all others still work.
    let (code, _, err) = ctl(&cluster, &last, &["put", "k/0", "x"]).await;
    assert!(code == Some(1) || code == Some(3), "{code:?} {err}");
    assert_eq!(cluster.ctl(&last, 0, &["get", "k/7", "--read", "eventual"]).await.0, "7\n");
    let other = token();
    let (code, _, err) = ctl(&cluster, &last, &["recover", "--accept-loss", &other]).await;
    assert!(code == Some(1) && err.contains(&id) && err.contains(&other), "{code:?} {err}");

    let done = recover(&cluster, &last, &id).await;
    assert_eq!(done["node"], cluster.lines[2]["node"], "{done}");
    keys_end(&cluster, &last, "after").await;
    let lock_after = locked(&cluster, &last).await;
    assert!(lock_after.0 == lock.0 && lock_after.1 > lock.1, "{lock_after:?} {lock:?}");
    assert!(done["history"].as_str().unwrap().starts_with("1-"), "{done}");
    let told = done["chains"][0]["text"].as_str().unwrap();
    assert!(told.contains("is kept") && told.to_lowercase().contains("missing"), "{told}");
    is_whole(&cluster, &last).await;
    let (_, _, err) = ctl(&cluster, &last, &["recover", "--accept-loss", &id]).await;
    assert!(err.contains("nothing is lost"), "a second recovery is refused: {err}");
    // Recovered, the cluster admits new nodes.
    let mut new = Node::start(&cluster.name, &cluster.secret, &["--no-mdns", "--seed", &last]);
    let line = new.ready().await;
    assert_eq!(line["role"], "tail", "{line}");
    is_whole(&cluster, line["addr"].as_str().unwrap()).await;
}

/// The output of `ctl status` at `addr`, which has exit code 1 if the cluster doesn't serve.
async fn status_at(cluster: &Cluster, addr: &str) -> Value {
    let (code, out, err) = ctl(cluster, addr, &["--json", "status"]).await;
    assert!(matches!(code, Some(0 | 1)) && !out.is_empty(), "{code:?} {err}");
    serde_json::from_str(out.trim()).unwrap()
}

fn is_of_another_history<T>(outcome: Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Refused { reason: Refusal::OtherHistory, .. }))
}

#[tokio::test]
async fn old_sessions_and_watches_are_refused_and_new_ones_are_not() {
    let (mut cluster, id, last) = filled().await;
    let builder = Client::builder().cluster(&cluster.name).secret(&cluster.secret).seed(&last);
    let client = builder.connect().await.unwrap();
    let kv = client.kv().with_timeout(Duration::from_secs(20));
    let old = Session::new();
    let put = kv.put("k/0", "before").session(&old).await.unwrap();
    let mut watch = kv.watch("k/").from(old.frontier()).await.unwrap();
    kv.put("k/0", "again").await.unwrap();
    assert!(watch.next().await.unwrap().unwrap().version > put.version);
    for node in &mut cluster.nodes[..2] {
        node.kill().await;
    }
    recover(&cluster, &last, &id).await;
    assert!(is_of_another_history(watch.next().await.unwrap()));
    for mode in [ReadMode::Strong, ReadMode::Eventual, ReadMode::ThroughChain] {
        assert!(is_of_another_history(kv.get("k/0").mode(mode).session(&old).await), "{mode:?}");
    }
    let new = Session::new();
    kv.put("k/0", "after").session(&new).await.unwrap();
    for mode in [ReadMode::Strong, ReadMode::Eventual] {
        let seen = kv.get("k/0").mode(mode).session(&new).await.unwrap();
        assert_eq!(seen.value().map(|value| &value[..]), Some(&b"after"[..]), "{mode:?}");
    }
    let mut watch = kv.watch("k/").from(new.frontier()).await.unwrap();
    kv.put("k/1", "after").await.unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap().key, "k/1");
}

/// The survivor's log still names the old incarnations of the restarted nodes, with stale addresses.
#[tokio::test]
async fn nodes_left_behind_rejoin_under_their_old_names() {
    let (mut cluster, id, last) = filled().await;
    for node in &mut cluster.nodes[..2] {
        node.kill().await;
    }
    recover(&cluster, &last, &id).await;
    let name = |line: &Value| line["node"].as_str().unwrap().to_owned();
    let names = [name(&cluster.lines[0]), name(&cluster.lines[1])];
    let flags = |name| ["--no-mdns", "--seed", &last, "--name", name];
    let mut back: Vec<_> = names.iter().map(|name| Node::start(&cluster.name, &cluster.secret, &flags(name))).collect();
    for (node, name) in back.iter_mut().zip(&names) {
        let line = node.ready().await;
        assert_eq!(line["node"], *name, "{line}");
        assert!(line["role"] == "middle" || line["role"] == "tail", "{line}");
        is_whole(&cluster, line["addr"].as_str().unwrap()).await;
    }
}

#[tokio::test]
async fn a_paused_node_stops_when_it_resumes() {
    let (mut cluster, id, last) = filled().await;
    for node in &cluster.nodes[..2] {
        node.signal("-STOP").await;
    }
    recover(&cluster, &last, &id).await;
    cluster.ctl(&last, 0, &["put", "k/0", "new"]).await;
    for node in &cluster.nodes[..2] {
        node.signal("-CONT").await;
    }
    for addr in &cluster.addrs[..2].to_vec() {
        let (code, out, _) = ctl(&cluster, addr, &["get", "k/0"]).await;
        assert!(code == Some(1) || out == "new\n", "a read of the abandoned history: {out}");
    }
    for node in &mut cluster.nodes[..2] {
        assert_eq!(node.ended().await, Some(1));
        let said = node.err.until(|lines| lines.iter().any(|line| line.contains("recovered without this node"))).await;
        assert!(said.is_some(), "{:?}", node.err.all());
    }
    assert_eq!(cluster.ctl(&last, 0, &["get", "k/0"]).await.0, "new\n");
    // Other nodes replace the ended ones.
    for _ in 0..2 {
        let mut node = Node::start(&cluster.name, &cluster.secret, &["--no-mdns", "--seed", &last]);
        let line = node.ready().await;
        assert_eq!(line["role"], "tail", "{line}");
        let at = line["addr"].as_str().unwrap();
        assert_eq!(cluster.ctl(at, 0, &["get", "k/0"]).await.0, "new\n");
        cluster.nodes.push(node);
    }
}

#[tokio::test]
async fn recovery_without_a_live_member_is_refused() {
    let (name, secret) = (format!("test-{}", token()), token());
    let mut nodes: Vec<_> =
        (0..5).map(|_| Node::start(&name, &secret, &["--expect", "5", "--replicas", "3"])).collect();
    let mut spares = Vec::new();
    for node in &mut nodes {
        let line = node.ready().await;
        if line["role"] == "spare" {
            spares.push(line["addr"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(spares.len(), 2);
    let seeds = ["--cluster", &name, "--no-mdns", "--seed", &spares[0], "--seed", &spares[1]];
    let (out, _) = expect(0, &CTL, Some(&secret), &[&seeds[..], &["--json", "status"]].concat()).await;
    let status: Value = serde_json::from_str(out.trim()).unwrap();
    let id = status["cluster_id"].as_str().unwrap();
    for node in &mut nodes {
        let role = serde_json::from_str::<Value>(&node.out.all()[0]).unwrap()["role"].clone();
        if role != "spare" {
            node.kill().await;
        }
    }
    let recover = ["--timeout", "2000", "recover", "--accept-loss", id];
    let (_, err) = expect(1, &CTL, Some(&secret), &[&seeds[..], &recover].concat()).await;
    assert!(err.contains("start a new cluster"), "{err}");
}

#[tokio::test]
async fn living_nodes_that_are_left_behind_are_named() {
    let (name, secret) = (format!("test-{}", token()), token());
    let start = || Node::start(&name, &secret, &["--expect", "5", "--replicas", "5"]);
    let mut nodes: Vec<_> = (0..5).map(|_| start()).collect();
    let mut left = Vec::new();
    for node in &mut nodes {
        let line = node.ready().await;
        left.push((line["node"].as_str().unwrap().to_owned(), line["addr"].as_str().unwrap().to_owned()));
    }
    let left = left.split_off(3);
    let seeds = ["--cluster", &name, "--no-mdns", "--seed", &left[0].1, "--seed", &left[1].1];
    let (out, _) = expect(0, &CTL, Some(&secret), &[&seeds[..], &["--json", "status"]].concat()).await;
    let status: Value = serde_json::from_str(out.trim()).unwrap();
    let id = status["cluster_id"].as_str().unwrap();
    for node in &mut nodes[..3] {
        node.kill().await;
    }
    let recover = ["--timeout", "2000", "--json", "recover", "--accept-loss", id];
    let (out, err) = expect(0, &CTL, Some(&secret), &[&seeds[..], &recover].concat()).await;
    let done: Value = serde_json::from_str(out.trim()).unwrap_or_else(|_| panic!("{out} {err}"));
    let at = left.iter().position(|(name, _)| done["node"] == **name).unwrap();
    assert_eq!(done["left_behind"], serde_json::json!([left[1 - at].0]), "{done}");
    assert_eq!(nodes[4 - at].ended().await, Some(1));
}
