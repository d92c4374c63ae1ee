//! The Redis protocol of a node, tested by bytes and by third-party clients.

use artillery_processes::{Cluster, Node, token};

mod abuse;
mod clients;
mod differential;
mod expiry;
mod keys;
mod lease;
mod order;
mod pipelines;
mod plain;
mod scan;
mod table;
mod transactions;
pub(crate) mod wire;

use self::wire::Wire;

async fn cluster() -> Cluster {
    Cluster::start(&["--resp", "127.0.0.1:0"]).await
}

fn port(cluster: &Cluster, node: usize) -> String {
    cluster.lines[node]["resp"].as_str().unwrap().to_owned()
}

/// A chain of one, with the address of its Redis port.
async fn alone(flags: &[&str]) -> (Node, String) {
    let (node, line) = Node::alone(&token(), &[&["--resp", "127.0.0.1:0"], flags].concat()).await;
    (node, line["resp"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn every_node_answers() {
    let cluster = cluster().await;
    let ports: Vec<_> = (0..3).map(|node| port(&cluster, node)).collect();
    for (at, here) in ports.iter().enumerate() {
        let mut wire = Wire::to(here).await;
        assert_eq!(wire.call(&["SET", "k", &at.to_string()]).await, "+OK\r\n");
        for there in &ports {
            assert_eq!(Wire::to(there).await.call(&["GET", "k"]).await, format!("$1\r\n{at}\r\n"));
        }
        let got = wire.call(&["VGET", "k"]).await;
        assert!(got.starts_with("*3\r\n$1\r\n") && got.ends_with(":0\r\n"), "{got}");
        assert_eq!(wire.call(&["VGET", "none"]).await, "*3\r\n$-1\r\n$3\r\n0.0\r\n:0\r\n");
        assert_eq!(wire.call(&["WAIT", "2", "0"]).await, ":2\r\n");
        assert_eq!(wire.call(&["WAIT", "3", "50"]).await, ":2\r\n");
        assert_eq!(wire.call(&["DBSIZE"]).await, ":1\r\n");
        let info = wire.call(&["INFO"]).await;
        let role = ["head", "middle", "tail"][at];
        assert!(info.contains(&format!("artillery_role:{role}\r\n")) && info.contains("db0:keys=1"), "{info}");
        assert!(wire.call(&["INFO", "keyspace"]).await.starts_with("$"));
        let roles = wire.call(&["ROLE"]).await;
        assert!(roles.starts_with("*3\r\n$6\r\nmaster\r\n:") && roles.contains("*2\r\n*3\r\n"), "{roles}");
    }
}

#[tokio::test]
async fn nodes_of_one_thread_answer() {
    let cluster = Cluster::start_with(("TOKIO_WORKER_THREADS", "1"), &["--resp", "127.0.0.1:0"]).await;
    for node in 0..3 {
        let mut wire = Wire::to(&port(&cluster, node)).await;
        assert_eq!(wire.call(&["INCR", "n"]).await, format!(":{}\r\n", node + 1));
        assert_eq!(wire.call(&["GET", "n"]).await, format!("$1\r\n{}\r\n", node + 1));
    }
}

#[tokio::test]
async fn writes_of_many_connections_travel_together() {
    const CONNECTIONS: usize = 32;
    const WRITES: usize = 40;
    let cluster = cluster().await;
    let (here, there) = (port(&cluster, 1), port(&cluster, 2));
    let mut wire = Wire::to(&here).await;
    // The sequence in the version of a write counts the updates.
    let mut sequence = async |key: &str| {
        assert_eq!(wire.call(&["SET", key, "v"]).await, "+OK\r\n");
        let got = wire.call(&["VGET", key]).await;
        let version = got.split("\r\n").find(|line| line.contains('.')).unwrap();
        version.split('.').nth(1).unwrap().parse::<usize>().unwrap()
    };
    let before = sequence("before").await;
    let mut writers = tokio::task::JoinSet::new();
    for connection in 0..CONNECTIONS {
        let here = here.clone();
        writers.spawn(async move {
            let mut wire = Wire::to(&here).await;
            for write in 0..WRITES {
                let (key, value) = (format!("{connection}"), format!("{write}"));
                assert_eq!(wire.call(&["SET", &key, &value]).await, "+OK\r\n");
                assert_eq!(wire.call(&["GET", &key]).await, format!("${}\r\n{value}\r\n", value.len()));
            }
        });
    }
    writers.join_all().await;
    let updates = sequence("after").await - before;
    assert!(updates < CONNECTIONS * WRITES, "{updates} updates");
    let mut wire = Wire::to(&there).await;
    for connection in 0..CONNECTIONS {
        let last = format!("{}", WRITES - 1);
        assert_eq!(wire.call(&["GET", &connection.to_string()]).await, format!("${}\r\n{last}\r\n", last.len()));
    }
}

/// Two nodes, whose head accepts smaller values than the other one. Returns the other's port.
async fn strict_head() -> (Vec<Node>, String) {
    loop {
        let (name, token) = (format!("test-{}", token()), token());
        let flags = ["--expect", "2", "--replicas", "2", "--resp", "127.0.0.1:0", "--max-value-bytes"];
        let start = |most| Node::start(&name, &token, &[&flags[..], &[most]].concat());
        let mut nodes = vec![start("1000"), start("1000000")];
        let lines = [nodes[0].ready().await, nodes[1].ready().await];
        if lines[0]["role"] == "head" {
            return (nodes, lines[1]["resp"].as_str().unwrap().to_owned());
        }
    }
}

#[tokio::test]
async fn a_refused_write_spoils_no_other_of_its_update() {
    let (_nodes, port) = strict_head().await;
    let mut writers = tokio::task::JoinSet::new();
    for connection in 0..32 {
        let port = port.clone();
        writers.spawn(async move {
            let (mut wire, is_large) = (Wire::to(&port).await, connection % 8 == 0);
            let (key, value) = (connection.to_string(), "v".repeat(if is_large { 3000 } else { 10 }));
            for _ in 0..20 {
                let said = wire.call(&["SET", &key, &value]).await;
                assert_eq!(said == "+OK\r\n", !is_large, "{said}");
            }
        });
    }
    writers.join_all().await;
}

#[tokio::test]
async fn versions_are_conditions() {
    let (_node, port) = alone(&[]).await;
    let mut wire = Wire::to(&port).await;
    let version = |reply: &str| reply.split("\r\n").nth(1).unwrap().to_owned();
    let first = version(&wire.call(&["VSET", "k", "0.0", "a"]).await);
    assert_eq!(wire.call(&["VSET", "k", "0.0", "b"]).await, format!("-CONFLICT {first}\r\n"));
    let second = version(&wire.call(&["VSET", "k", &first, "b"]).await);
    assert_ne!(first, second);
    assert_eq!(wire.call(&["VSET", "none", &second, "b"]).await, "-CONFLICT 0.0\r\n");
    assert!(wire.call(&["VSET", "k", "x", "b"]).await.starts_with("-ERR "));
    for command in [["VSET", "k", &first, "c"], ["VSET", "k", &second, "c"]] {
        wire.send(&[&["MULTI"]]).await;
        wire.send(&[&command]).await;
        wire.send(&[&["EXEC"]]).await;
        assert_eq!((wire.reply().await, wire.reply().await), ("+OK\r\n".into(), "+QUEUED\r\n".into()));
        let done = wire.reply().await;
        let wanted = if command[2] == first { format!("*1\r\n-CONFLICT {second}\r\n") } else { "*1\r\n$".to_owned() };
        assert!(done.starts_with(&wanted), "{done}");
    }
    assert_eq!(wire.call(&["GET", "k"]).await, "$1\r\nc\r\n");
}

#[tokio::test]
async fn commands_without_the_password_are_refused() {
    let word = token();
    let (_node, line) = Node::behind_a_password(&word, &["--resp", "127.0.0.1:0"]).await;
    let no = "-NOAUTH Authentication required.\r\n";
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    let mut wire = Wire::to(line["resp"].as_str().unwrap()).await;
    assert_eq!(wire.call(&["GET", "k"]).await, no);
    assert_eq!(wire.call(&["SET", "k", "v"]).await, no);
    assert_eq!(wire.call(&["MULTI"]).await, no);
    assert!(wire.call(&["HELLO", "3"]).await.starts_with("-NOAUTH HELLO must be called"));
    assert_eq!(wire.call(&["AUTH", "wrong"]).await, wrong);
    assert_eq!(wire.call(&["AUTH", "other", &word]).await, wrong);
    assert_eq!(wire.call(&["GET", "k"]).await, no);
    assert_eq!(wire.call(&["AUTH", &word]).await, "+OK\r\n");
    assert_eq!(wire.call(&["GET", "k"]).await, "$-1\r\n");
    assert_eq!(wire.call(&["RESET"]).await, "+RESET\r\n");
    assert_eq!(wire.call(&["GET", "k"]).await, no);
    assert!(wire.call(&["HELLO", "3", "AUTH", "default", &word, "SETNAME", "me"]).await.starts_with("%7\r\n"));
    assert_eq!(wire.call(&["GET", "k"]).await, "_\r\n");
    assert_eq!(wire.call(&["CLIENT", "GETNAME"]).await, "$2\r\nme\r\n");
}

#[tokio::test]
async fn a_scan_continues_at_another_node() {
    let cluster = cluster().await;
    let mut wires = Vec::new();
    for node in 0..3 {
        wires.push(Wire::to(&port(&cluster, node)).await);
    }
    let keys: Vec<_> = (0..2000).map(|key| format!("key:{key}")).collect();
    let pairs: Vec<_> = keys.iter().flat_map(|key| [key.as_str(), "v"]).collect();
    assert_eq!(wires[0].call(&[&["MSET"], pairs.as_slice()].concat()).await, "+OK\r\n");
    let (mut cursor, mut seen, mut turn) = ("0".to_owned(), std::collections::BTreeSet::new(), 0);
    loop {
        turn += 1;
        // Other keys are created and deleted during the scan.
        let other = format!("other:{turn}");
        wires[turn % 3].call(&["SET", &other, "v"]).await;
        wires[turn % 3].call(&["DEL", &format!("other:{}", turn / 2)]).await;
        let page = wires[turn % 3].call(&["SCAN", &cursor, "MATCH", "key:*", "COUNT", "100"]).await;
        let mut words = page.split("\r\n").filter(|line| !line.starts_with(['*', '$']) && !line.is_empty());
        cursor = words.next().unwrap().to_owned();
        seen.extend(words.map(str::to_owned));
        if cursor == "0" {
            break;
        }
    }
    assert!(turn >= 20, "{turn} pages");
    assert_eq!(seen, keys.into_iter().collect());
    assert!(wires[0].call(&["SCAN", "0", "TYPE", "string", "COUNT", "100"]).await.contains("\r\nkey:"));
    assert!(wires[0].call(&["SCAN", "0", "TYPE", "hash", "COUNT", "100"]).await.ends_with("\r\n*0\r\n"));
}
