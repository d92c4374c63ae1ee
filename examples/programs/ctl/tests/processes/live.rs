//! `ctl status --watch`, on a terminal and without one.

use std::process::Stdio;

use artillery_processes::{CTL, Cluster, Members, Node, TEST_TIMEOUT, text};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::Command,
    time::timeout,
};

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

/// Starts `ctl` on a pseudo-terminal made by script(1).
fn on_a_terminal(cluster: &Cluster) -> Option<tokio::process::Child> {
    let ctl = format!("{} --cluster {} --no-mdns --seed {} status --watch", *CTL, cluster.name, cluster.addrs[0]);
    let mut script = Command::new("script");
    let command = format!("stty rows 40 cols 120; exec {ctl}");
    script.args(["--quiet", "--return", "--flush", "--command", &command, "/dev/null"]);
    script.env("ARTILLERY_SECRET", &cluster.secret).env("TERM", "xterm");
    script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true).spawn().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_is_drawn_on_and_given_back() {
    let cluster = Cluster::start(&[]).await;
    for key in ["q", "\x03"] {
        let Some(mut script) = on_a_terminal(&cluster) else {
            println!("SKIPPED: no script(1) here: the terminal was not tested");
            return;
        };
        let (mut keys, mut screen) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
        let mut seen = Vec::new();
        let drawn = async {
            let mut some = [0; 4096];
            while !text(&seen).contains("q quits") {
                let count = screen.read(&mut some).await.unwrap();
                assert!(count > 0, "the output ended: {:?}", text(&seen));
                seen.extend_from_slice(&some[..count]);
            }
        };
        timeout(TEST_TIMEOUT, drawn).await.expect("nothing was drawn");
        let shown = text(&seen);
        for part in [ENTER, "chain 0", "head", "middle", "tail", "local clean"] {
            assert!(shown.contains(part), "no {part:?} in {shown:?}");
        }
        assert!(!shown.contains(LEAVE));
        keys.write_all(key.as_bytes()).await.unwrap();
        timeout(TEST_TIMEOUT, screen.read_to_end(&mut seen)).await.expect("ctl did not end").unwrap();
        assert!(text(&seen).contains(LEAVE), "the terminal isn't restored");
        assert_eq!(timeout(TEST_TIMEOUT, script.wait()).await.unwrap().unwrap().code(), Some(0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_terminal_changes_are_printed_and_nothing_else() {
    let mut members = Members::start(&[]).await;
    let names = members.serving(3).await;
    let seeds: Vec<_> = members.addrs().into_iter().flat_map(|addr| ["--seed".to_owned(), addr]).collect();
    let known = ["--cluster", &members.cluster, "--no-mdns", "--timeout", "2000"];
    let args: Vec<_> = known.into_iter().chain(seeds.iter().map(String::as_str)).chain(["status", "--watch"]).collect();
    let mut watch = Node::of(&CTL, members.secret(), &args);
    let first = watch.out.until(|lines| lines.iter().any(|line| line.is_empty())).await.expect("no first block");
    let chain = format!("3 copies: {} (head) → {} (middle) → {} (tail)", names[0], names[1], names[2]);
    assert!(first[0].starts_with("cluster ") && first[1].starts_with("  chain 0, epoch "), "{first:#?}");
    assert!(first[1].ends_with(&chain), "{first:#?}");
    members.kill(&names[2]).await;
    let told = watch
        .out
        .until(|lines| lines.iter().any(|line| line.contains("2 copies")))
        .await
        .expect("no change is printed");
    assert!(told.contains(&format!("chain 0: {} is out, was tail", names[2])), "{told:#?}");
    assert!(told.len() < 20, "more than changes: {told:#?}");
}
