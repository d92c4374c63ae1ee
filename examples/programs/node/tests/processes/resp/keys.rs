//! Commands about all keys: KEYS and FLUSHALL.

use artillery_processes::Cluster;

use super::{Wire, alone, cluster, port};

#[tokio::test]
async fn keys_are_listed_at_every_node() {
    let cluster = cluster().await;
    for node in 0..3 {
        let mut wire = Wire::to(&port(&cluster, node)).await;
        wire.call(&["MSET", "a:1", "v", "a:2", "v", "b:1", "v"]).await;
        assert_eq!(wire.call(&["KEYS", "a:?"]).await, "*2\r\n$3\r\na:1\r\n$3\r\na:2\r\n");
        assert_eq!(wire.call(&["KEYS", "none"]).await, "*0\r\n");
        wire.send(&[&["MULTI"], &["KEYS", "*"], &["EXEC"]]).await;
        assert_eq!(wire.reply().await, "+OK\r\n");
        assert_eq!(wire.reply().await, "-ERR KEYS is not allowed in transactions\r\n");
        assert!(wire.reply().await.starts_with("-EXECABORT "));
        for name in ["FLUSHALL", "FLUSHDB"] {
            let told = wire.call(&[name]).await;
            assert!(told.starts_with(&format!("-ERR {name} is refused")), "{told}");
        }
        assert_eq!(wire.call(&["DBSIZE"]).await, ":3\r\n");
    }
}

#[tokio::test]
async fn too_many_keys_are_not_listed() {
    let (_node, port) = alone(&[]).await;
    let mut wire = Wire::to(&port).await;
    for first in (0..100_000).step_by(2000) {
        let keys: Vec<_> = (first..first + 2000).map(|key| key.to_string()).collect();
        let words: Vec<_> = ["MSET"].into_iter().chain(keys.iter().flat_map(|key| [key, ""])).collect();
        assert_eq!(wire.call(&words).await, "+OK\r\n");
    }
    assert!(wire.call(&["KEYS", "9999*"]).await.starts_with("*11\r\n"));
    wire.call(&["SET", "one more", ""]).await;
    let told = wire.call(&["KEYS", "9999*"]).await;
    assert!(told.starts_with("-ERR KEYS is refused above 100000 keys"), "{told}");
}

#[tokio::test]
async fn all_keys_are_deleted_where_that_is_allowed() {
    let cluster = Cluster::start(&["--resp", "127.0.0.1:0", "--allow-flush"]).await;
    let mut wires = Vec::new();
    for node in 0..3 {
        wires.push(Wire::to(&port(&cluster, node)).await);
    }
    for (at, command) in
        [&["FLUSHALL"][..], &["FLUSHDB"], &["FLUSHALL", "ASYNC"], &["flushdb", "sync"]].iter().enumerate()
    {
        let keys: Vec<_> = (0..1500).map(|key| format!("k{key}")).collect();
        let words: Vec<_> = ["MSET"].into_iter().chain(keys.iter().flat_map(|key| [key.as_str(), "v"])).collect();
        assert_eq!(wires[at % 3].call(&words).await, "+OK\r\n");
        assert_eq!(wires[(at + 1) % 3].call(command).await, "+OK\r\n");
        for wire in &mut wires {
            assert_eq!(wire.call(&["KEYS", "*"]).await, "*0\r\n");
        }
    }
    let wire = &mut wires[0];
    assert_eq!(wire.call(&["FLUSHALL", "NOW"]).await, "-ERR syntax error\r\n");
    wire.send(&[&["MULTI"], &["FLUSHALL"], &["EXEC"]]).await;
    assert_eq!(wire.reply().await, "+OK\r\n");
    assert_eq!(wire.reply().await, "-ERR FLUSHALL is not allowed in transactions\r\n");
    assert!(wire.reply().await.starts_with("-EXECABORT "));
}
