//! Holders of a lock are stopped by SIGSTOP after they have looked at the lock and before they write: a resource that
//! checks tokens refuses each late write, and a resource that doesn't accepts it.

use std::{path::Path, process::Stdio, time::Duration};

use artillery_fencing::Row;
use artillery_processes::{Cluster, TEST_TIMEOUT};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    task::JoinSet,
    time::{Instant, timeout},
};

const LANES: usize = 4;
const STOPS: usize = 50;
/// The stops without a check of the token.
const UNCHECKED_STOPS: usize = 10;
const TTL: Duration = Duration::from_millis(400);

/// A process of `fenced_writer`.
struct Holder {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

/// The end of a turn.
#[derive(Debug, PartialEq)]
struct Turn {
    is_accepted: bool,
    believes: bool,
    batch: String,
}

impl Holder {
    fn start(cluster: &Cluster, node: usize, name: &str, database: &Path, checked: bool) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fenced_writer"));
        command.args([&cluster.name, &cluster.addrs[node], name]).arg(database);
        command.args([&*TTL.as_millis().to_string(), if checked { "checked" } else { "unchecked" }]);
        command.env("ARTILLERY_SECRET", &cluster.secret).kill_on_drop(true);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, output: BufReader::new(output).lines() }
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.id().expect("a holder has ended");
        kill_process(Pid::from_raw(id as i32).unwrap(), signal).unwrap();
    }

    async fn line(&mut self) -> String {
        let line = timeout(TEST_TIMEOUT, self.output.next_line()).await.expect("no line in time");
        line.unwrap().expect("a holder has ended")
    }

    /// Waits until it has the lock, and returns its token.
    async fn held(&mut self) -> String {
        let line = self.line().await;
        line.strip_prefix("held ").unwrap_or_else(|| panic!("{line}")).to_owned()
    }

    /// Lets it write, once it runs.
    async fn go(&mut self) {
        self.input.write_all(b"\n").await.unwrap();
    }

    async fn wrote(&mut self) -> Turn {
        let line = self.line().await;
        let words: Vec<_> = line.splitn(4, ' ').collect();
        let ["wrote", write, belief, batch] = words[..] else { panic!("{line}") };
        Turn { is_accepted: write == "accepted", believes: belief == "held", batch: batch.to_owned() }
    }
}

/// Two processes that contend for one lock. Stops the present holder this many times, and returns the tokens of the
/// accepted writes.
async fn lane(mut holders: [Holder; 2], database: &Path, stops: usize, checked: bool) -> Vec<String> {
    for stop in 0..stops {
        let [one, other] = &mut holders;
        let (stopped, token) = tokio::select! {
            token = one.held() => (0, token),
            token = other.held() => (1, token),
        };
        let (mut one, mut other) = (one, other);
        if stopped == 1 {
            (one, other) = (other, one);
        }
        one.signal(Signal::STOP);
        // On a busy machine the other one may have had the lock before, and lost it without a stop.
        loop {
            let next = other.held().await;
            other.go().await;
            let turn = other.wrote().await;
            if next > token {
                assert!(turn.is_accepted, "stop {stop}: {turn:?}");
                break;
            }
        }
        one.go().await;
        one.signal(Signal::CONT);
        let late = one.wrote().await;
        let expected = Turn { is_accepted: !checked, believes: false, batch: "refused".to_owned() };
        assert_eq!(late, expected, "stop {stop}");
    }
    Row::open(database, true).unwrap().accepted().unwrap()
}

/// The writes of holders that were accepted after a write of a later holder.
fn doubles(tokens: &[String]) -> usize {
    let highest_before =
        tokens.iter().scan("", |highest, token| Some(std::mem::replace(highest, (*highest).max(token))));
    tokens.iter().zip(highest_before).filter(|(token, highest)| token.as_str() < *highest).count()
}

#[tokio::test]
async fn late_writes_of_stopped_holders_are_refused_by_their_tokens() {
    let (cluster, folder, begun) = (Cluster::start(&[]).await, tempfile::tempdir().unwrap(), Instant::now());
    let mut lanes = JoinSet::new();
    for number in 0..=LANES {
        let (checked, name) = (number < LANES, format!("job-{number}"));
        let database = folder.path().join(&name);
        Row::create(&database).unwrap();
        let holders = [0, 1].map(|n| Holder::start(&cluster, (number + n) % 3, &name, &database, checked));
        let stops = if checked { STOPS } else { UNCHECKED_STOPS };
        lanes.spawn(async move {
            let tokens = lane(holders, &database, stops, checked).await;
            assert!(tokens.iter().all(|token| token.len() == 32), "{tokens:?}");
            (checked, tokens)
        });
    }
    let done = lanes.join_all().await;
    let of = |wanted: bool| done.iter().filter(move |(checked, _)| *checked == wanted).map(|(_, tokens)| tokens);
    let writes: usize = of(true).map(Vec::len).sum();
    println!("{} stops, {writes} accepted writes, {:.1} s", LANES * STOPS, begun.elapsed().as_secs_f64());
    assert!(writes >= LANES * STOPS, "each stop lets another holder write");
    assert_eq!(of(true).map(|tokens| doubles(tokens)).sum::<usize>(), 0);
    assert_eq!(of(false).map(|tokens| doubles(tokens)).sum::<usize>(), UNCHECKED_STOPS, "each late write was accepted");
}
