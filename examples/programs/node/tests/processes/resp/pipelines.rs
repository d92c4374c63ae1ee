//! Clients that write a whole pipeline before they read.

use artillery_processes::eventually;

use super::{Wire, alone, wire::command};

/// Writes everything before reading the answers, which are all the same.
async fn exchange(wire: &mut Wire, one: &[u8], times: usize, answer: &str) {
    wire.write(&one.repeat(times)).await;
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
    exchange(&mut wire, &command(&[b"GET", b"k"]), 100_000, &answer).await;
    exchange(&mut wire, &command(&[b"SET", b"k", value.as_bytes(), b"GET"]), 50_000, &answer).await;
    // The same with a value that is treated as large, and with the end of the stream after the last command.
    let large = "y".repeat(100_000);
    assert_eq!(wire.call(&["SET", "large", &large]).await, "+OK\r\n");
    exchange(&mut wire, &command(&[b"GET", b"large"]), 300, &format!("$100000\r\n{large}\r\n")).await;
    wire.write(&command(&[b"GET", b"k"]).repeat(100_000)).await;
    wire.write(&command(&[b"QUIT"])).await;
    assert_answers(&mut wire, 100_000, &answer).await;
    assert_eq!(wire.reply().await, "+OK\r\n");
    assert!(wire.is_closed().await);
}

/// The waiting bytes of answers, of all clients of a node.
async fn waiting(wire: &mut Wire) -> usize {
    let info = wire.call(&["INFO", "clients"]).await;
    let line = info.lines().find_map(|line| line.strip_prefix("artillery_waiting_answer_bytes:"));
    line.unwrap().parse().unwrap()
}

/// Answers above the capacity block the connection, and no answer is lost.
#[tokio::test]
async fn what_waits_for_such_clients_is_bounded() {
    const CLIENTS: usize = 8;
    const COMMANDS: usize = 60_000;
    const ROOM: usize = 1 << 20;
    /// Answers wait in pieces of slightly more than 64 KiB.
    const PIECE: usize = 128 << 10;
    let (_node, port) = alone(&["--max-value-bytes", "1MiB", "--queue-bytes", "1MiB"]).await;
    let mut good = Wire::to(&port).await;
    let value = "x".repeat(100);
    assert_eq!(good.call(&["SET", "k", &value]).await, "+OK\r\n");
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
    eventually(async || match waiting(&mut good).await {
        bytes if bytes > ROOM - PIECE => Ok(()),
        bytes => Err(format!("{bytes} bytes wait")),
    })
    .await;
    assert!(waiting(&mut good).await <= ROOM);
    assert_eq!(good.call(&["PING"]).await, "+PONG\r\n");
    read.send(true).unwrap();
    assert_eq!(clients.join_all().await.len(), CLIENTS);
    assert_eq!(waiting(&mut good).await, 0);
}

/// WAIT must not wait until earlier answers are received.
#[tokio::test]
async fn a_pipeline_that_is_written_first_may_hold_wait() {
    let (_node, port) = alone(&[]).await;
    let value = "x".repeat(100_000);
    let answer = format!("$100000\r\n{value}\r\n");
    let mut wire = Wire::narrow(&port).await;
    assert_eq!(wire.call(&["SET", "k", &value]).await, "+OK\r\n");
    // More commands follow WAIT than a socket's buffers hold.
    for _ in 0..3 {
        wire.write(&command(&[b"GET", b"k"]).repeat(100)).await;
        wire.write(&command(&[b"WAIT", b"1", b"1"])).await;
    }
    wire.write(&command(&[b"SET", b"other", &[b'y'; 1000]]).repeat(20_000)).await;
    for _ in 0..3 {
        assert_answers(&mut wire, 100, &answer).await;
        assert_eq!(wire.reply().await, ":0\r\n");
    }
    assert_answers(&mut wire, 20_000, "+OK\r\n").await;
}

/// Clients that have ended their stream in the middle of a large command must hold no permits for it while they receive
/// their answers.
#[tokio::test]
async fn clients_that_have_ended_leave_the_room_for_commands_to_others() {
    const COMMANDS: usize = 40_000;
    let (_node, port) = alone(&["--max-value-bytes", "7MiB", "--queue-bytes", "8MiB"]).await;
    let mut good = Wire::to(&port).await;
    let value = "x".repeat(100);
    assert_eq!(good.call(&["SET", "k", &value]).await, "+OK\r\n");
    // The capacity for large commands is 16 MiB.
    let mut ended = Vec::new();
    for _ in 0..2 {
        let mut wire = Wire::narrow(&port).await;
        wire.write(&command(&[b"GET", b"k"]).repeat(COMMANDS)).await;
        let large = command(&[b"SET", b"never", &[b'y'; 7 << 20]]);
        wire.write(&large[..6 << 20]).await;
        wire.end().await;
        ended.push(wire);
    }
    assert_eq!(good.call(&["SET", "k", &"z".repeat(3 << 20)]).await, "+OK\r\n");
    for mut wire in ended {
        assert_answers(&mut wire, COMMANDS, &format!("$100\r\n{value}\r\n")).await;
        assert!(wire.is_closed().await);
    }
    assert_eq!(good.call(&["GET", "never"]).await, "$-1\r\n");
}
