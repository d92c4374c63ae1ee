//! Clients that write a whole pipeline before they read.

use std::time::Duration;

use artillery_processes::TEST_TIMEOUT;
use tokio::time::{Instant, timeout};

use super::{Wire, alone, wire::command};

/// Writes everything, and only then reads the answers, all of which are the same.
async fn exchange(wire: &mut Wire, one: &[u8], times: usize, answer: &str) {
    timeout(TEST_TIMEOUT, wire.write(&one.repeat(times))).await.expect("the node stopped reading");
    assert_answers(wire, times, answer).await;
}

async fn assert_answers(wire: &mut Wire, times: usize, answer: &str) {
    let came = wire.bytes(times * answer.len()).await;
    assert_eq!(came.len(), times * answer.len(), "answers are missing");
    assert!(came.chunks(answer.len()).all(|came| came == answer.as_bytes()));
}

#[tokio::test]
async fn a_client_may_write_its_pipeline_first() {
    let (_node, port) = alone(&[]).await;
    let value = "x".repeat(100);
    let answer = format!("$100\r\n{value}\r\n");
    let mut wire = Wire::narrow(&port).await;
    assert_eq!(wire.call(&["SET", "k", &value]).await, "+OK\r\n");
    exchange(&mut wire, &command(&[b"GET", b"k"]), 300_000, &answer).await;
    exchange(&mut wire, &command(&[b"SET", b"k", value.as_bytes(), b"GET"]), 100_000, &answer).await;
    // The same behind a value that counts as large, and with the end of the stream behind the last command.
    let large = "y".repeat(100_000);
    assert_eq!(wire.call(&["SET", "large", &large]).await, "+OK\r\n");
    exchange(&mut wire, &command(&[b"GET", b"large"]), 300, &format!("$100000\r\n{large}\r\n")).await;
    wire.write(&command(&[b"GET", b"k"]).repeat(100_000)).await;
    wire.write(&command(&[b"QUIT"])).await;
    assert_answers(&mut wire, 100_000, &answer).await;
    assert_eq!(wire.reply().await, "+OK\r\n");
    assert!(wire.is_closed().await);
}

/// Answers beyond the room stop the connection, and no answer is lost.
#[tokio::test]
async fn what_waits_for_such_clients_is_bounded() {
    const CLIENTS: usize = 8;
    const COMMANDS: usize = 200_000;
    /// Long enough for all of them to fill the room that they get.
    const WATCHED: Duration = Duration::from_secs(2);
    let (node, port) = alone(&["--max-value-bytes", "1MiB", "--queue-bytes", "1MiB"]).await;
    let mut good = Wire::to(&port).await;
    let value = "x".repeat(100);
    assert_eq!(good.call(&["SET", "k", &value]).await, "+OK\r\n");
    let before = node.resident();
    let (read, reads) = tokio::sync::watch::channel(false);
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let (mut wire, mut reads) = (Wire::narrow(&port).await, reads.clone());
        let answer = format!("$100\r\n{value}\r\n");
        clients.spawn(async move {
            let commands = wire.write_aside(command(&[b"GET", b"k"]).repeat(COMMANDS));
            reads.wait_for(|reads| *reads).await.unwrap();
            assert_answers(&mut wire, COMMANDS, &answer).await;
            assert!(commands.await.is_ok());
        });
    }
    let began = Instant::now();
    while began.elapsed() < WATCHED {
        let grown = node.resident().saturating_sub(before);
        assert!(grown < 16 << 20, "{} MiB for {CLIENTS} clients", grown >> 20);
        assert_eq!(good.call(&["PING"]).await, "+PONG\r\n");
    }
    read.send(true).unwrap();
    assert_eq!(timeout(TEST_TIMEOUT, clients.join_all()).await.unwrap().len(), CLIENTS);
}
