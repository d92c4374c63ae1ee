use super::*;

/// The status of a member, as a node printed it before the fields had types.
const MEMBER: &str = concat!(
    r#"{"node":"b","id":"26dca1f3c4b5968778695a4b3c2d1e0f/c2571122334455667788990011223344.1","addr":"127.0.0.1:40123","#,
    r#""cluster":"artillery","cluster_id":"de1e00000000000000000000000000ab","succeeds":["77ab00000000000000000000000000cd"],"#,
    r#""role":"middle","ready":true,"members":["#,
    r#"{"node":"a","id":"dce8a1f3c4b5968778695a4b3c2d1e0f/e93d1122334455667788990011223344.18446744073709551615","addr":"[fe80::1%3]:7400","state":"alive"},"#,
    r#"{"node":"c","id":"d54ea1f3c4b5968778695a4b3c2d1e0f/95ed1122334455667788990011223344.1","addr":"[::1]:7400","state":"suspect"},"#,
    r#"{"node":"d","id":"00000000000000000000000000000000/00000000000000000000000000000000.0","addr":"10.0.0.1:7400","state":"down"},"#,
    r#"{"node":"e","id":"ffffffffffffffffffffffffffffffff/ffffffffffffffffffffffffffffffff.2","addr":"10.0.0.2:7400","state":"left"}],"#,
    r#""chains":[{"chain":0,"epoch":1,"mode":"craq","members":["c","b","a"],"role":"middle","open":true,"last":"1.400","watermark":400,"#,
    r#""dirty_updates":0,"in_flight_bytes":0,"backlog_bytes":81920,"lease_ms":870,"copies":3,"parked_reads":0,"waiting_writes":0,"#,
    r#""unreplicated_records":0,"halted":null,"syncing":null,"receiving_records":null,"sending_records":null,"resyncs_full":0,"#,
    r#""resyncs_partial":0,"keys":20,"expiring":7,"store_bytes":41200,"full":null},"#,
    r#"{"chain":1,"epoch":9,"mode":"classic","members":["b"],"role":"head","open":false,"last":"0.0","watermark":0,"#,
    r#""dirty_updates":0,"in_flight_bytes":0,"backlog_bytes":0,"lease_ms":null,"copies":1,"parked_reads":0,"waiting_writes":0,"#,
    r#""unreplicated_records":7,"halted":"the store failed","syncing":"a","receiving_records":1,"sending_records":2,"resyncs_full":3,"#,
    r#""resyncs_partial":4,"keys":0,"expiring":0,"store_bytes":0,"full":"disk"},"#,
    r#"{"chain":2,"epoch":1,"mode":"craq","members":[],"role":"syncing","open":true,"last":"18446744073709551615.18446744073709551615","watermark":0,"#,
    r#""dirty_updates":0,"in_flight_bytes":0,"backlog_bytes":0,"lease_ms":0,"copies":0,"parked_reads":0,"waiting_writes":0,"#,
    r#""unreplicated_records":0,"halted":null,"syncing":null,"receiving_records":null,"sending_records":null,"resyncs_full":0,"#,
    r#""resyncs_partial":0,"keys":0,"expiring":0,"store_bytes":0,"full":"memory"}],"#,
    r#""reads":{"local_clean":120,"dirty":37,"version_query":9,"shared_query":28,"forwarded":0,"through_chain":0},"#,
    r#""traffic":{"frames_sent":900,"frame_bytes_sent":81920,"frames_received":880,"refused":0},"#,
    r#""memory_bytes":41200,"max_memory_bytes":1048576,"log":{"applied":1,"history":"3-de1e00000000000000000000000000ab","#,
    r#""leader":"c","voters":["a","b","c"],"lease_ms":870,"settled":false,"unready":"why","orphaned":false,"another_cluster":"text","#,
    r#""parted":"4-9a3f00000000000000000000000000ab","successor":{"cluster_id":"77ab00000000000000000000000000cd","yields":false}},"#,
    r#""loading":null,"waiting_for":["a reason"]}"#
);

/// The status of a node that loads its directory, and belongs to no cluster.
const LOADING: &str = concat!(
    r#"{"node":"b","id":"26dca1f3c4b5968778695a4b3c2d1e0f/c2571122334455667788990011223344.1","addr":"","cluster":"artillery","#,
    r#""cluster_id":null,"succeeds":[],"role":"spare","ready":false,"members":[],"chains":[],"#,
    r#""reads":{"local_clean":0,"dirty":0,"version_query":0,"shared_query":0,"forwarded":0,"through_chain":0},"#,
    r#""traffic":{"frames_sent":0,"frame_bytes_sent":0,"frames_received":0,"refused":0},"memory_bytes":0,"max_memory_bytes":null,"#,
    r#""log":{"applied":1,"history":"0-de1e00000000000000000000000000ab","leader":null,"voters":[],"lease_ms":0,"settled":true,"#,
    r#""unready":null,"orphaned":false,"another_cluster":null,"parted":null,"successor":null},"#,
    r#""loading":{"step":"take_in","records":1200000,"records_per_second":600000,"read_bytes":73400320,"total_bytes":220200960,"#,
    r#""elapsed_ms":2300,"left_ms":4000},"waiting_for":[]}"#
);

fn parsed(json: &str) -> NodeStatus {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

#[test]
fn the_json_keeps_its_bytes() {
    for json in [MEMBER.to_owned(), LOADING.to_owned(), LOADING.replace("take_in", "check")] {
        assert_eq!(serde_json::to_string(&parsed(&json)).unwrap(), json);
    }
}

/// A node of an older release doesn't report the fields that were added since.
#[test]
fn fields_that_are_absent_have_defaults() {
    let old = MEMBER
        .replace(r#""succeeds":["77ab00000000000000000000000000cd"],"#, "")
        .replace(r#""history":"3-de1e00000000000000000000000000ab","#, "")
        .replace(r#","full":"disk""#, "")
        .replace(r#""cluster_id":"de1e00000000000000000000000000ab","#, "")
        .replace(r#","successor":{"cluster_id":"77ab00000000000000000000000000cd","yields":false}"#, "");
    let again = MEMBER
        .replace(r#""succeeds":["77ab00000000000000000000000000cd"],"#, r#""succeeds":[],"#)
        .replace(r#""history":"3-de1e00000000000000000000000000ab","#, r#""history":"","#)
        .replace(r#""full":"disk""#, r#""full":null"#)
        .replace(r#""cluster_id":"de1e00000000000000000000000000ab""#, r#""cluster_id":null"#)
        .replace(r#"{"cluster_id":"77ab00000000000000000000000000cd","yields":false}"#, "null");
    assert_eq!(serde_json::to_string(&parsed(&old)).unwrap(), again);
}

#[test]
fn words_of_a_newer_release_are_kept() {
    let newer = MEMBER
        .replace("suspect", "asleep")
        .replace(r#""mode":"classic""#, r#""mode":"quorum""#)
        .replace("memory\"}", "files\"}");
    let status = parsed(&newer);
    assert_eq!(status.members[1].state, GossipState::Other("asleep".to_owned()));
    assert_eq!(status.chains[1].mode, ChainMode::Other("quorum".to_owned()));
    assert_eq!(status.chains[2].full, Some(Exhausted::Other("files".to_owned())));
    let loading = LOADING.replace("take_in", "sort");
    assert_eq!(parsed(&loading).loading.unwrap().step, LoadingStep::Other("sort".to_owned()));
    for json in [newer, loading] {
        assert_eq!(serde_json::to_string(&parsed(&json)).unwrap(), json);
    }
}

#[test]
fn fields_have_the_types_of_the_library() {
    let status = parsed(MEMBER);
    assert_eq!(status.id.to_string(), "26dca1f3c4b5968778695a4b3c2d1e0f/c2571122334455667788990011223344.1");
    assert_eq!((status.addr, parsed(LOADING).addr), (Some(([127, 0, 0, 1], 40123).into()), None));
    assert_eq!(status.members[0].state, GossipState::Alive);
    assert_eq!((&status.chains[0].mode, status.chains[0].last), (&ChainMode::Craq, Version::new(1, 400)));
    assert_eq!((status.chains[1].last, &status.chains[1].full), (Version::NONE, &Some(Exhausted::Disk)));
    assert_eq!(status.log.unwrap().history.unwrap().generation, 3);
    let unreadable = MEMBER.replace("1.400", "1-400");
    assert!(serde_json::from_str::<NodeStatus>(&unreadable).unwrap_err().to_string().contains("EPOCH.SEQUENCE"));
}
