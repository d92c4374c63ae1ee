//! Commands of one connection take effect in order, however they are sent.

use super::{Wire, cluster, port};

#[tokio::test]
async fn a_pipeline_sees_its_own_writes() {
    let cluster = cluster().await;
    for node in 0..3 {
        let mut wire = Wire::to(&port(&cluster, node)).await;
        let mut bytes = Vec::new();
        for n in 0..300 {
            bytes.extend(
                format!("SET {node}:k {n}\r\nGET {node}:k\r\nINCR {node}:n\r\nAPPEND {node}:a x\r\n").into_bytes(),
            );
            bytes.extend(format!("STRLEN {node}:a\r\nMGET {node}:k {node}:n\r\nPING\r\nDEL {node}:k\r\n").into_bytes());
            bytes.extend(format!("SET {node}:k {n} NX\r\nSETNX {node}:k y\r\nGETSET {node}:k z\r\n").into_bytes());
            bytes.extend(format!("INCR {node}:k\r\nEXISTS {node}:k\r\n").into_bytes());
        }
        wire.write(&bytes).await;
        let value = |n: usize| format!("${}\r\n{n}\r\n", n.to_string().len());
        for n in 0..300 {
            let count = n + 1;
            let answers = [
                "+OK\r\n".to_owned(),
                value(n),
                format!(":{count}\r\n"),
                format!(":{count}\r\n"),
                format!(":{count}\r\n"),
                format!("*2\r\n{}{}", value(n), value(count)),
                "+PONG\r\n".to_owned(),
                ":1\r\n".to_owned(),
                "+OK\r\n".to_owned(),
                ":0\r\n".to_owned(),
                value(n),
                "-ERR value is not an integer or out of range\r\n".to_owned(),
                ":1\r\n".to_owned(),
            ];
            for (at, answer) in answers.into_iter().enumerate() {
                assert_eq!(wire.reply().await, answer, "answer {at} of round {n} at node {node}");
            }
        }
    }
}

#[tokio::test]
async fn nothing_is_lost_between_many_connections() {
    let cluster = cluster().await;
    let ports: Vec<_> = (0..3).map(|node| port(&cluster, node)).collect();
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..24 {
        let port = ports[client % 3].clone();
        clients.spawn(async move {
            let mut wire = Wire::to(&port).await;
            for _ in 0..20 {
                wire.write(b"INCR n\r\nINCRBY n 2\r\nGET n\r\nSET mine 1\r\nINCR n\r\n").await;
                for _ in 0..5 {
                    let reply = wire.reply().await;
                    assert!(!reply.starts_with('-'), "{reply}");
                }
            }
        });
    }
    clients.join_all().await;
    assert_eq!(Wire::to(&ports[2]).await.call(&["GET", "n"]).await, format!("$4\r\n{}\r\n", 24 * 20 * 4));
}
