//! Starts programs, listens to them, and ends them with the test.

use std::{
    process::{Output, Stdio},
    time::Duration,
};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    sync::watch,
    task::JoinSet,
    time::timeout,
};

pub(crate) const NODE: &str = env!("CARGO_BIN_EXE_node");
pub(crate) const CTL: &str = env!("CARGO_BIN_EXE_ctl");
pub(crate) const CHAOS: &str = env!("CARGO_BIN_EXE_chaos");
pub(crate) const QUICKSTART: &str = env!("CARGO_BIN_EXE_quickstart");

/// Far more than anything takes, on a machine that is busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Sixteen hexadecimal digits and more that nobody else has.
pub(crate) fn token() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{:016x}{:016x}", RandomState::new().hash_one(1), RandomState::new().hash_one(2))
}

fn command(program: &str, secret: Option<&str>, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).env_remove("ARTILLERY_SECRET").stdin(Stdio::null()).kill_on_drop(true);
    if let Some(secret) = secret {
        command.env("ARTILLERY_SECRET", secret);
    }
    command
}

/// Runs a program to its end.
pub(crate) async fn run(program: &str, secret: Option<&str>, args: &[&str]) -> Output {
    let done = timeout(PATIENCE, command(program, secret, args).output()).await;
    done.unwrap_or_else(|_| panic!("{program} {args:?} didn't end")).unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The same, and insists on an exit code. Returns standard output and standard error.
pub(crate) async fn expect(code: i32, program: &str, secret: Option<&str>, args: &[&str]) -> (String, String) {
    let done = run(program, secret, args).await;
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    assert_eq!(done.status.code(), Some(code), "{program} {args:?}\n{out}\n{err}");
    (out, err)
}

/// Lines as they come.
#[derive(Clone)]
pub(crate) struct Lines(watch::Receiver<Vec<String>>);

impl Lines {
    fn of(pipe: impl tokio::io::AsyncRead + Unpin + Send + 'static) -> Self {
        let (sender, receiver) = watch::channel(Vec::new());
        tokio::spawn(async move {
            let mut lines = BufReader::new(pipe).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                sender.send_modify(|all| all.push(line));
            }
        });
        Self(receiver)
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    /// Waits until enough is there. `None`: the program ended first, or took too long.
    pub(crate) async fn until(&mut self, enough: impl Fn(&[String]) -> bool) -> Option<Vec<String>> {
        let seen = timeout(PATIENCE, self.0.wait_for(|lines| enough(lines))).await.ok()?;
        seen.ok().map(|lines| lines.clone())
    }
}

/// Bytes of memory that a process has in use.
pub(crate) fn resident(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// A running `node`. Dropped: killed.
pub(crate) struct Node {
    child: Child,
    pub(crate) out: Lines,
    pub(crate) err: Lines,
}

impl Node {
    pub(crate) fn start(cluster: &str, secret: &str, more: &[&str]) -> Self {
        let args = [&["--cluster", cluster], more].concat();
        Self::of(NODE, secret, &args)
    }

    /// Another program that runs until it is ended.
    pub(crate) fn of(program: &str, secret: &str, args: &[&str]) -> Self {
        Self::spawn(command(program, Some(secret), args))
    }

    fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, err) = (Lines::of(child.stdout.take().unwrap()), Lines::of(child.stderr.take().unwrap()));
        Self { child, out, err }
    }

    /// Its ready line.
    pub(crate) async fn ready(&mut self) -> Value {
        self.ready_line().await.unwrap_or_else(|| panic!("no ready line; it said {:#?}", self.err.all()))
    }

    /// `None`: it ended before, or took too long.
    pub(crate) async fn ready_line(&mut self) -> Option<Value> {
        let lines = self.out.until(|lines| !lines.is_empty()).await?;
        Some(serde_json::from_str(&lines[0]).unwrap())
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id().expect("a node has ended before its time")
    }

    /// Bytes of memory that it has in use.
    pub(crate) fn resident(&self) -> u64 {
        resident(self.id())
    }

    pub(crate) async fn ended(&mut self) -> Option<i32> {
        timeout(PATIENCE, self.child.wait()).await.expect("a node didn't end").unwrap().code()
    }

    /// Sends it a signal, such as `-STOP`.
    pub(crate) async fn signal(&self, signal: &str) {
        let id = self.id().to_string();
        Command::new("kill").args([signal, &id]).status().await.unwrap();
    }

    /// Asks it to stop, and waits until it has: its exit code.
    pub(crate) async fn stop(&mut self, signal: &str) -> Option<i32> {
        self.signal(signal).await;
        self.ended().await
    }

    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }
}

/// Nodes that form a cluster of their own.
pub(crate) struct Cluster {
    pub(crate) name: String,
    pub(crate) secret: String,
    /// Head first.
    pub(crate) nodes: Vec<Node>,
    /// The same order.
    pub(crate) addrs: Vec<String>,
    pub(crate) lines: Vec<Value>,
}

impl Cluster {
    /// Three nodes with nothing but the cluster's name and the secret, and these flags.
    pub(crate) async fn start(flags: &[&str]) -> Self {
        Self::begin(|name, secret| Node::start(name, secret, flags)).await
    }

    /// The same, with a variable of the environment.
    pub(crate) async fn start_with((variable, value): (&str, &str), flags: &[&str]) -> Self {
        Self::begin(|name, secret| {
            let mut command = command(NODE, Some(secret), &[&["--cluster", name], flags].concat());
            command.env(variable, value);
            Node::spawn(command)
        })
        .await
    }

    async fn begin(start: impl Fn(&str, &str) -> Node) -> Self {
        let (name, secret) = (format!("test-{}", token()), token());
        let mut starting = JoinSet::new();
        for _ in 0..3 {
            let mut node = start(&name, &secret);
            starting.spawn(async move { (node.ready().await, node) });
        }
        let mut ready = starting.join_all().await;
        let place = |line: &Value| ["head", "middle", "tail"].iter().position(|role| line["role"] == *role);
        ready.sort_by_key(|(line, _)| place(line));
        let roles: Vec<_> = ready.iter().map(|(line, _)| line["role"].as_str().unwrap().to_owned()).collect();
        assert_eq!(roles, ["head", "middle", "tail"]);
        let (lines, nodes): (Vec<_>, Vec<_>) = ready.into_iter().unzip();
        let addrs = lines.iter().map(|line| line["addr"].as_str().unwrap().to_owned()).collect();
        Self { name, secret, nodes, addrs, lines }
    }

    /// `ctl` at one node, without mDNS. Insists on the exit code.
    pub(crate) async fn ctl(&self, addr: &str, code: i32, args: &[&str]) -> (String, String) {
        let all = [&["--cluster", &self.name, "--no-mdns", "--seed", addr], args].concat();
        expect(code, CTL, Some(&self.secret), &all).await
    }

    /// `ctl --json` at the head.
    pub(crate) async fn json(&self, code: i32, args: &[&str]) -> Value {
        let (out, _) = self.ctl(&self.addrs[0], code, &[args, &["--json"]].concat()).await;
        serde_json::from_str(out.lines().last().unwrap_or_default()).unwrap()
    }
}

/// The example that `docs/json.md` shows first under this heading.
pub(crate) fn documented(heading: &str) -> Value {
    let page = include_str!("../../../docs/json.md");
    let (_, section) = page.split_once(&format!("## {heading}\n")).expect("no such heading");
    let (_, block) = section.split_once("```json\n").unwrap();
    serde_json::from_str(block.split_once("```").unwrap().0).unwrap()
}

/// Insists that what a program printed has exactly the fields that the page shows, of the same kinds.
pub(crate) fn assert_documented(shown: &Value, printed: &Value, path: &str) {
    match (shown, printed) {
        (Value::Object(shown), Value::Object(printed)) => {
            let fields =
                |of: &serde_json::Map<String, Value>| of.keys().cloned().collect::<std::collections::BTreeSet<_>>();
            assert_eq!(fields(shown), fields(printed), "shown and printed fields of {path}");
            shown
                .iter()
                .for_each(|(field, shown)| assert_documented(shown, &printed[field], &format!("{path}.{field}")));
        }
        (Value::Array(shown), Value::Array(printed)) => {
            assert_eq!(shown.is_empty(), printed.is_empty(), "{path}: nothing to compare");
            printed.iter().for_each(|printed| assert_documented(&shown[0], printed, &format!("{path}[]")));
        }
        (Value::Null, _) | (_, Value::Null) => {}
        _ => {
            assert_eq!(std::mem::discriminant(shown), std::mem::discriminant(printed), "{path}: {shown} and {printed}")
        }
    }
}
