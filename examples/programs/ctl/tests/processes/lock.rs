//! `ctl lock` and `ctl elect`: exclusion, exit codes, signals, and the end of the command before the end of the lock.

use std::{fs, path::Path};

use artillery_ddata::Client;
use artillery_processes::{CTL, Cluster, Node, eventually, token};
use tokio::process::Command;

/// A shell command that prints its process id and then does nothing until a signal ends it.
const FOREVER: [&str; 3] = ["sh", "-c", "echo $$; exec sleep 1000"];

fn start(cluster: &Cluster, args: &[&str]) -> Node {
    let access = ["--cluster", &cluster.name, "--no-mdns", "--seed", &cluster.addrs[1]];
    Node::of(&CTL, &cluster.secret, &[&access[..], args].concat())
}

/// Starts a command that waits for a signal. Returns it with the process id of the command.
async fn start_forever(cluster: &Cluster, args: &[&str]) -> (Node, String) {
    let mut held = start(cluster, &[args, &["--"], &FOREVER].concat());
    let lines = held.out.until(|lines| !lines.is_empty()).await.unwrap_or_else(|| panic!("{:?}", held.err.all()));
    (held, lines[0].clone())
}

/// The keys of the lock's queue.
async fn queue(cluster: &Cluster, name: &str) -> Vec<String> {
    let (out, _) = cluster.ctl(&cluster.addrs[0], 0, &["scan", &format!("lock/{{{name}}}/")]).await;
    out.lines().map(str::to_owned).collect()
}

async fn queued(cluster: &Cluster, name: &str, wanted: usize) {
    eventually(async || {
        let keys = queue(cluster, name).await;
        if keys.len() == wanted { Ok(()) } else { Err(format!("{keys:?}")) }
    })
    .await;
}

async fn kill(signal: &str, target: &str) {
    let done = Command::new("kill").args([signal, "--", target]).status().await.unwrap();
    assert!(done.success(), "kill {signal} {target}");
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[tokio::test]
async fn commands_under_one_lock_exclude_each_other() {
    let (cluster, file) = (Cluster::start(&[]).await, std::env::temp_dir().join(format!("artillery-{}", token())));
    let path = file.to_str().unwrap();
    let append = r#"echo "begin $ARTILLERY_TOKEN" >>"$0"; sleep 0.05; echo "end $ARTILLERY_TOKEN" >>"$0""#;
    let round = || async {
        let args = ["lock", "jobs", "--", "sh", "-c", append, path];
        for _ in 0..4 {
            cluster.ctl(&cluster.addrs[2], 0, &args).await;
        }
    };
    tokio::join!(round(), round(), round());
    let text = read(&file);
    fs::remove_file(&file).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 24, "{text}");
    let mut last = "";
    for pair in lines.chunks(2) {
        let token = pair[0].strip_prefix("begin ").unwrap();
        assert_eq!(pair[1], format!("end {token}"), "{text}");
        assert!(token.len() == 32 && token > last, "{text}");
        last = token;
    }
    assert!(queue(&cluster, "jobs").await.is_empty());
}

#[tokio::test]
async fn the_exit_code_and_the_output_are_those_of_the_command() {
    let cluster = Cluster::start(&[]).await;
    let at = cluster.addrs[0].as_str();
    let id = cluster.json(0, &["status"]).await["cluster_id"].as_str().unwrap().to_owned();
    let print = "echo $ARTILLERY_LOCK; echo $ARTILLERY_CLUSTER; echo $ARTILLERY_TOKEN; echo $ARTILLERY_LOCK_KEY";
    let (out, err) = cluster.ctl(at, 0, &["--json", "lock", "jobs", "--", "sh", "-c", print]).await;
    let lines: Vec<_> = out.lines().collect();
    let held: serde_json::Value = serde_json::from_str(err.trim()).unwrap();
    assert_eq!(held, serde_json::json!({ "lock": "jobs", "token": lines[2], "held": true }));
    assert_eq!(&lines[..2], ["jobs", &*id], "{out}");
    let key = format!("lock/{{jobs}}/{}.{}", &lines[2][..16], &lines[2][16..]);
    assert_eq!(lines[3..], [key]);

    for (command, code) in [("exit 7", 7), ("kill -KILL $$", 137), ("kill -TERM $$", 143)] {
        cluster.ctl(at, code, &["lock", "jobs", "--", "sh", "-c", command]).await;
    }
    let (_, err) = cluster.ctl(at, 127, &["lock", "jobs", "--", "/no/such/program"]).await;
    assert!(err.contains("/no/such/program"), "{err}");
    cluster.ctl(at, 126, &["lock", "jobs", "--", "/"]).await;
    assert!(queue(&cluster, "jobs").await.is_empty());
}

#[tokio::test]
async fn signals_are_passed_on_and_end_a_wait() {
    let cluster = Cluster::start(&[]).await;
    let stop = "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.02; done";
    let mut held = start(&cluster, &["lock", "jobs", "--", "sh", "-c", stop]);
    held.out.until(|lines| !lines.is_empty()).await.unwrap();

    let (_, err) = cluster.ctl(&cluster.addrs[0], 1, &["lock", "jobs", "--wait", "100", "--", "true"]).await;
    assert!(err.contains("in time"), "{err}");
    assert_eq!(queue(&cluster, "jobs").await.len(), 1, "the place was given up");
    let mut waiting = start(&cluster, &["lock", "jobs", "--", "true"]);
    queued(&cluster, "jobs", 2).await;
    assert_eq!(waiting.stop("-TERM").await, Some(1));
    assert!(waiting.err.all()[0].contains("while waiting"), "{:?}", waiting.err.all());
    assert_eq!(queue(&cluster, "jobs").await.len(), 1, "the place was given up");

    assert_eq!(held.stop("-TERM").await, Some(3));
    assert_eq!(held.out.all(), ["ready", "caught"]);
    assert!(queue(&cluster, "jobs").await.is_empty(), "the lock was released");
    let (mut held, _) = start_forever(&cluster, &["lock", "jobs"]).await;
    assert_eq!(held.stop("-INT").await, Some(130));
}

/// The output ends when the command has ended, since the command has it too.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_command_dies_with_ctl() {
    let cluster = Cluster::start(&[]).await;
    let (mut held, _) = start_forever(&cluster, &["lock", "jobs", "--ttl", "1000"]).await;
    assert_eq!(held.stop("-KILL").await, None);
    cluster.ctl(&cluster.addrs[0], 0, &["lock", "jobs", "--", "true"]).await;
}

#[tokio::test]
async fn a_holder_that_was_stopped_fails_and_kills_its_command() {
    let cluster = Cluster::start(&[]).await;
    let (mut held, command) = start_forever(&cluster, &["lock", "jobs", "--ttl", "3000"]).await;
    let group = format!("-{command}");
    held.signal("-STOP").await;
    kill("-STOP", &group).await;
    let (out, _) = cluster.ctl(&cluster.addrs[0], 0, &["lock", "jobs", "--", "echo", "mine"]).await;
    assert_eq!(out, "mine\n");
    // The command is still stopped, so only SIGKILL can end it.
    assert_eq!(held.stop("-CONT").await, Some(1));
    let err = held.err.all();
    assert!(err[0].contains("the lock was lost; the command was killed"), "{err:?}");
}

#[tokio::test]
async fn a_command_whose_lock_is_deleted_is_killed() {
    let cluster = Cluster::start(&[]).await;
    let print = "echo $ARTILLERY_LOCK_KEY; exec sleep 1000";
    let mut held = start(&cluster, &["--json", "lock", "jobs", "--ttl", "3000", "--", "sh", "-c", print]);
    let key = held.out.until(|lines| !lines.is_empty()).await.unwrap()[0].clone();
    cluster.ctl(&cluster.addrs[0], 0, &["del", &key]).await;
    assert_eq!(held.ended().await, Some(1));
    let err = held.err.all();
    assert!(err.iter().any(|line| line.starts_with("error: the lock was lost")), "{err:?}");
    let failed: serde_json::Value = serde_json::from_str(&err[1]).unwrap();
    assert!(failed["error"].is_string() && failed["kind"].is_null(), "{failed}");
}

#[tokio::test]
async fn a_command_ends_before_a_lock_that_cannot_be_renewed() {
    let cluster = Cluster::start(&[]).await;
    // It ignores the first signal.
    let stay = "trap 'echo asked' TERM; echo $$; while :; do sleep 0.02; done";
    let mut held = start(&cluster, &["lock", "jobs", "--ttl", "5000", "--", "sh", "-c", stay]);
    let command = held.out.until(|lines| !lines.is_empty()).await.unwrap()[0].clone();
    for node in &cluster.nodes {
        node.signal("-STOP").await;
    }
    eventually(async || {
        let is_running = Command::new("kill").args(["-0", &command]).output().await.unwrap().status.success();
        if is_running { Err("the command was not killed".to_owned()) } else { Ok(()) }
    })
    .await;
    for node in &cluster.nodes {
        node.signal("-CONT").await;
    }
    assert_eq!(held.ended().await, Some(1));
    let (out, err) = (held.out.all(), held.err.all());
    assert_eq!(out[1..], ["asked"], "SIGTERM is sent before SIGKILL");
    assert!(err.iter().any(|line| line.contains("the command was stopped before the lock ended")), "{err:?}");
    cluster.ctl(&cluster.addrs[0], 0, &["lock", "jobs", "--", "true"]).await;
}

#[tokio::test]
async fn a_leader_publishes_its_value_while_its_command_runs() {
    let cluster = Cluster::start(&[]).await;
    let builder = Client::builder().cluster(&cluster.name).secret(&cluster.secret).seed(&cluster.addrs[0]);
    let client = builder.connect().await.unwrap();
    let election = client.kv().election("db");
    let (mut first, _) = start_forever(&cluster, &["elect", "db", "--value", "a:1"]).await;
    let leader = election.leader().await.unwrap().unwrap();
    assert_eq!(leader.value, "a:1");
    let print = "echo $ARTILLERY_TOKEN; exec sleep 1000";
    let mut second = start(&cluster, &["elect", "db", "--value", "b:1", "--", "sh", "-c", print]);
    eventually(async || {
        let keys = cluster.ctl(&cluster.addrs[0], 0, &["scan", "election/{db}/"]).await.0;
        if keys.lines().count() == 2 { Ok(()) } else { Err(keys) }
    })
    .await;
    assert_eq!(election.leader().await.unwrap(), Some(leader.clone()));
    assert_eq!(first.stop("-TERM").await, Some(143));
    let token = second.out.until(|lines| !lines.is_empty()).await.unwrap();
    let next = election.leader().await.unwrap().unwrap();
    assert_eq!((next.value, next.token.to_string()), ("b:1".into(), token[0].clone()));
    assert!(next.token > leader.token);
    assert_eq!(second.stop("-TERM").await, Some(143));
    assert_eq!(election.leader().await.unwrap(), None);
}
