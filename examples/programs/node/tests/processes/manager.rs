//! The reports of a node to the service manager that started it.

use std::path::{Path, PathBuf};

use artillery_processes::{CTL, Node, TEST_TIMEOUT, expect, token};
use tokio::{net::UnixDatagram, time::timeout};

const LOADS: &str = "STATUS=loading the directory: ";
const EXTENDS: &str = "EXTEND_TIMEOUT_USEC=60000000";

/// A service manager with a folder of its own.
struct Manager {
    folder: PathBuf,
    socket: UnixDatagram,
}

impl Manager {
    fn new(secret: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("artillery-manager-{secret}"));
        std::fs::create_dir(&folder).unwrap();
        let socket = UnixDatagram::bind(folder.join("notify")).unwrap();
        Self { folder, socket }
    }

    fn address(&self) -> String {
        self.folder.join("notify").to_str().unwrap().to_owned()
    }

    /// The lines of all messages up to the first that contains this line.
    async fn until(&self, line: impl Fn(&str) -> bool) -> Vec<String> {
        let mut seen = Vec::new();
        while !seen.iter().any(|seen: &String| line(seen)) {
            let mut bytes = [0; 4096];
            let received = timeout(TEST_TIMEOUT, self.socket.recv(&mut bytes)).await;
            let length = received.unwrap_or_else(|_| panic!("no such message after {seen:?}")).unwrap();
            seen.extend(std::str::from_utf8(&bytes[..length]).unwrap().lines().map(str::to_owned));
        }
        seen
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn start(manager: &Manager, secret: &str, more: &[&str]) -> Node {
    let flags = [&["--no-mdns", "--name", "a"], more].concat();
    Node::start_with(("NOTIFY_SOCKET", &manager.address()), &format!("test-{secret}"), secret, &flags)
}

#[tokio::test]
async fn a_node_is_ready_only_once_it_serves_and_its_stop_is_reported() {
    let secret = token();
    let manager = Manager::new(&secret);
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut node = start(&manager, &secret, &["--expect", "2", "--listen", &port]);
    let is_waiting = |line: &str| line.starts_with("STATUS=not serving: ") && line.contains("1 of 2");
    let mut alone = manager.until(is_waiting).await;
    // The next report follows after a second, in which nothing else may be sent.
    alone.extend(manager.until(is_waiting).await);
    assert!(alone.iter().all(|line| line == EXTENDS || line.starts_with("STATUS=")), "{alone:?}");
    assert!(alone.iter().any(|line| line == EXTENDS), "{alone:?}");
    assert_eq!(node.out.all(), [""; 0]);

    let cluster = format!("test-{secret}");
    let mut other = Node::start(&cluster, &secret, &["--no-mdns", "--expect", "2", "--seed", &port]);
    let lines = manager.until(|line| line == "READY=1").await;
    assert!(lines.contains(&"STATUS=serving".to_owned()), "{lines:?}");
    node.ready().await;
    // A strong read is answered: there is no such key.
    expect(1, &CTL, Some(&secret), &["--cluster", &cluster, "--no-mdns", "--seed", &port, "get", "key"]).await;
    other.ready().await;

    assert_eq!(node.stop("-TERM").await, Some(0));
    let lines = manager.until(|line| line == "STOPPING=1").await;
    assert!(!lines.contains(&"READY=1".to_owned()), "{lines:?}");
}

#[tokio::test]
async fn the_load_of_a_directory_extends_the_start() {
    let secret = token();
    let manager = Manager::new(&secret);
    let data: &Path = &manager.folder.join("data");
    let flags = ["--expect", "1", "--data", data.to_str().unwrap()];
    for is_first in [true, false] {
        let mut node = start(&manager, &secret, &flags);
        let addr = node.ready().await["addr"].as_str().unwrap().to_owned();
        let lines = manager.until(|line| line == "READY=1").await;
        let loaded = lines.iter().position(|line| line.starts_with(LOADS));
        assert_eq!(loaded.map(|at| lines[at + 1].as_str()), (!is_first).then_some(EXTENDS), "{lines:?}");
        let put = ["--cluster", &format!("test-{secret}"), "--no-mdns", "--seed", &addr, "put", "key", "value"];
        expect(0, &CTL, Some(&secret), &put).await;
        assert_eq!(node.stop("-TERM").await, Some(0));
        manager.until(|line| line == "STOPPING=1").await;
    }
}

#[tokio::test]
async fn a_failure_is_reported() {
    let secret = token();
    let manager = Manager::new(&secret);
    let mut node = start(&manager, "short", &[]);
    assert_ne!(node.ended().await, Some(0));
    let lines = manager.until(|line| line.starts_with("STATUS=")).await;
    assert!(lines[0].contains("secret"), "{lines:?}");
}
