//! Data directories that are mount points, small, or missing.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use artillery_ddata::Client;
use artillery_processes::{Node, token};

/// A separate file system, unmounted on drop.
struct Mount(PathBuf);

impl Mount {
    /// A file system of `size` MiB. `None`, with a message, if this process may not mount, which needs root.
    fn new(size: u32) -> Option<Self> {
        let at = std::env::temp_dir().join(format!("artillery-volume-{}", token()));
        std::fs::create_dir(&at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}M"), "tmpfs"]).arg(&at);
        if mount.output().is_ok_and(|mounted| mounted.status.success()) {
            return Some(Self(at));
        }
        std::fs::remove_dir(&at).unwrap();
        eprintln!("SKIPPED: a mount point needs root");
        None
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

fn start(secret: &str, dir: &Path, more: &[&str]) -> Node {
    let mut flags = vec!["--no-mdns", "--expect", "1", "--data", dir.to_str().unwrap()];
    flags.extend(more);
    Node::start(&format!("test-{secret}"), secret, &flags)
}

#[tokio::test]
async fn a_damaged_volume_has_its_contents_moved() {
    let Some(volume) = Mount::new(128) else { return };
    let secret = token();
    let mut node = start(&secret, &volume.0, &["--name", "db-1"]);
    node.ready().await;
    assert_eq!(node.stop("-TERM").await, Some(0));
    let journal = volume.0.join("journal-0000000001");
    let mut bytes = std::fs::read(&journal).unwrap();
    bytes[4096 + 30] ^= 1;
    std::fs::write(&journal, bytes).unwrap();
    let line = start(&secret, &volume.0, &["--replace-damaged"]).ready().await;
    assert_eq!(line["node"], "db-1", "it keeps the name");
    assert!(volume.0.join("damaged-1/journal-0000000001").is_file());
    // The next start ignores the moved contents.
    let line = start(&secret, &volume.0, &["--replace-damaged"]).ready().await;
    assert_eq!(line["node"], "db-1");
    assert!(!volume.0.join("damaged-2").exists());
}

#[tokio::test]
async fn a_small_volume_holds_data_before_it_is_full() {
    let Some(volume) = Mount::new(96) else { return };
    let secret = token();
    let mut node = start(&secret, &volume.0, &["--name", "db-1"]);
    let line = node.ready().await;
    let client = Client::builder().cluster(format!("test-{secret}")).secret(&*secret);
    let client = client.seed(line["addr"].as_str().unwrap()).connect().await.unwrap();
    // About a third of the volume; a checkpoint of the same size also fits.
    for n in 0..30 {
        let put = client.kv().put(format!("key-{n}"), vec![n; 1 << 20]).await;
        assert!(put.is_ok(), "value {n}: {put:?}");
    }
    let mut full = None;
    for n in 30..96 {
        full = full.or(client.kv().put(format!("key-{n}"), vec![n; 1 << 20]).await.err());
    }
    let full = full.expect("96 values of 1 MiB and a checkpoint are too much");
    assert!(full.to_string().contains("full"), "{full}");
    for n in 0..30 {
        client.kv().delete(format!("key-{n}")).await.unwrap();
    }
    assert_eq!(node.stop("-TERM").await, Some(0));
}

/// All volumes of a cluster are missing, and its nodes start with unchanged command lines.
#[tokio::test]
async fn nodes_of_an_existing_cluster_found_none() {
    let (secret, place) = (token(), std::env::temp_dir().join(format!("artillery-existing-{}", token())));
    let existing = |n: u32, seed: &str| {
        start(&secret, &place.join(n.to_string()), &["--name", &format!("db-{n}"), "--existing", "--seed", seed])
    };
    let mut founder = start(&secret, &place.join("0"), &["--name", "db-0"]);
    let seed = founder.ready().await["addr"].as_str().unwrap().to_owned();
    let mut other = existing(1, &seed);
    let second = other.ready().await["addr"].as_str().unwrap().to_owned();
    // The founder's volume is missing; the other node is running.
    founder.kill().await;
    std::fs::rename(place.join("0"), place.join("volume-0")).unwrap();
    let mut empty = existing(0, &second);
    let says = |line: &String| line.contains("this cluster knows an earlier store of this node");
    assert!(empty.err.until(|lines| lines.iter().any(says)).await.is_some(), "{:#?}", empty.err.all());
    empty.kill().await;
    other.kill().await;
    // All volumes are missing.
    std::fs::rename(place.join("1"), place.join("volume-1")).unwrap();
    std::fs::remove_dir_all(place.join("0")).unwrap();
    let waits = |line: &&String| line.contains("this node waits for a node of its cluster");
    let mut lonely = existing(0, &seed);
    let twice = lonely.err.until(|lines| lines.iter().filter(waits).count() >= 2).await;
    assert!(twice.is_some() && lonely.out.all().is_empty(), "{:#?} {:#?}", lonely.out.all(), lonely.err.all());
    lonely.kill().await;
    let _ = std::fs::remove_dir_all(&place);
}
