//! `ctl digest`, `ctl snapshot` and `ctl check` of its file, at the nodes of a cluster that is written.

use std::{fs, path::PathBuf};

use artillery_processes::{CTL, Cluster, expect};
use serde_json::Value;

struct TempFile(PathBuf);

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

async fn ctl(cluster: &Cluster, code: i32, args: &[&str]) -> (String, String) {
    let seed = cluster.addrs[0].to_string();
    let of = ["--cluster", &cluster.name, "--no-mdns", "--seed", &seed];
    expect(code, &CTL, Some(cluster.secret.as_str()), &[&of[..], args].concat()).await
}

fn lines(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_agree_and_a_backup_has_their_digest() {
    let cluster = Cluster::start(&[]).await;
    for n in 0..20 {
        ctl(&cluster, 0, &["put", &format!("key-{n}"), &"value".repeat(n * n)]).await;
    }
    ctl(&cluster, 0, &["put", "session", "x", "--ttl", "1h"]).await;
    let key = "00112233445566778899aabbccddeeff";
    let digests = lines(&ctl(&cluster, 0, &["--json", "digest", "--hash-key", key]).await.0);
    assert_eq!(digests.len(), 3);
    for digest in &digests {
        assert_eq!((&digest["records"], &digest["hash_key"]), (&21.into(), &key.into()), "{digest}");
        for sum in ["sequence", "bytes", "contents", "versions"] {
            assert_eq!(digest[sum], digests[0][sum], "{sum}");
        }
    }
    let (out, _) = ctl(&cluster, 0, &["digest", "key-1"]).await;
    assert_eq!(out.lines().count(), 5, "three members, their heads, and the key: {out}");

    let file = TempFile(std::env::temp_dir().join(format!("artillery-backup-{}", cluster.secret)));
    let path = file.0.to_str().unwrap();
    ctl(&cluster, 0, &["snapshot", path]).await;
    let (_, err) = ctl(&cluster, 1, &["snapshot", path]).await;
    assert!(err.contains("exists"), "a backup is never overwritten: {err}");
    let checked = lines(&expect(0, &CTL, None, &["--json", "check", path, "--hash-key", key]).await.0);
    assert_eq!(checked.len(), 1);
    for sum in ["sequence", "records", "bytes", "contents", "versions", "hash_key"] {
        assert_eq!(checked[0][sum], digests[0][sum], "{sum}");
    }
    let (out, _) = expect(0, &CTL, None, &["check", path]).await;
    assert!(out.starts_with("cluster ") && out.contains("records"), "{out}");

    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, &bytes).unwrap();
    let (_, err) = expect(1, &CTL, None, &["check", path]).await;
    assert!(err.contains("damaged at byte"), "{err}");
    fs::write(path, &bytes[..middle]).unwrap();
    expect(1, &CTL, None, &["check", path]).await;
}
