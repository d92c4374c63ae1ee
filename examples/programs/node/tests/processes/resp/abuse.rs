//! Abuse that the port must withstand: garbage, oversized requests, and clients that don't read.

use std::time::Duration;

use artillery_processes::{Node, TEST_TIMEOUT, token};
use tokio::time::{Instant, timeout};

use super::{Wire, alone, wire::command};

#[tokio::test]
async fn garbage_ends_its_connection_alone() {
    let (node, port) = alone(&[]).await;
    let mut good = Wire::to(&port).await;
    let garbage: [&[u8]; 5] = [
        b"*1\r\n*1\r\n*1\r\n",
        b"*1\r\n$4\r\nPI\xff\xfe\r\n\x00\x00\r\n\"",
        b"*-99999999999999999999\r\n",
        b"*2147483647\r\n$1\r\nx\r\n",
        b"*1\r\n$9223372036854775807\r\n",
    ];
    for bytes in garbage {
        Wire::to(&port).await.burden(bytes).await;
        assert_eq!(good.call(&["SET", "k", "v"]).await, "+OK\r\n");
    }
    // Very deep nesting.
    Wire::to(&port).await.burden(&b"*1\r\n".repeat(1 << 18)).await;
    let mut long = Wire::to(&port).await;
    long.write(&[b'x'; 1 << 16]).await;
    assert_eq!(long.reply().await, "-ERR Protocol error: too big inline request\r\n");
    assert!(long.is_closed().await);
    assert_eq!(good.call(&["GET", "k"]).await, "$1\r\nv\r\n");
    assert!(node.err.all().is_empty(), "{:?}", node.err.all());
}

/// A web page can make a browser send such a request to a port on the same machine.
#[tokio::test]
async fn commands_in_requests_of_browsers_are_not_done() {
    let (_node, port) = alone(&[]).await;
    let set = command(&[b"SET", b"stolen", b"1"]);
    let inline = b"SET stolen 1\r\n".to_vec();
    let heads: [&[u8]; 6] = [
        b"POST / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"post / HTTP/1.0\r\n\r\n",
        b"PUT / HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PING\r\nMULTI\r\nPOST / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n",
    ];
    for head in heads {
        for body in [&set, &inline] {
            let mut wire = Wire::to(&port).await;
            wire.burden(&[head, body, b"EXEC\r\n"].concat()).await;
            wire.bytes(usize::MAX).await;
            assert_eq!(Wire::to(&port).await.call(&["GET", "stolen"]).await, "$-1\r\n", "{}", head.escape_ascii());
        }
    }
}

#[tokio::test]
async fn a_value_that_is_too_large_is_named() {
    let (_node, port) = alone(&["--max-value-bytes", "1MiB"]).await;
    let mut wire = Wire::to(&port).await;
    let (most, more) = ("x".repeat(1 << 20), "x".repeat((1 << 20) + 1));
    assert_eq!(wire.call(&["SET", "k", &most]).await, "+OK\r\n");
    assert_eq!(wire.call(&["STRLEN", "k"]).await, ":1048576\r\n");
    let told = wire.call(&["SET", "k", &more]).await;
    assert!(told.starts_with("-ERR ") && told.contains("1048577") && told.contains("1048576"), "{told}");
    let told = wire.call(&["APPEND", "k", "x"]).await;
    assert!(told.starts_with("-ERR ") && told.contains("1048576"), "{told}");
    let told = wire.call(&["SET", &"k".repeat(4097), "v"]).await;
    assert!(told.starts_with("-ERR ") && told.contains("4097") && told.contains("4096"), "{told}");
    // A command that is too large must not affect the commands next to it.
    wire.send(&[&["SET", "a", "1"], &["SET", "b", &more], &["SET", "c", "3"], &["MGET", "a", "b", "c"]]).await;
    assert_eq!(wire.reply().await, "+OK\r\n");
    assert!(wire.reply().await.starts_with("-ERR "));
    assert_eq!(wire.reply().await, "+OK\r\n");
    assert_eq!(wire.reply().await, "*3\r\n$1\r\n1\r\n$-1\r\n$1\r\n3\r\n");
    assert_eq!(wire.call(&["GET", "k"]).await, format!("$1048576\r\n{most}\r\n"));
    wire.write(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3000000\r\n").await;
    assert_eq!(wire.reply().await, "-ERR Protocol error: invalid bulk length\r\n");
    assert!(wire.is_closed().await);
}

/// Unread answers must block only their own connection, and take little memory.
#[tokio::test]
async fn a_client_that_does_not_read_is_not_read() {
    const CLIENTS: usize = 8;
    let (node, port) = alone(&[]).await;
    let mut good = Wire::to(&port).await;
    assert_eq!(good.call(&["SET", "k", &"x".repeat(1 << 20)]).await, "+OK\r\n");
    let before = node.resident();
    let mut stuck = Vec::new();
    for _ in 0..CLIENTS {
        let mut wire = Wire::to(&port).await;
        // A gigabyte of answers.
        wire.write(&command(&[b"GET", b"k"]).repeat(1000)).await;
        stuck.push(wire);
    }
    for _ in 0..100 {
        assert_eq!(good.call(&["PING"]).await, "+PONG\r\n");
    }
    let grown = node.resident().saturating_sub(before);
    assert!(grown < (CLIENTS as u64) * (16 << 20), "{} MiB for {CLIENTS} clients", grown >> 20);
    // All answers arrive once the client reads.
    let mut wire = stuck.pop().unwrap();
    for _ in 0..1000 {
        assert_eq!(wire.reply().await.len(), (1 << 20) + 12);
    }
}

/// The memory of clients that don't read must be bounded together, and a client that reads must be served again once
/// others are disconnected.
#[tokio::test]
async fn clients_that_do_not_read_share_bounded_room() {
    const CLIENTS: usize = 32;
    /// Long enough for all of them to fill the memory that they get.
    const WATCHED: Duration = Duration::from_secs(3);
    /// Less than the 30 s after which a client that reads nothing is disconnected even if no other waits for permits.
    const SOON: Duration = Duration::from_secs(25);
    let (node, port) = alone(&["--max-value-bytes", "1MiB", "--queue-bytes", "1MiB"]).await;
    let mut good = Wire::to(&port).await;
    let value = "x".repeat(1 << 20);
    assert_eq!(good.call(&["SET", "k", &value]).await, "+OK\r\n");
    let before = node.resident();
    let mut stuck = Vec::new();
    for _ in 0..CLIENTS {
        let mut wire = Wire::narrow(&port).await;
        wire.write(&command(&[b"GET", b"k"]).repeat(100)).await;
        stuck.push(wire);
    }
    let began = Instant::now();
    loop {
        let grown = node.resident().saturating_sub(before);
        assert!(grown < 20 << 20, "{} MiB for {CLIENTS} clients", grown >> 20);
        assert_eq!(good.call(&["PING"]).await, "+PONG\r\n");
        let told = good.call(&["GET", "k"]).await;
        if told.len() > value.len() {
            if began.elapsed() > WATCHED {
                break;
            }
        } else {
            assert!(told.starts_with("-BUSY "), "{told}");
            assert!(began.elapsed() < SOON, "no client was disconnected");
        }
    }
}

/// A spare with its port, and the members. The spare has no data, so it queries members.
async fn spare() -> (Node, String, Vec<Node>) {
    let (name, secret) = (format!("test-{}", token()), token());
    let flags = ["--replicas", "2", "--max-value-bytes", "1MiB", "--queue-bytes", "1MiB", "--resp", "127.0.0.1:0"];
    let mut nodes: Vec<_> = (0..3).map(|_| Node::start(&name, &secret, &flags)).collect();
    let mut lines = Vec::new();
    for node in &mut nodes {
        lines.push(node.ready().await);
    }
    let at = lines.iter().position(|line| line["role"] == "spare").expect("one too many for the chain");
    (nodes.swap_remove(at), lines[at]["resp"].as_str().unwrap().to_owned(), nodes)
}

/// A spare must not keep the answers of members while there are no permits for them.
#[tokio::test]
async fn a_spare_without_room_keeps_no_answers() {
    const CLIENTS: usize = 400;
    /// Far less than one value per client, and far more than is in flight from members at a time.
    const MAX_RESIDENT_BYTES: u64 = 256 << 20;
    /// Long enough for all of them to be answered, or to have timed out.
    const WATCHED: Duration = Duration::from_secs(8);
    let (spare, port, _members) = spare().await;
    let mut good = Wire::to(&port).await;
    assert_eq!(good.call(&["SET", "k", &"x".repeat(1 << 20)]).await, "+OK\r\n");
    assert_eq!(good.call(&["GET", "k"]).await.len(), (1 << 20) + 12);
    let before = spare.resident();
    let mut stuck = Vec::new();
    for n in 0..CLIENTS {
        let mut wire = Wire::narrow(&port).await;
        let commands = match n % 2 {
            0 => command(&[b"GET", b"k"]),
            _ => [command(&[b"MULTI"]), command(&[b"GET", b"k"]), command(&[b"EXEC"])].concat(),
        };
        wire.write(&commands.repeat(20)).await;
        stuck.push(wire);
    }
    let (began, mut most) = (Instant::now(), 0);
    while began.elapsed() < WATCHED {
        most = most.max(spare.resident().saturating_sub(before));
        assert!(most < MAX_RESIDENT_BYTES, "{} MiB for {CLIENTS} clients", most >> 20);
        assert_eq!(good.call(&["PING"]).await, "+PONG\r\n");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_spare_asks_for_no_values_that_are_not_read() {
    let (spare, port, _members) = spare().await;
    let mut wire = Wire::to(&port).await;
    let value = "x".repeat(1 << 20);
    assert_eq!(wire.call(&["MSET", "a", "1", "b", "2"]).await, "+OK\r\n");
    assert_eq!(wire.call(&["INCR", "a"]).await, ":2\r\n");
    // The spare knows that two members hold the writes.
    assert_eq!(wire.call(&["WAIT", "1", "1000"]).await, ":1\r\n");
    assert_eq!(wire.call(&["SET", "k", &value]).await, "+OK\r\n");
    let many: Vec<_> = (0..300).map(|n| if n % 2 == 0 { ["GET", "a"] } else { ["GET", "b"] }).collect();
    wire.send(&many.iter().map(|words| &words[..]).collect::<Vec<_>>()).await;
    for _ in 0..300 {
        assert_eq!(wire.reply().await, "$1\r\n2\r\n");
    }
    let before = spare.resident();
    wire.write(&command(&[b"GET", b"k"]).repeat(200)).await;
    for n in 0..200 {
        let grown = spare.resident().saturating_sub(before);
        assert!(grown < 64 << 20, "{} MiB behind {n} answers", grown >> 20);
        assert_eq!(timeout(TEST_TIMEOUT, wire.reply()).await.unwrap().len(), value.len() + 12);
    }
}
