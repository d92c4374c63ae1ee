//! Backups through all trouble: each file is whole, shows one point of the history, and contains every write that was
//! acknowledged up to there.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::sleep;

use super::{super::*, disks::restart};
use crate::{
    Kv, Sequence, Version,
    backup::{self, BackupReport},
    kv::{Change, HashKey, Sums, Watch},
};

const HASH: HashKey = HashKey([6; 16]);

/// The acknowledged puts: their keys, versions and values.
type Acknowledged = Arc<Mutex<Vec<(String, Version, Bytes)>>>;

async fn write(kv: Kv, writer: u64, acknowledged: Acknowledged) {
    for round in 0..40_u64 {
        let (kept, other) = (format!("kept/{}", (round * 7 + writer) % 9), format!("other/{}", round % 5));
        let value = Bytes::from(format!("{writer}/{round}/{}", "x".repeat((round * 97 % 2000) as usize)));
        if let Ok(done) = kv.put(&kept, value.clone()).await {
            acknowledged.lock().unwrap().push((kept, done.version, value));
        }
        let _ = match round % 4 {
            0 => kv.delete(&other).await.map(drop),
            1 => kv.put(&other, "x").ttl(Duration::from_millis(300)).await.map(drop),
            2 => kv.expire(&other, Duration::from_secs(3)).await.map(drop),
            _ => kv.append(&other, "y").await.map(drop),
        };
        // The last key is often deleted.
        let _ =
            if round % 6 < 3 { kv.put("zz", vec![1; 3000]).await.map(drop) } else { kv.delete("zz").await.map(drop) };
        sleep(Duration::from_millis((round * 13 + writer * 5) % 40)).await;
    }
}

async fn file(kv: &Kv) -> Result<Vec<u8>, crate::Error> {
    let (mut file, mut backup) = (Vec::new(), kv.backup().timeout(Duration::from_secs(2)));
    while let Some(bytes) = backup.next().await {
        file.extend(bytes?);
    }
    Ok(file)
}

/// Checks the file against the writes that were acknowledged before the backup began, and the ones acknowledged since.
fn check(file: &[u8], before: &[(String, Version, Bytes)], by_now: &[(String, Version, Bytes)]) -> BackupReport {
    let report = backup::check(file, HASH).unwrap_or_else(|error| panic!("{} bytes: {error}", file.len()));
    for (chain, at) in &report.end.chains {
        let shown = report.chains.iter().find(|shown| shown.chain == *chain).unwrap();
        let found: BTreeMap<Bytes, (Bytes, Version)> =
            backup::records(shown).map(|(key, value, version)| (key, (value, version))).collect();
        assert!(found.values().all(|(_, version)| version.sequence <= *at), "a record is from after the point");
        for (key, version, value) in by_now.iter().filter(|(key, ..)| found.contains_key(key.as_bytes())) {
            let (shown, of) = &found[key.as_bytes()];
            assert!(version != of || value == shown, "{key} at {version}");
            assert!(version.sequence > *at || version <= of, "{key}: {version} is missing at {at:?}");
        }
        let last = before.iter().filter(|(key, ..)| found.contains_key(key.as_bytes())).map(|(_, version, _)| version);
        let last = last.map(|version| version.sequence).max().unwrap_or(Sequence::ZERO);
        assert!(last <= *at, "the backup is older than a write before it");
    }
    for (key, ..) in before {
        let holds = report.chains.iter().any(|chain| backup::records(chain).any(|(found, ..)| found == key.as_bytes()));
        assert!(holds, "{key} is missing");
    }
    report
}

/// All changes from the beginning, by a watch. `None` once it has missed some.
type Changes = Arc<Mutex<Option<Vec<Change>>>>;

async fn record(mut watch: Watch, changes: Changes) {
    while let Some(change) = watch.next().await {
        let mut all = changes.lock().unwrap();
        match (change, &mut *all) {
            (Ok(change), Some(all)) => all.push(change),
            _ => *all = None,
        }
    }
    *changes.lock().unwrap() = None;
}

/// Compares whole files with the changes up to their points. Only with one chain: a change doesn't name its chain.
fn compare(reports: &[BackupReport], changes: &[Change]) {
    for report in reports {
        let [chain] = &report.chains[..] else { continue };
        let mut state = BTreeMap::new();
        for Change { key, value, .. } in changes.iter().filter(|change| change.version.sequence <= chain.at) {
            match value {
                Some(value) => state.insert(key.clone(), value.clone()),
                None => state.remove(key),
            };
        }
        let found: BTreeMap<_, _> = backup::records(chain).map(|(key, value, _)| (key, value)).collect();
        assert_eq!(found, state, "at {:?}", chain.at);
    }
}

async fn observe(cluster: Cluster, restarts: bool) {
    let (seed, acknowledged) = (cluster.seed(), Acknowledged::default());
    let (changes, mut reports) = (Changes::new(Mutex::new(Some(Vec::new()))), Vec::new());
    let watch = cluster.client().watch("").await.unwrap();
    let recorder = tokio::spawn(record(watch, changes.clone()));
    let writers: Vec<_> =
        (0..3).map(|writer| tokio::spawn(write(cluster.client(), writer, acknowledged.clone()))).collect();
    let (reader, mut made) = (cluster.client(), 0);
    for round in 0..5 {
        sleep(Duration::from_millis(40 + seed % 7 * 20)).await;
        let before = acknowledged.lock().unwrap().clone();
        if let Ok(file) = file(&reader).await {
            reports.push(check(&file, &before, &acknowledged.lock().unwrap()));
            made += 1;
        }
        if restarts && round == 2 {
            restart(&cluster, seed).await;
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    cluster.check().await;
    // Keys that expire are gone by then.
    sleep(Duration::from_secs(10)).await;
    let all = acknowledged.lock().unwrap().clone();
    let report = check(&file(&reader).await.unwrap(), &all, &all);
    let digest = reader.digest("").hash_key(HASH).await.unwrap();
    let mut sums = Sums::default();
    report.chains.iter().for_each(|chain| sums.add(&chain.sums));
    assert_eq!(sums, digest.sums);
    assert_eq!(report.end.chains, digest.points);
    assert!(made > 0, "no backup was made under trouble");
    recorder.abort();
    if let Some(changes) = &*changes.lock().unwrap() {
        compare(&reports, changes);
    }
}

fn rough() -> Trouble {
    Trouble { crashes: false, ..Trouble::rough() }
}

#[test]
fn backups_show_one_point_under_trouble() {
    Cluster::builder().trouble(rough()).explore(0..16, |cluster| observe(cluster, false));
    Cluster::builder().nodes(4).replicas(2).chains(3).trouble(rough()).explore(0..8, |cluster| observe(cluster, false));
}

#[test]
fn backups_show_one_point_around_restarts_of_all_nodes() {
    Cluster::builder().durable().trouble(rough()).explore(0..8, |cluster| observe(cluster, true));
}

/// Members keep so few updates that most backups begin a chain again.
#[test]
fn backups_begin_again_when_updates_are_gone() {
    Cluster::builder().trouble(rough()).backlog(300).explore(0..8, |cluster| observe(cluster, false));
}
