//! More clients than a node has file descriptors for: the node and its journal keep theirs, and the clients above the
//! limit get an error.

use artillery_processes::{NODE, Node, token};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::resp::wire::Wire;

/// Descriptors of a node, as its soft and its hard limit.
const LIMIT: usize = 256;
/// Idle clients per node.
const IDLE: usize = LIMIT + 50;

struct Poor {
    place: std::path::PathBuf,
    nodes: Vec<Node>,
    resp: Vec<String>,
    http: Vec<String>,
}

impl Poor {
    async fn start() -> Self {
        let secret = token();
        let (place, cluster) =
            (std::env::temp_dir().join(format!("artillery-poor-{secret}")), format!("test-{secret}"));
        std::fs::create_dir(&place).unwrap();
        let nodes: Vec<_> = (0..3)
            .map(|n| {
                let dir = place.join(format!("node-{n}"));
                let script = format!("ulimit -n {LIMIT} && exec \"$0\" \"$@\"");
                let ports = ["--resp", "127.0.0.1:0", "--http", "127.0.0.1:0"];
                let given = ["-c", &script, &NODE, "--cluster", &cluster, "--data", dir.to_str().unwrap()];
                Node::of("sh", &secret, &[&given[..], &ports].concat())
            })
            .collect();
        let mut poor = Self { place, nodes, resp: Vec::new(), http: Vec::new() };
        for node in &mut poor.nodes {
            let line = node.ready().await;
            poor.resp.push(line["resp"].as_str().unwrap().to_owned());
            poor.http.push(line["http"].as_str().unwrap().to_owned());
        }
        poor
    }

    fn used(&self, node: usize) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.nodes[node].id())).unwrap().count()
    }
}

impl Drop for Poor {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.place);
    }
}

/// Raises this process's soft limit of descriptors to its hard limit.
fn raise() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits }).unwrap();
}

#[tokio::test]
async fn idle_clients_leave_a_node_its_descriptors() {
    raise();
    let mut poor = Poor::start().await;
    println!("descriptors of idle nodes: {:?}", [0, 1, 2].map(|node| poor.used(node)));
    let mut early = Wire::to(&poor.resp[0]).await;
    let mut idle = Vec::new();
    for addr in &poor.resp {
        for _ in 0..IDLE {
            idle.push(TcpStream::connect(addr).await.unwrap());
        }
    }
    // A node that refuses this connection has handled all earlier ones.
    for (resp, http) in poor.resp.iter().zip(&poor.http) {
        let mut late = TcpStream::connect(resp).await.unwrap();
        late.write_all(b"PING\r\n").await.unwrap();
        let mut told = String::new();
        late.read_to_string(&mut told).await.unwrap();
        assert_eq!(told, "-ERR max number of clients reached\r\n");
        // The HTTP port has permits of its own.
        let mut scrapes = Vec::new();
        for _ in 0..LIMIT {
            scrapes.push(TcpStream::connect(http).await.unwrap());
        }
        let mut late = TcpStream::connect(http).await.unwrap();
        late.write_all(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut told = String::new();
        late.read_to_string(&mut told).await.unwrap();
        assert!(told.starts_with("HTTP/1.1 503 ") && told.contains("max number of clients reached"), "{told}");
    }
    println!("descriptors under such clients: {:?}", [0, 1, 2].map(|node| poor.used(node)));
    // These writes need new files of the journal, and checkpoints.
    let value = "x".repeat(1 << 20);
    for n in 0..200 {
        assert_eq!(early.call(&["SET", &format!("key-{}", n % 10), &value]).await, "+OK\r\n");
    }
    drop(idle);
    for (node, addr) in poor.nodes.iter().zip(&poor.resp) {
        // The node's permits are free again once it has noticed that the idle clients are gone.
        let pong = artillery_processes::eventually(async || {
            let mut socket = TcpStream::connect(addr).await.map_err(|error| error.to_string())?;
            socket.write_all(b"PING\r\nQUIT\r\n").await.map_err(|error| error.to_string())?;
            let mut told = String::new();
            socket.read_to_string(&mut told).await.map_err(|error| error.to_string())?;
            if told.starts_with("+PONG") { Ok(told) } else { Err(told) }
        });
        assert_eq!(pong.await, "+PONG\r\n+OK\r\n");
        assert!(!node.err.all().iter().any(|line| line.contains("os error 24")), "{:?}", node.err.all());
    }
    for node in &mut poor.nodes {
        node.signal("-TERM").await;
    }
    for node in &mut poor.nodes {
        assert_eq!(node.ended().await, Some(0));
    }
}

/// A temporary shortage of descriptors is not a failed disk: writes wait, and continue once descriptors are available.
#[tokio::test]
async fn a_durable_node_waits_for_descriptors() {
    use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
    const LACKING: &str = "the system has no resources for this node's files";
    let (secret, place) = (token(), std::env::temp_dir().join(format!("artillery-lacking-{}", token())));
    let (mut node, line) = Node::alone(&secret, &["--data", place.to_str().unwrap(), "--resp", "127.0.0.1:0"]).await;
    let mut wire = Wire::to(line["resp"].as_str().unwrap()).await;
    let value = "x".repeat(1 << 20);
    assert_eq!(wire.call(&["SET", "key-0", &value]).await, "+OK\r\n");
    let pid = Pid::from_raw(node.id() as i32);
    let maximum = getrlimit(Resource::Nofile).maximum;
    prlimit(pid, Resource::Nofile, Rlimit { current: Some(1), maximum }).unwrap();
    // The journal needs another file after 64 MiB.
    let mut done = 0;
    while wire.call(&["SET", &format!("key-{}", done % 10), &value]).await == "+OK\r\n" {
        done += 1;
        assert!(done < 200, "a file was created without a descriptor");
    }
    prlimit(pid, Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    artillery_processes::eventually(async || match wire.call(&["SET", "key-0", "last"]).await {
        ok if ok == "+OK\r\n" => Ok(()),
        error => Err(error),
    })
    .await;
    assert_eq!(node.err.all().iter().filter(|line| line.contains(LACKING)).count(), 1, "{:?}", node.err.all());
    node.signal("-TERM").await;
    assert_eq!(node.ended().await, Some(0));
    std::fs::remove_dir_all(&place).unwrap();
}
