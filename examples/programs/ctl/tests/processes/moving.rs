//! An operator's orders under load: members change places and two leave, without failures at clients.

use std::time::Duration;

use artillery_processes::{Cluster, eventually};
use serde_json::Value;
use tokio::time::sleep;

const SECONDS: &str = "12";

async fn members(cluster: &Cluster) -> Vec<String> {
    let status = cluster.json(0, &["status"]).await;
    let members = status["chains"][0]["members"].as_array().cloned().unwrap_or_default();
    let serving = members.iter().filter(|member| member["role"] != "syncing");
    serving.map(|member| member["node"].as_str().unwrap().to_owned()).collect()
}

async fn until(cluster: &Cluster, wanted: impl Fn(&[String]) -> bool) -> Vec<String> {
    eventually(async || {
        let members = members(cluster).await;
        if wanted(&members) { Ok(members) } else { Err(format!("{members:?}")) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn members_change_places_and_leave_under_load() {
    let cluster = Cluster::start(&[]).await;
    let order = until(&cluster, |members| members.len() == 3).await;
    let few = ["load", "--clients", "4", "--rate", "400", "--seconds", SECONDS, "--reads", "50", "--check"];
    let load = [&["--timeout", "10000"], &few[..]].concat();
    let work = async {
        sleep(Duration::from_secs(1)).await;
        let turned: Vec<String> = order.iter().rev().cloned().collect();
        let mut args = vec!["reorder", "0"];
        args.extend(turned.iter().map(String::as_str));
        let done = cluster.json(0, &args).await;
        assert_eq!(done["chain"], 0, "{done}");
        until(&cluster, |members| members == turned).await;
        cluster.json(0, &["drain", &turned[0]]).await;
        until(&cluster, |members| members == &turned[1..]).await;
        cluster.json(0, &["drain", &turned[1]]).await;
        until(&cluster, |members| members == &turned[2..]).await;
        let refused = cluster.json(1, &["drain", &turned[2]]).await;
        assert!(refused["error"].as_str().is_some_and(|error| error.contains("last serving member")), "{refused}");
    };
    let (report, ()): (Value, ()) = tokio::join!(cluster.json(0, &load), work);
    assert_eq!((&report["errors"], &report["wrong"]), (&0.into(), &0.into()), "{report}");
    let unknown = cluster.json(1, &["reorder", "0", "nobody"]).await;
    assert!(unknown["error"].as_str().is_some_and(|error| error.contains("nobody")), "{unknown}");
}
