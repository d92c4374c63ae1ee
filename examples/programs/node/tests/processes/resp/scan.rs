//! A scan of many keys, one page from each node in turn, while other keys are created and deleted.

use std::collections::BTreeSet;

use super::{Wire, cluster, port};

const KEYS: usize = 100_000;
const AT_A_TIME: usize = 500;

#[tokio::test]
async fn a_walk_from_node_to_node_meets_every_key() {
    let cluster = cluster().await;
    let mut nodes = Vec::new();
    for node in 0..3 {
        nodes.push(Wire::to(&port(&cluster, node)).await);
    }
    for first in (0..KEYS).step_by(AT_A_TIME) {
        let keys: Vec<_> = (first..first + AT_A_TIME).map(|n| format!("k/{n}")).collect();
        let words: Vec<_> = ["MSET"].into_iter().chain(keys.iter().flat_map(|key| [key.as_str(), "v"])).collect();
        assert_eq!(nodes[first % 3].call(&words).await, "+OK\r\n");
    }
    let (mut cursor, mut met, mut pages) = ("0".to_owned(), BTreeSet::new(), 0);
    loop {
        let page = nodes[pages % 3].call(&["SCAN", &cursor, "COUNT", "1000"]).await;
        pages += 1;
        let lines: Vec<_> = page.split("\r\n").collect();
        met.extend(lines.iter().filter(|line| line.starts_with("k/")).map(|&line| line.to_owned()));
        lines[2].clone_into(&mut cursor);
        if cursor == "0" {
            break;
        }
        let (new, old) = (format!("other/{pages}"), format!("other/{}", pages - 1));
        assert_eq!(nodes[pages % 3].call(&["SET", &new, "v"]).await, "+OK\r\n");
        assert!(nodes[pages % 3].call(&["DEL", &old]).await.starts_with(':'));
    }
    assert_eq!(met.len(), KEYS);
}
