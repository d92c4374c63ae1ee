//! Keys that expire, and conditions on values.

use std::time::Duration;

use tokio::time::Instant;

use super::{Wire, alone, cluster, port};

async fn wires() -> (artillery_processes::Cluster, Vec<Wire>) {
    let cluster = cluster().await;
    let mut wires = Vec::new();
    for node in 0..3 {
        wires.push(Wire::to(&port(&cluster, node)).await);
    }
    (cluster, wires)
}

/// Sends the commands of a line, separated by `;`, and returns the last answer.
async fn said(wire: &mut Wire, line: &str) -> String {
    let mut said = String::new();
    for command in line.split("; ") {
        said = wire.call(&command.split(' ').collect::<Vec<_>>()).await;
    }
    said
}

/// Waits until the key is absent at every node. Its time to live is never negative before.
async fn until_absent(wires: &mut [Wire], key: &str) {
    let began = Instant::now();
    for wire in wires {
        loop {
            match wire.call(&["PTTL", key]).await.as_str() {
                ":-2\r\n" => break,
                left => assert!(!left.starts_with(":-") && left.starts_with(':'), "{left}"),
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{key} stays");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn keys_vanish_once_they_are_due() {
    let (_cluster, mut wires) = wires().await;
    let began = Instant::now();
    assert_eq!(said(&mut wires[0], "SET k v PX 400; SET l v; PEXPIRE l 400").await, ":1\r\n");
    assert_eq!(
        said(&mut wires[1], "MULTI; PSETEX m 400 v; GETEX n PX 1; APPEND n v; PEXPIRE n 400; EXEC").await,
        "*4\r\n+OK\r\n$-1\r\n:1\r\n:1\r\n"
    );
    let seen = said(&mut wires[2], "MGET k l m n").await;
    assert!(
        seen == "*4\r\n$1\r\nv\r\n$1\r\nv\r\n$1\r\nv\r\n$1\r\nv\r\n" || began.elapsed() > Duration::from_millis(400),
        "{seen}"
    );
    for key in ["k", "l", "m", "n"] {
        until_absent(&mut wires, key).await;
    }
    assert!(began.elapsed() >= Duration::from_millis(390), "{:?}", began.elapsed());
    assert_eq!(said(&mut wires[1], "EXISTS k l m n").await, ":0\r\n");
    assert_eq!(said(&mut wires[1], "SET k w NX").await, "+OK\r\n");
    assert_eq!(said(&mut wires[0], "TTL k").await, ":-1\r\n");
}

#[tokio::test]
async fn writes_meet_no_dead_value() {
    let (_cluster, mut wires) = wires().await;
    for round in 0..20 {
        let (set, wait) = (format!("SET k{round} v PX 1"), Duration::from_millis(20));
        assert_eq!(said(&mut wires[0], &set).await, "+OK\r\n");
        tokio::time::sleep(wait).await;
        assert_eq!(said(&mut wires[1], &format!("SETNX k{round} w")).await, ":1\r\n", "round {round}");
        assert_eq!(said(&mut wires[2], &format!("GET k{round}")).await, "$1\r\nw\r\n");
    }
}

#[tokio::test]
async fn values_are_conditions() {
    let (_cluster, mut wires) = wires().await;
    let cases = [
        ("SET k a IFEQ x", "$-1\r\n"),
        ("SET k a IFEQ x GET", "$-1\r\n"),
        ("EXISTS k", ":0\r\n"),
        ("SET k a IFNE x", "+OK\r\n"),
        ("SET k b IFNE a", "$-1\r\n"),
        ("SET k b IFEQ a GET", "$1\r\na\r\n"),
        ("SET k c IFEQ a GET", "$1\r\nb\r\n"),
        ("SET k c IFEQ b EX 100", "+OK\r\n"),
        ("TTL k", ":100\r\n"),
        ("SET k d KEEPTTL IFEQ c", "+OK\r\n"),
        ("TTL k", ":100\r\n"),
        ("SET k e IFNE x EXAT 1", "+OK\r\n"),
        ("EXISTS k", ":0\r\n"),
        ("SET k a NX IFEQ a", "-ERR syntax error\r\n"),
        ("SET k a IFEQ a XX", "-ERR syntax error\r\n"),
        ("SET k a IFEQ a IFNE b", "-ERR syntax error\r\n"),
        ("SET k a IFEQ", "-ERR syntax error\r\n"),
        ("DELEX k", ":0\r\n"),
        ("DELEX k IFNE x", ":0\r\n"),
        ("DELIFEQ k x", ":0\r\n"),
        ("SET k a", "+OK\r\n"),
        ("DELEX k IFEQ x", ":0\r\n"),
        ("DELEX k IFNE a", ":0\r\n"),
        ("DELIFEQ k x", ":0\r\n"),
        ("DELIFEQ k a", ":1\r\n"),
        ("SET k a; DELEX k IFNE b", ":1\r\n"),
        ("SET k a; DELEX k IFEQ a", ":1\r\n"),
        ("SET k a; DELEX k", ":1\r\n"),
        ("DELEX k IFXX a", "-ERR syntax error\r\n"),
        ("DELEX k IFEQ", "-ERR wrong number of arguments for 'delex' command\r\n"),
        ("DELIFEQ k", "-ERR wrong number of arguments for 'delifeq' command\r\n"),
        (
            "MULTI; SET k a IFEQ b; SET k a IFNE b; SET k b IFEQ a GET; DELEX k IFEQ a; DELIFEQ k b; DELEX k IFNE z; EXEC",
            "*6\r\n$-1\r\n+OK\r\n$1\r\na\r\n:0\r\n:1\r\n:0\r\n",
        ),
    ];
    for (at, (line, wanted)) in cases.into_iter().enumerate() {
        assert_eq!(said(&mut wires[at % 3], line).await, wanted, "{line}");
    }
}

#[tokio::test]
async fn pipelines_set_expiries_in_order() {
    let (_cluster, mut wires) = wires().await;
    for wire in &mut wires {
        for line in ["SET p 1 EX 100", "TTL p", "SET p 2 EX 200 XX", "TTL p", "PERSIST p", "TTL p", "GETEX p EX 50"] {
            wire.send(&[&line.split(' ').collect::<Vec<_>>()]).await;
        }
        for wanted in ["+OK\r\n", ":100\r\n", "+OK\r\n", ":200\r\n", ":1\r\n", ":-1\r\n", "$1\r\n2\r\n"] {
            assert_eq!(wire.reply().await, wanted);
        }
    }
}

#[tokio::test]
async fn a_node_tells_how_many_keys_expire() {
    let (_node, port) = alone(&["--max-memory-bytes", "64MiB"]).await;
    let mut wire = Wire::to(&port).await;
    said(&mut wire, "MSET a 1 b 2 c 3; EXPIRE a 100; SET d 4 EX 100; PERSIST a").await;
    let info = said(&mut wire, "INFO keyspace").await;
    assert!(info.contains("db0:keys=4,expires=1,avg_ttl=0\r\n"), "{info}");
    assert_eq!(said(&mut wire, "CONFIG GET maxmemory").await, "*2\r\n$9\r\nmaxmemory\r\n$8\r\n67108864\r\n");
    let time = said(&mut wire, "TIME").await;
    let lines: Vec<_> = time.split("\r\n").collect();
    assert!(lines[0] == "*2" && lines[2].parse::<u64>().unwrap() > 1_600_000_000, "{time}");
    assert!(lines[4].parse::<u32>().unwrap() < 1_000_000, "{time}");
}

#[tokio::test]
async fn a_transaction_that_can_set_no_expiry_changes_nothing() {
    let (_node, port) = alone(&["--max-memory-bytes", "1MiB"]).await;
    let mut wire = Wire::to(&port).await;
    let value = "v".repeat(50_000);
    let mut keys = 0;
    while wire.call(&["SET", &format!("k{keys}"), &value]).await == "+OK\r\n" {
        keys += 1;
        assert!(keys < 1000, "the memory is never full");
    }
    let told = said(&mut wire, "MULTI; DEL k0; SET e v EX 100; EXEC").await;
    assert!(told.starts_with("-OOM "), "{told}");
    assert_eq!(said(&mut wire, "EXISTS k0 e").await, ":1\r\n");
    // A key may still expire: that adds no value.
    assert_eq!(said(&mut wire, "EXPIRE k0 100").await, ":1\r\n");
}
