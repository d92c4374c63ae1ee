//! The first line and the exit code of `ctl status`, and the reasons why no node is found.

use artillery_processes::{CTL, Cluster, eventually, expect, run, text, token};

#[tokio::test]
async fn status_begins_with_serving_and_fails_with_the_cause_when_two_of_three_are_dead() {
    let mut cluster = Cluster::start(&[]).await;
    let (table, _) = cluster.ctl(&cluster.addrs[0], 0, &["status"]).await;
    assert_eq!(table.lines().next(), Some("serving"), "{table}");
    let names: Vec<_> = cluster.lines.iter().map(|line| line["node"].as_str().unwrap().to_owned()).collect();
    cluster.nodes[2].kill().await;
    cluster.nodes[1].kill().await;
    let args = ["--cluster", &cluster.name, "--no-mdns", "--seed", &cluster.addrs[0], "--timeout", "2000", "status"];
    let table = eventually(async || {
        let done = run(&CTL, Some(&cluster.secret), &args).await;
        let table = text(&done.stdout);
        let first = table.lines().next().unwrap_or_default();
        let has_cause =
            first.starts_with("not serving: chain 0 is not served") && first.contains("no majority: 2 of 3");
        if done.status.code() == Some(1) && has_cause { Ok(table) } else { Err(format!("{:?} {table}", done.status)) }
    })
    .await;
    let first = table.lines().next().unwrap();
    assert!(names[1..].iter().all(|name| first.contains(name.as_str())), "{first}");
    assert!(table.contains(", 1 copies of each committed update (3 members configured)"), "{table}");
    let status = cluster.json(1, &["--timeout", "2000", "status"]).await;
    assert!(status["serving"] == false && status["problem"].as_str().unwrap().contains("no majority"), "{status}");
}

#[tokio::test]
async fn a_node_that_left_is_not_shown() {
    let mut cluster = Cluster::start(&[]).await;
    let name = cluster.lines[2]["node"].as_str().unwrap().to_owned();
    assert_eq!(cluster.nodes[2].stop("-TERM").await, Some(0));
    let (table, _) = cluster.ctl(&cluster.addrs[0], 0, &["status"]).await;
    assert!(!table.contains(&name), "{table}");
}

#[tokio::test]
async fn another_secret_found_by_mdns_is_named_and_another_cluster_is_not() {
    let cluster = Cluster::start(&[]).await;
    let of = |name: &str, secret: &str| {
        let args = ["--cluster", name, "--timeout", "4000", "get", "key"].map(str::to_owned);
        let secret = secret.to_owned();
        async move { expect(1, &CTL, Some(&secret), &args.each_ref().map(String::as_str)).await.1 }
    };
    let err = of(&cluster.name, &token()).await;
    assert!(err.contains("its secret or certificates differ"), "{err}");
    let err = of("another-name", &cluster.secret).await;
    assert!(err.contains("found no node of this cluster by mDNS") && !err.contains("secret"), "{err}");
}
