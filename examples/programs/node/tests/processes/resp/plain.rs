//! The fast path of plain commands must be indistinguishable except by speed.

use artillery_processes::TEST_TIMEOUT;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{
    Wire, alone, cluster, port,
    wire::{command, latin},
};

/// Pseudo-random numbers, determined by the seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }

    fn one_of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }

    /// A random command, usually a plain one.
    fn command(&mut self) -> String {
        let key = format!("k{}", self.below(4));
        let len = [1, 1, 1, 100, 1000, 6000][self.below(6)];
        let value = self.one_of(&["1", "a", "xyz"]).repeat(len);
        match self.below(32) {
            0..10 => format!("{} {key}", self.one_of(&["GET", "get", "gEt"])),
            10..20 => format!("{} {key} {value}", self.one_of(&["SET", "set", "Set"])),
            20 => format!("SET {key} {value} {}", self.one_of(&["NX", "XX", "GET", "EX", "??"])),
            21 => format!("INCR {key}"),
            22 => format!("MGET {key} k0 none"),
            23 => "MULTI".to_owned(),
            24..26 => "EXEC".to_owned(),
            26 => self.one_of(&["DISCARD", "UNWATCH", "RESET", "SELECT 0", "SELECT 1"]).to_owned(),
            27 => format!("WATCH {key}"),
            28 => format!("DEL {key}"),
            29 => format!("{} {}", self.one_of(&["GET", "SET v"]), "k".repeat(4097)),
            30 => self.one_of(&["GET", "SET k0", "GET k0 k1", "SET k0 1 2 3", "NONE k0", "PING"]).to_owned(),
            _ => format!("APPEND {key} {value}"),
        }
    }
}

/// The bytes that a node answers to this input, sent in pieces of this size.
async fn told(port: &str, bytes: &[u8], piece: usize) -> String {
    let mut wire = Wire::to(port).await;
    for piece in bytes.chunks(piece) {
        wire.write(piece).await;
    }
    wire.write(b"QUIT\r\n").await;
    latin(&wire.bytes(usize::MAX).await)
}

#[tokio::test]
async fn arrays_are_answered_as_lines_are() {
    let ((_first, arrays), (_second, lines)) = tokio::join!(alone(&[]), alone(&[]));
    for seed in 0..60 {
        let mut numbers = Numbers(seed);
        let commands: Vec<_> = (0..numbers.below(80) + 1).map(|_| numbers.command()).collect();
        let words = |line: &String| command(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        let (as_arrays, as_lines) =
            (commands.iter().flat_map(words).collect::<Vec<_>>(), commands.join("\r\n") + "\r\n");
        let piece = [numbers.below(100) + 20, 4000, usize::MAX][numbers.below(3)];
        let told_arrays = told(&arrays, &as_arrays, piece).await;
        assert!(told_arrays.ends_with("+OK\r\n"), "{seed}: {told_arrays}");
        assert!(told_arrays == told(&lines, as_lines.as_bytes(), usize::MAX).await, "{seed}: {commands:?}");
    }
}

#[tokio::test]
async fn a_plain_read_comes_behind_plain_writes() {
    let cluster = cluster().await;
    for node in 0..3 {
        let mut wire = Wire::to(&port(&cluster, node)).await;
        let key = format!("{node}:k");
        let (mut bytes, mut wanted) = (Vec::new(), String::new());
        for n in 100..400 {
            let value = n.to_string();
            bytes.extend(command(&[b"SET", key.as_bytes(), value.as_bytes()]));
            bytes.extend(command(&[b"GET", key.as_bytes()]).repeat(2));
            bytes.extend(command(&[b"GET", b"none"]));
            wanted += &format!("+OK\r\n$3\r\n{n}\r\n$3\r\n{n}\r\n$-1\r\n");
        }
        wire.write(&bytes).await;
        assert!(latin(&wire.bytes(wanted.len()).await) == wanted, "at node {node}");
    }
}

/// Commands received in one piece are answered in one piece.
#[tokio::test]
async fn a_pipeline_is_answered_by_one_write() {
    let (_node, port) = alone(&[]).await;
    assert_eq!(Wire::to(&port).await.call(&["SET", "k", "value"]).await, "+OK\r\n");
    let mut stream = TcpStream::connect(&port).await.unwrap();
    let (commands, wanted) = (command(&[b"GET", b"k"]).repeat(300), b"$5\r\nvalue\r\n".repeat(300));
    let mut answers = vec![0; 2 * wanted.len()];
    for round in 0..200 {
        stream.write_all(&commands).await.unwrap();
        let read = timeout(TEST_TIMEOUT, stream.read(&mut answers)).await.expect("no answer came").unwrap();
        assert_eq!(read, wanted.len(), "in round {round}");
        assert!(answers[..read] == wanted);
    }
}

/// Gathered answers are bounded, however many commands arrive in one piece.
#[tokio::test]
async fn plain_answers_that_are_not_read_hold_little() {
    const CLIENTS: usize = 64;
    const VALUE: usize = 60_000;
    const BACKLOG: usize = 16 << 20;
    let (node, port) = alone(&["--queue-bytes", "16MiB"]).await;
    let mut good = Wire::to(&port).await;
    assert_eq!(good.call(&["SET", "k", &"x".repeat(VALUE)]).await, "+OK\r\n");
    let before = node.resident();
    let mut stuck = Vec::new();
    for _ in 0..CLIENTS {
        let mut wire = Wire::narrow(&port).await;
        wire.write(&command(&[b"GET", b"k"]).repeat(600)).await;
        stuck.push(wire);
        assert_eq!(good.call(&["PING"]).await, "+PONG\r\n");
    }
    for _ in 0..200 {
        assert_eq!(good.call(&["PING"]).await, "+PONG\r\n");
        let grown = node.resident().saturating_sub(before) as usize;
        assert!(grown < CLIENTS * (512 << 10) + BACKLOG, "{} KiB for {CLIENTS} clients", grown >> 10);
    }
    let mut wire = stuck.pop().unwrap();
    for _ in 0..600 {
        assert_eq!(wire.reply().await.len(), VALUE + 10);
    }
}
