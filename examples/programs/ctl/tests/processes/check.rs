//! `ctl check` of a real node's directory.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use artillery_processes::{CTL, Node, assert_documented, documented, expect, token};
use serde_json::Value;

struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fs::read_dir(dir)
        .unwrap()
        .map(|file| file.unwrap().path())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

async fn checked(code: i32, dir: &Path) -> Value {
    let (out, _) = expect(code, &CTL, None, &["--json", "check", dir.to_str().unwrap()]).await;
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

fn flip(file: &Path, byte: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[byte] ^= 1;
    fs::write(file, bytes).unwrap();
}

#[tokio::test]
async fn a_directory_is_checked_and_stays_as_it_is() {
    let secret = token();
    let dir = Directory(std::env::temp_dir().join(format!("artillery-check-{secret}")));
    let path = dir.0.to_str().unwrap();
    let (mut node, line) = Node::alone(&secret, &["--name", "a", "--data", path]).await;
    let of = ["--cluster", &format!("test-{secret}"), "--no-mdns", "--seed", line["addr"].as_str().unwrap()];
    for n in 0..3 {
        let put = ["put", &format!("key-{n}"), "value"];
        expect(0, &CTL, Some(secret.as_str()), &[&of[..], &put[..]].concat()).await;
    }
    let (out, err) = expect(1, &CTL, None, &["check", path]).await;
    assert!(out.is_empty() && err.contains("another node uses it"), "{err}");
    node.kill().await;

    let before = files(&dir.0);
    let whole = checked(0, &dir.0).await;
    assert_documented(&documented("`ctl check --json`"), &whole, "");
    assert_eq!((&whole["whole"], &whole["starts"], &whole["sync"]), (&true.into(), &1.into(), &"batch".into()));
    let chain = &whole["chains"][0];
    assert_eq!(
        (&chain["records"], &chain["whole"], &chain["synced"]),
        (&3.into(), &true.into(), &true.into()),
        "{chain}"
    );
    let (out, _) = expect(0, &CTL, None, &["check", path]).await;
    assert!(out.contains("groups 0 to") && out.contains("control-1") && out.contains("whole, writing"), "{out}");
    assert_eq!(files(&dir.0), before, "a check writes nothing");

    flip(&dir.0.join("control-2"), 40);
    assert_eq!(checked(0, &dir.0).await["control"][1]["state"], "not_whole");
    flip(&dir.0.join("journal-0000000001"), 4096 + 30);
    let damaged = checked(1, &dir.0).await;
    let place = (&damaged["file"], &damaged["offset"], &damaged["damage"], &damaged["whole"]);
    assert_eq!(place, (&"journal-0000000001".into(), &4096.into(), &"group".into(), &false.into()), "{damaged}");
    let (out, err) = expect(1, &CTL, None, &["check", path]).await;
    let words: Vec<_> = out.split_whitespace().collect();
    assert_eq!(words, ["file", "offset", "kind", "journal-0000000001", "4096", "group"]);
    assert!(err.contains("is damaged at byte 4096: group 0 is not whole"), "{err}");
}
