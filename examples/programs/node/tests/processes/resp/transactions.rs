//! Transactions of several connections at several nodes.

use super::{Wire, cluster, port};

#[tokio::test]
async fn watched_counters_lose_nothing() {
    let cluster = cluster().await;
    let ports: Vec<_> = (0..3).map(|node| port(&cluster, node)).collect();
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..6 {
        let port = ports[client % 3].clone();
        clients.spawn(async move {
            let mut wire = Wire::to(&port).await;
            let (mut done, mut lost) = (0, 0);
            while done < 10 {
                assert_eq!(wire.call(&["WATCH", "n"]).await, "+OK\r\n");
                let before = wire.call(&["GET", "n"]).await;
                let before: u64 = before.split("\r\n").nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
                let next = (before + 1).to_string();
                wire.send(&[&["MULTI"], &["SET", "n", &next], &["GET", "n"], &["EXEC"]]).await;
                for wanted in ["+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n"] {
                    assert_eq!(wire.reply().await, wanted);
                }
                let reply = wire.reply().await;
                if reply == "*-1\r\n" {
                    lost += 1;
                } else {
                    assert_eq!(reply, format!("*2\r\n+OK\r\n${}\r\n{next}\r\n", next.len()));
                    done += 1;
                }
            }
            lost
        });
    }
    let lost: u32 = clients.join_all().await.into_iter().sum();
    assert_eq!(Wire::to(&ports[0]).await.call(&["GET", "n"]).await, "$2\r\n60\r\n");
    assert!(lost > 0, "no transactions conflicted: the test shows nothing");
}

#[tokio::test]
async fn no_reader_sees_half_a_transaction() {
    let cluster = cluster().await;
    let mut writer = Wire::to(&port(&cluster, 1)).await;
    let mut reader = Wire::to(&port(&cluster, 2)).await;
    writer.call(&["MSET", "a", "0", "b", "0"]).await;
    let writing = async {
        for _ in 0..100 {
            writer.send(&[&["MULTI"], &["INCR", "a"], &["PING"], &["INCR", "b"], &["EXEC"]]).await;
            for _ in 0..4 {
                writer.reply().await;
            }
            assert!(writer.reply().await.starts_with("*3\r\n:"));
        }
    };
    let reading = async {
        for _ in 0..200 {
            let reply = reader.call(&["MGET", "a", "b"]).await;
            let words: Vec<_> = reply.split("\r\n").collect();
            assert_eq!(words[2], words[4], "{reply}");
        }
    };
    tokio::join!(writing, reading);
}
