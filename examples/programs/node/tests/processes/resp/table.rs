//! Compares a node's answers with recorded answers of redis-server, byte for byte. Where redis-server is installed, the
//! records are compared with its answers too.

use std::process::Stdio;

use artillery_processes::TEST_TIMEOUT;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpListener,
    process::{Child, Command},
    time::timeout,
};

use super::{
    cluster, port,
    wire::{Wire, command, latin},
};

const TABLE: &str = include_str!("table.txt");
/// The last answer of a case: the connection is closed.
const CLOSED: &str = "<closed>";
/// An answer that differs between servers and is not compared.
const ANY: &str = "...";

fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    loop {
        rest = match rest {
            [] => return bytes,
            [b'\\', b'x', high, low, rest @ ..] => {
                let digit = |byte: u8| char::from(byte).to_digit(16).unwrap() as u8;
                bytes.push(digit(*high) << 4 | digit(*low));
                rest
            }
            [b'\\', escaped, rest @ ..] => {
                bytes.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    other => *other,
                });
                rest
            }
            [byte, rest @ ..] => {
                bytes.push(*byte);
                rest
            }
        };
    }
}

/// The words of a line; words in quotes may hold escapes and blanks.
fn words(line: &str) -> Vec<Vec<u8>> {
    let (mut words, mut rest) = (Vec::new(), line.trim_start());
    while !rest.is_empty() {
        let (word, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap(),
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        words.push(unescaped(word));
        rest = behind.trim_start();
    }
    words
}

/// Runs the table against a server. Returns the number of compared answers, and the differences.
async fn run(addr: &str) -> (usize, Vec<String>) {
    let (mut compared, mut different, mut case, mut title) = (0, Vec::new(), 0, "");
    let mut wire = Wire::to(addr).await;
    let mut lines = TABLE.lines().skip_while(|line| !line.starts_with('#')).filter(|line| !line.is_empty());
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("# ") {
            (case, title) = (case + 1, name);
            wire = Wire::to(addr).await;
            continue;
        }
        let own = line.replace('@', &format!("c{case:02}"));
        let bytes = match own.strip_prefix("raw ") {
            Some(raw) => unescaped(raw),
            None => command(&words(&own).iter().map(Vec::as_slice).collect::<Vec<_>>()),
        };
        wire.write(&bytes).await;
        let wanted = lines.next().and_then(|line| line.strip_prefix("= ")).unwrap();
        if wanted == ANY {
            wire.reply().await;
            continue;
        }
        let (wanted, closed) = wanted.strip_suffix(CLOSED).map_or((wanted, false), |wanted| (wanted, true));
        let wanted = unescaped(wanted);
        let mut got = wire.bytes(wanted.len()).await;
        if closed && !wire.is_closed().await {
            got.extend(b" and not closed");
        }
        if closed {
            wire = Wire::to(addr).await;
        }
        compared += 1;
        if got != wanted {
            different.push(format!("{title}: {line}\n  wanted {:?}\n  got    {:?}", latin(&wanted), latin(&got)));
            wire = Wire::to(addr).await;
        }
    }
    (compared, different)
}

#[tokio::test]
async fn answers_are_those_of_redis() {
    let cluster = cluster().await;
    // A middle member: every write and every dirty read involves another node.
    let (compared, different) = run(&port(&cluster, 1)).await;
    assert!(compared >= 250, "{compared} answers");
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// A redis-server on a free port, killed on drop.
pub(super) async fn redis_server() -> Option<(Child, String)> {
    // If another process takes the port in between, the server ends, and the test notices that.
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port().to_string();
    let mut command = Command::new("redis-server");
    command.args(["--port", &free, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut server = command.spawn().ok()?;
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let ready = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains("Ready to accept connections") {
                return;
            }
        }
        panic!("redis-server ended");
    };
    timeout(TEST_TIMEOUT, ready).await.expect("redis-server wasn't ready");
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Some((server, format!("127.0.0.1:{free}")))
}

#[tokio::test]
async fn the_table_holds_what_redis_answers() {
    let Some((_server, addr)) = redis_server().await else {
        return eprintln!("SKIPPED: redis-server isn't installed, so the recorded answers aren't compared with it");
    };
    let (_, different) = run(&addr).await;
    assert!(different.is_empty(), "{}", different.join("\n"));
}
