//! `/metrics` of real nodes: the format, the page that documents it, and the counting of events.

use std::{collections::BTreeSet, io::Write, process::Stdio};

use artillery_processes::{CTL, Cluster, Members, Node, eventually, run, token};

use crate::{
    exposition::Page,
    http::{exchange, get},
};

type Metrics = BTreeSet<(String, String, BTreeSet<String>)>;

const HTTP: [&str; 2] = ["--http", "127.0.0.1:0"];

async fn scrape(http: &str) -> Page {
    let (code, body) = get(http, "/metrics", "").await;
    assert_eq!(code, 200, "{body}");
    Page::parse(&body).unwrap_or_else(|line| panic!("invalid line: {line}"))
}

/// The metrics that `docs/metrics.md` documents, one per row.
fn described() -> Metrics {
    let page = include_str!("../../../../../docs/metrics.md");
    let words = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<_>>();
    let rows = page.lines().filter(|line| line.starts_with("| `artillery_"));
    let row = |line: &str| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let name = words(cells[1]).pop_first().unwrap();
        assert!(cells[4].len() > 5, "{name}: the description is empty");
        (name, cells[2].to_owned(), words(cells[3]))
    };
    rows.map(row).collect()
}

/// The metrics that a node exports. The labels of a family without samples are unknown.
fn exported(page: &Page) -> Metrics {
    let labels = |samples: &[crate::exposition::Sample]| {
        let all = samples.iter().flat_map(|sample| sample.labels.keys().cloned());
        all.filter(|label| label != "le").collect()
    };
    page.families.iter().map(|(name, family)| (name.clone(), family.kind.clone(), labels(&family.samples))).collect()
}

fn promtool(text: &str) {
    let tool = std::process::Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).spawn();
    let Ok(mut tool) = tool else {
        println!("SKIPPED: promtool isn't installed: /metrics was checked by our own lint only");
        return;
    };
    tool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(tool.wait().unwrap().success());
}

#[tokio::test]
async fn exported_metrics_are_documented_and_well_formed() {
    let cluster = Cluster::start(&HTTP).await;
    cluster.ctl(&cluster.addrs[0], 0, &["put", "key", "value"]).await;
    for line in &cluster.lines {
        let http = line["http"].as_str().unwrap();
        let page = scrape(http).await;
        assert_eq!(page.lint(), [""; 0]);
        let (described, exported) = (described(), exported(&page));
        let only = |one: &Metrics, other: &Metrics| one.difference(other).cloned().collect::<Vec<_>>();
        assert_eq!((only(&described, &exported), only(&exported, &described)), (vec![], vec![]), "described, exported");
        promtool(&get(http, "/metrics", "").await.1);
        // The oldest scrapers send no host.
        for version in ["1.0", "1.1\r\nHost: localhost\r\nConnection: close"] {
            let (head, _) = exchange(http, &format!("GET /metrics HTTP/{version}\r\n\r\n")).await;
            assert!(head.to_lowercase().contains("content-type: text/plain; version=0.0.4"), "{head}");
        }
    }
}

struct Scrapes(Vec<Page>);

impl Scrapes {
    async fn of(members: &Members, names: &[String]) -> Self {
        let mut pages = Vec::new();
        for name in names {
            pages.push(scrape(&members.line(name, "http")).await);
        }
        Self(pages)
    }

    fn sum(&self, family: &str, labelled: Option<(&str, &str)>) -> f64 {
        let of = |page: &Page| match labelled {
            Some((label, value)) => page.sum(family, label, value),
            None => page.value(family),
        };
        self.0.iter().filter_map(of).sum()
    }
}

/// Waits until these nodes together have counted at least one.
async fn until(members: &Members, names: &[String], family: &str, labelled: Option<(&str, &str)>) {
    eventually(async || {
        let counted = Scrapes::of(members, names).await.sum(family, labelled) >= 1.0;
        counted.then_some(()).ok_or_else(|| format!("{family} {labelled:?} doesn't grow"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn served_requests_are_counted() {
    let members = Members::start(&HTTP).await;
    let names = members.serving(3).await;
    let kv = members.kv().await;
    let before = Scrapes::of(&members, &names).await;
    kv.put("key", "1").await.unwrap();
    kv.put("text", "none").await.unwrap();
    kv.increment("key", 1).await.unwrap();
    kv.increment("text", 1).await.unwrap_err();
    kv.compare_and_swap("key", artillery_ddata::Version::NONE, "3").await.unwrap_err().into_conflict().unwrap();
    kv.delete("gone").await.unwrap();
    kv.get("key").await.unwrap();
    kv.get("key").mode(artillery_ddata::ReadMode::ThroughChain).await.unwrap();
    // Many clients write and read few keys, so that reads find dirty versions and share version queries to the tail.
    let seed = members.line(&names[1], "addr");
    let secret = members.secret();
    let known = ["--cluster", &members.cluster, "--no-mdns", "--seed", &seed, "--timeout", "30000"];
    let load = ["load", "--clients", "64", "--seconds", "2", "--reads", "90", "--keys", "4"];
    assert!(run(&CTL, Some(secret), &[&known[..], &load[..]].concat()).await.status.success());
    let after = Scrapes::of(&members, &names).await;
    let grew = |family: &str, labelled: Option<(&str, &str)>| {
        let (was, is) = (before.sum(family, labelled), after.sum(family, labelled));
        assert!(is > was, "{family} {labelled:?}: {was}, then {is}");
        is - was
    };
    for way in ["local_clean", "dirty", "through_chain"] {
        grew("artillery_reads_total", Some(("way", way)));
    }
    grew("artillery_version_query_readers", None);
    let (queries, shared) = (grew("artillery_version_query_total", None), grew("artillery_shared_query_total", None));
    println!("{queries} version queries, {shared} reads that shared one");
    for outcome in ["done", "conflict", "refused"] {
        grew("artillery_operations_total", Some(("outcome", outcome)));
    }
    for kind in ["read", "put", "increment", "compare_and_swap", "delete"] {
        grew("artillery_operations_total", Some(("kind", kind)));
        grew("artillery_operation_duration_seconds", Some(("kind", kind)));
    }
    for family in
        ["artillery_chain_last_sequence", "artillery_chain_watermark_sequence", "artillery_chain_backlog_bytes"]
    {
        grew(family, Some(("chain", "0")));
    }
    for family in [
        "artillery_frames_sent_bytes_total",
        "artillery_udp_received_bytes_total",
        "artillery_connections_accepted_total",
    ] {
        grew(family, None);
    }
    assert_eq!(after.sum("artillery_members", Some(("state", "alive"))), 6.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn membership_changes_are_counted() {
    // The backlog is small, so that a new node needs a snapshot, but a node that was paused briefly doesn't.
    let mut members = Members::start(&[&HTTP[..], &["--backlog-bytes", "64KiB"]].concat()).await;
    let names = members.serving(3).await;
    let kv = members.kv().await;
    for n in 0..64 {
        kv.put(format!("large/{n}"), vec![0; 4 << 10]).await.unwrap();
    }
    // An unauthenticated client is refused, and counted by the reason.
    let secret = token();
    let addr = members.line(&names[0], "addr");
    let args = ["--cluster", &members.cluster, "--no-mdns", "--seed", &addr, "--timeout", "2000", "get", "key"];
    assert!(!run(&CTL, Some(&secret), &args).await.status.success());
    until(&members, &names[..1], "artillery_connections_refused_total", Some(("reason", "untrusted"))).await;

    // A member that is paused briefly is moved out, and returns by copying only the updates that it missed.
    members.node(&names[2]).signal("-STOP").await;
    members_of(&members, &names[..2]).await;
    until(&members, &names[..2], "artillery_configuration_changes_total", Some(("reason", "silent"))).await;
    members.node(&names[2]).signal("-CONT").await;
    until(&members, &names, "artillery_resync_total", Some(("kind", "partial"))).await;
    members.serving(3).await;

    // A new node is a spare, without data, until a member dies.
    let fourth = members.begin(&[]);
    let fourth = members.add(fourth).await;
    let spare = Scrapes::of(&members, std::slice::from_ref(&fourth)).await;
    assert_eq!(spare.sum("artillery_node_role", Some(("role", "spare"))), 1.0);
    assert!(spare.sum("artillery_forwarded_total", None) >= 1.0, "it queries a member before it is ready");
    assert_eq!(spare.sum("artillery_ready", None), 1.0);
    members.kill(&names[1]).await;
    let left = [names[0].clone(), names[2].clone(), fourth];
    until(&members, &left, "artillery_resync_total", Some(("kind", "full"))).await;
    members.serving(3).await;
    let after = Scrapes::of(&members, &left).await;
    for reason in ["silent", "joins", "promoted"] {
        assert!(after.sum("artillery_configuration_changes_total", Some(("reason", reason))) >= 1.0, "{reason}");
    }
    assert_eq!(after.sum("artillery_log_leads", None), 1.0);
}

/// Waits until as many members serve as there are names.
async fn members_of(members: &Members, names: &[String]) {
    eventually(async || {
        let page = scrape(&members.line(&names[0], "http")).await;
        let serve = page.sum("artillery_chain_copies", "chain", "0") == Some(names.len() as f64);
        serve.then_some(()).ok_or_else(|| format!("not {names:?} alone serve"))
    })
    .await;
}

async fn ready_is(http: &str, wanted: u16) {
    eventually(async || {
        let (code, _) = get(http, "/ready", "").await;
        if code == wanted { Ok(()) } else { Err(format!("/ready is {code}, not {wanted}")) }
    })
    .await;
}

async fn signal(nodes: &[Node], signal: &str) {
    for node in nodes {
        node.signal(signal).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_may_not_serve_is_not_ready() {
    let cluster = Cluster::start(&HTTP).await;
    let http = cluster.lines[0]["http"].as_str().unwrap();
    ready_is(http, 200).await;
    // With a majority of the voters paused, no lease is renewed.
    signal(&cluster.nodes[1..], "-STOP").await;
    ready_is(http, 503).await;
    assert_eq!(get(http, "/health", "").await.0, 200);
    let page = scrape(http).await;
    let lease = page.sum("artillery_chain_lease_seconds", "chain", "0");
    assert_eq!((page.value("artillery_ready"), lease), (Some(0.0), Some(0.0)));
    let (_, status) = get(http, "/status", "").await;
    assert!(status.contains(r#""ready":false"#), "{status}");
    signal(&cluster.nodes[1..], "-CONT").await;
    ready_is(http, 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spare_without_answers_is_not_ready() {
    let cluster = Cluster::start(&HTTP).await;
    let mut spare = Node::start(&cluster.name, &cluster.secret, &HTTP);
    let line = spare.ready().await;
    let http = line["http"].as_str().unwrap();
    ready_is(http, 200).await;
    signal(&cluster.nodes, "-STOP").await;
    ready_is(http, 503).await;
    signal(&cluster.nodes, "-CONT").await;
    ready_is(http, 200).await;
}
