//! What a port must stand: garbage, too much, and clients that don't read.

use super::{Wire, alone, wire::command};

#[tokio::test]
async fn garbage_ends_its_connection_alone() {
    let (node, port) = alone(&[]).await;
    let mut good = Wire::to(&port).await;
    let garbage: [&[u8]; 7] = [
        b"*1\r\n*1\r\n*1\r\n",
        b"*1\r\n$4\r\nPI\xff\xfe\r\n\x00\x00\r\n\"",
        b"*-99999999999999999999\r\n",
        b"*2147483647\r\n$1\r\nx\r\n",
        b"*1\r\n$9223372036854775807\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ];
    for bytes in garbage {
        Wire::to(&port).await.burden(bytes).await;
        assert_eq!(good.call(&["SET", "k", "v"]).await, "+OK\r\n");
    }
    // As deep as it likes.
    Wire::to(&port).await.burden(&b"*1\r\n".repeat(1 << 18)).await;
    let mut long = Wire::to(&port).await;
    long.write(&[b'x'; 1 << 16]).await;
    assert_eq!(long.reply().await, "-ERR Protocol error: too big inline request\r\n");
    assert!(long.is_closed().await);
    assert_eq!(good.call(&["GET", "k"]).await, "$1\r\nv\r\n");
    assert!(node.err.all().is_empty(), "{:?}", node.err.all());
}

#[tokio::test]
async fn what_is_too_large_is_named() {
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
    // One that is too large doesn't spoil those beside it.
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

/// Answers that nobody takes stop their own connection, and hold little.
#[tokio::test]
async fn who_does_not_read_is_not_read() {
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
    // All of it comes once it is taken.
    let mut wire = stuck.pop().unwrap();
    for _ in 0..1000 {
        assert_eq!(wire.reply().await.len(), (1 << 20) + 12);
    }
}
