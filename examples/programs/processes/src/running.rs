//! Programs that run until they are stopped.

use std::process::Stdio;

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    sync::watch,
    time::timeout,
};

use crate::{NODE, TEST_TIMEOUT, program::command, token};

/// The lines that a stream has yielded.
#[derive(Clone)]
pub struct Lines(watch::Receiver<Vec<String>>);

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

    /// The lines received until now.
    pub fn all(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    /// Waits until `enough` returns true. `None` if the stream ended first, or after [`TEST_TIMEOUT`].
    pub async fn until(&mut self, enough: impl Fn(&[String]) -> bool) -> Option<Vec<String>> {
        let seen = timeout(TEST_TIMEOUT, self.0.wait_for(|lines| enough(lines))).await.ok()?;
        seen.ok().map(|lines| lines.clone())
    }

    /// Waits until the stream ends. When a program has ended, its last lines may still be unread.
    async fn closed(&mut self) {
        // The condition is never satisfied, so this returns when the sender is dropped.
        let _ = self.0.wait_for(|_| false).await;
    }
}

/// The resident memory of a process, in bytes.
pub fn resident(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// A running program, usually `node`, killed on drop.
pub struct Node {
    child: Child,
    /// Its standard output.
    pub out: Lines,
    /// Its standard error.
    pub err: Lines,
}

impl Node {
    /// Starts a node of this cluster with additional flags.
    pub fn start(cluster: &str, secret: &str, more: &[&str]) -> Self {
        let args = [&["--cluster", cluster], more].concat();
        Self::of(&NODE, secret, &args)
    }

    /// Like [`Node::start`], with an additional environment variable.
    pub fn start_with((variable, value): (&str, &str), cluster: &str, secret: &str, more: &[&str]) -> Self {
        let mut command = command(&NODE, Some(secret), &[&["--cluster", cluster], more].concat());
        command.env(variable, value);
        Self::spawn(command)
    }

    /// Starts a chain of one with this secret and additional flags. Returns it with its ready line.
    pub async fn alone(secret: &str, more: &[&str]) -> (Self, Value) {
        let flags = [&["--expect", "1", "--no-mdns"], more].concat();
        let mut node = Self::start(&format!("test-{secret}"), secret, &flags);
        let line = node.ready().await;
        (node, line)
    }

    /// Like [`Node::alone`], with a new secret, and with this password for its ports.
    pub async fn behind_a_password(password: &str, more: &[&str]) -> (Self, Value) {
        let file = std::env::temp_dir().join(format!("artillery-{password}"));
        std::fs::write(&file, format!("{password}\n")).unwrap();
        let alone = Self::alone(&token(), &[&["--port-password-file", file.to_str().unwrap()], more].concat()).await;
        std::fs::remove_file(&file).unwrap();
        alone
    }

    /// Starts another long-running program.
    pub fn of(program: &str, secret: &str, args: &[&str]) -> Self {
        Self::spawn(command(program, Some(secret), args))
    }

    fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, err) = (Lines::of(child.stdout.take().unwrap()), Lines::of(child.stderr.take().unwrap()));
        Self { child, out, err }
    }

    /// Waits for its ready line; panics if there is none.
    pub async fn ready(&mut self) -> Value {
        self.ready_line().await.unwrap_or_else(|| panic!("no ready line; its log is {:#?}", self.err.all()))
    }

    /// Waits for its ready line. `None` if it ended first, or after [`TEST_TIMEOUT`].
    pub async fn ready_line(&mut self) -> Option<Value> {
        let lines = self.out.until(|lines| !lines.is_empty()).await?;
        Some(serde_json::from_str(&lines[0]).unwrap())
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id().expect("a node has ended before its time")
    }

    /// Its resident memory, in bytes.
    pub fn resident(&self) -> u64 {
        resident(self.id())
    }

    /// Waits until it has ended and all its output is read. Returns its exit code; `None` if a signal ended it.
    pub async fn ended(&mut self) -> Option<i32> {
        let all = async {
            let status = self.child.wait().await.unwrap();
            self.out.closed().await;
            self.err.closed().await;
            status.code()
        };
        timeout(TEST_TIMEOUT, all).await.expect("a node didn't end")
    }

    /// Sends it a signal, such as `-STOP`.
    pub async fn signal(&self, signal: &str) {
        let id = self.id().to_string();
        Command::new("kill").args([signal, &id]).status().await.unwrap();
    }

    /// Sends it a signal, and waits until it has ended. Returns its exit code.
    pub async fn stop(&mut self, signal: &str) -> Option<i32> {
        self.signal(signal).await;
        self.ended().await
    }

    /// Kills it, and waits until it has ended.
    pub async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }
}
