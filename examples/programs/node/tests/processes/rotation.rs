//! A secret is replaced under load, and neither a secret nor a value ever appears in a log.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use artillery_core::identity::Identity;
use artillery_ddata::{Client, Kv};
use artillery_processes::{CTL, Cluster, Node, TEST_TIMEOUT, expect, run, text, token};
use tokio::task::JoinSet;

const CALLERS: usize = 3;

/// The files that all nodes read, removed on drop.
struct Files(PathBuf);

impl Files {
    fn new() -> Self {
        let place = std::env::temp_dir().join(format!("artillery-rotation-{}", token()));
        fs::create_dir(&place).unwrap();
        Self(place)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file atomically, as an operator's tools should.
    fn write(&self, name: &str, text: &str) {
        fs::write(self.path("new"), text).unwrap();
        fs::rename(self.path("new"), self.path(name)).unwrap();
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(Path::new(&self.0)));
    }
}

/// Makes all nodes reload their files, and waits until they have.
async fn reread(nodes: &mut [Node], times: usize) {
    for node in nodes {
        node.signal("-HUP").await;
        let told = |lines: &[String]| lines.iter().filter(|line| line.contains("SIGHUP: reloaded")).count() == times;
        assert!(node.err.until(told).await.is_some(), "{:#?}", node.err.all());
    }
}

async fn count(kv: Kv, key: String, value: String, over: Arc<AtomicBool>) -> (String, u64) {
    let mut done = 0;
    while !over.load(Ordering::Relaxed) {
        kv.increment(&*key, 1).await.unwrap();
        done += 1;
        kv.put("plain", value.clone()).await.unwrap();
        assert_eq!(kv.get(&key).await.unwrap().into_value().unwrap(), done.to_string());
    }
    (key, done)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_is_replaced_under_load_and_stands_in_no_log() {
    let (old, new, value, password) = (token(), token(), token(), token());
    let files = Files::new();
    files.write("secret", &old);
    files.write("also", "");
    files.write("password", &password);
    let paths = ["secret", "also", "password"].map(|name| files.path(name));
    let flags = ["--secret-file", &paths[0], "--also-trust", &paths[1], "--port-password-file", &paths[2]];
    let flags = [&flags[..], &["--http", "127.0.0.1:0", "--log", "trace"]].concat();
    let Cluster { name, mut nodes, addrs, .. } = Cluster::start(&flags).await;

    let mut builder = Client::builder().cluster(&name).secret(&old);
    builder = addrs.iter().fold(builder, |builder, seed| builder.seed(seed));
    let client = builder.connect().await.unwrap();
    let as_client = |secret: &str| Identity::from_secret(secret.as_bytes(), client.name()).unwrap();
    let over = Arc::<AtomicBool>::default();
    let mut load = JoinSet::new();
    for caller in 0..CALLERS {
        let kv = client.kv().with_timeout(TEST_TIMEOUT);
        load.spawn(count(kv, format!("count/{caller}"), value.clone(), over.clone()));
    }

    files.write("also", &new);
    reread(&mut nodes, 1).await;
    // A client that uses the new secret early is already trusted, and one that still uses the old secret remains
    // trusted.
    let ctl = ["--cluster", &name, "--no-mdns", "--seed", &addrs[1], "--timeout", "20000", "--also-trust"];
    files.write("other", &old);
    expect(0, &CTL, Some(&new), &[&ctl[..], &[&files.path("other"), "put", "ahead", "1"]].concat()).await;
    client.set_identity(as_client(&old).also_trust_secret(new.as_bytes()).unwrap()).unwrap();
    files.write("secret", &new);
    files.write("also", &old);
    reread(&mut nodes, 2).await;
    files.write("other", &new);
    expect(0, &CTL, Some(&old), &[&ctl[..], &[&files.path("other"), "put", "behind", "1"]].concat()).await;
    client.set_identity(as_client(&new).also_trust_secret(old.as_bytes()).unwrap()).unwrap();
    files.write("also", "");
    reread(&mut nodes, 3).await;
    client.set_identity(as_client(&new)).unwrap();

    let ctl = ["--cluster", &name, "--no-mdns", "--seed", &addrs[1], "--timeout", "3000"];
    let refused = run(&CTL, Some(&old), &[&ctl[..], &["get", "count/0"]].concat()).await;
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
    let put = ["--log", "trace", "--json", "put", "traced", &value];
    let (_, ctl_log) = expect(0, &CTL, Some(&new), &[&ctl[..], &put].concat()).await;
    over.store(true, Ordering::Relaxed);
    for (key, counted) in load.join_all().await {
        let (shown, _) = expect(0, &CTL, Some(&new), &[&ctl[..], &["get", &key]].concat()).await;
        assert_eq!(shown.trim(), counted.to_string());
    }
    let logs = nodes.iter().map(|node| node.err.all());
    for log in logs.chain([ctl_log.lines().map(str::to_owned).collect()]) {
        assert!(log.iter().any(|line| line.contains("TRACE")), "nothing was traced");
        for secret in [&old, &new, &value, &password] {
            let told = log.iter().find(|line| line.contains(secret.as_str()));
            assert_eq!(told, None, "a log contains a secret or a value");
        }
    }
}
