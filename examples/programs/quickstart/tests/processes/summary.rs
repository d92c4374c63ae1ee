//! Runs of `quickstart`, as by a newcomer.

use artillery_processes::{QUICKSTART, assert_documented, documented, expect};
use serde_json::Value;

fn summary(out: &str) -> Value {
    serde_json::from_str(out.lines().last().unwrap()).unwrap()
}

#[tokio::test]
async fn two_at_once_keep_their_promises() {
    let args = ["--json"];
    let (one, other) = tokio::join!(expect(0, &QUICKSTART, None, &args), expect(0, &QUICKSTART, None, &args));
    for (out, _) in [one, other] {
        let summary = summary(&out);
        assert_documented(&documented("`quickstart --json`"), &summary, "quickstart");
        assert!(summary["found_by"] == "mdns" && summary["nodes"] == 3 && summary["failovers"] == 1, "{summary}");
        assert!(summary["acked"].as_u64().unwrap() >= 100 && summary["verified"] == summary["acked"], "{summary}");
        assert!(summary["dirty_reads"].as_u64().unwrap() > 0, "{summary}");
        assert!(summary["version_queries"].as_u64().unwrap() > 0, "{summary}");
        let clean = summary["clean_reads"].as_array().unwrap();
        assert!(clean.len() == 3 && clean.iter().all(|count| count.as_u64().unwrap() > 0), "{summary}");
        assert!(summary["seconds"].is_f64(), "{summary}");
    }
}

#[tokio::test]
async fn what_is_on_disk_outlives_all_nodes() {
    let place = std::env::temp_dir().join(format!("artillery-quickstart-{}", artillery_processes::token()));
    let (out, err) = expect(0, &QUICKSTART, None, &["--json", "--data", place.to_str().unwrap()]).await;
    let summary = summary(&out);
    assert!(summary["restarted"] == 3 && summary["verified"] == summary["acked"], "{summary}");
    for word in ["No node is left", "starts again", "open again"] {
        assert!(err.contains(word), "{err}");
    }
    std::fs::remove_dir_all(place).unwrap();
}

#[tokio::test]
async fn without_mdns_no_peer_is_found() {
    let (out, err) = expect(1, &QUICKSTART, None, &["--json", "--no-mdns"]).await;
    let summary = summary(&out);
    assert!(summary["found_by"].is_null() && summary["acked"] == 0, "{summary}");
    assert!(err.contains("no peer was found"), "{err}");
}

#[tokio::test]
async fn the_story_is_printed() {
    let (out, _) = expect(0, &QUICKSTART, None, &[]).await;
    for word in ["mDNS", "head", "dirty", "dora", "promise"] {
        assert!(out.contains(word), "{out}");
    }
}
