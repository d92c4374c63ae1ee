//! A node that is cut off must report that, and never answer from an outdated state.

use std::time::Duration;

use artillery_processes::TEST_TIMEOUT;
use tokio::time::{Instant, sleep};

use super::{Wire, cluster, port};

#[tokio::test]
async fn without_a_lease_nothing_is_read() {
    let cluster = cluster().await;
    let mut wire = Wire::to(&port(&cluster, 2)).await;
    assert_eq!(wire.call(&["SET", "k", "v"]).await, "+OK\r\n");
    for node in &cluster.nodes[..2] {
        node.signal("-STOP").await;
    }
    let begun = Instant::now();
    // The third node may still answer until its lease ends.
    let told = loop {
        match wire.call(&["GET", "k"]).await {
            value if value == "$1\r\nv\r\n" => assert!(begun.elapsed() < TEST_TIMEOUT, "it still answers"),
            told => break told,
        }
        sleep(Duration::from_millis(20)).await;
    };
    assert!(told.starts_with("-NOLEASE "), "{told}");
    // A write can't be committed: it is refused, or its outcome is unknown.
    let told = wire.call(&["INCR", "n"]).await;
    assert!(["-NOCHAIN ", "-BUSY ", "-NOLEASE ", "-UNKNOWN "].iter().any(|word| told.starts_with(word)), "{told}");
    // Each command may take five seconds, but pipelined reads don't wait one after the other.
    let begun = Instant::now();
    let together = [&["VGET", "k"][..], &["MGET", "k", "n"], &["GET", "k"], &["GET", "n"]].repeat(3);
    wire.send(&together).await;
    for _ in &together {
        let told = wire.reply().await;
        assert!(told.starts_with("-NOLEASE "), "{told}");
    }
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?} for {} reads", begun.elapsed(), together.len());
    for node in &cluster.nodes[..2] {
        node.signal("-CONT").await;
    }
    let begun = Instant::now();
    while wire.call(&["GET", "k"]).await != "$1\r\nv\r\n" {
        assert!(begun.elapsed() < TEST_TIMEOUT, "the node doesn't answer again");
    }
    let count = wire.call(&["INCR", "n"]).await;
    assert!([":1\r\n", ":2\r\n"].contains(&count.as_str()), "{count}");
}
