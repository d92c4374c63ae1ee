//! Digests through all trouble: members that give one agree, no digest misses an acknowledged write, and at the end a
//! digest is that of the records that a scan finds.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::sleep;

use super::{super::*, disks::restart};
use crate::{
    ChainId, Kv, Sequence, Session,
    kv::{HashKey, MemberDigest, Sums},
    store::Held,
};

const HASH: HashKey = HashKey([5; 16]);

async fn write(kv: Kv, writer: u64) {
    for round in 0..40_u64 {
        let key = format!("d/{}", (round * 7 + writer) % 9);
        let _ = match (round + writer) % 5 {
            0 => kv.delete(&key).await,
            1 => kv.put(&key, vec![writer as u8; 3000]).ttl(Duration::from_millis(300)).await,
            _ => kv.put(&key, format!("{writer}/{round}")).await,
        };
        sleep(Duration::from_millis((round * 13 + writer * 5) % 40)).await;
    }
}

/// Checks that the members of each chain agree, and returns the number of comparisons.
fn compare(digests: &[MemberDigest]) -> u64 {
    let mut compared = 0;
    for of_chain in digests.chunk_by(|a, b| a.chain == b.chain) {
        let mut sums = of_chain.iter().filter_map(|digest| digest.sums.as_ref().ok());
        let first = sums.next();
        for other in sums {
            assert_eq!(Some(other), first, "members differ: {of_chain:?}");
            compared += 1;
        }
    }
    compared
}

/// The newest acknowledged write of a key of each chain, in `session`.
fn floors(session: &Session) -> impl Fn(ChainId) -> Sequence {
    let frontier = session.frontier();
    move |chain| frontier.floor(chain)
}

async fn observe(cluster: Cluster, restarts: bool) -> u64 {
    let seed = cluster.seed();
    let (session, mut compared) = (Session::new(), 0);
    let clients: Vec<_> = (0..3).map(|_| cluster.client().in_session(&session)).collect();
    let writers: Vec<_> = clients.into_iter().zip(0..).map(|(kv, writer)| tokio::spawn(write(kv, writer))).collect();
    let reader = cluster.client();
    for round in 0..6 {
        sleep(Duration::from_millis(40 + seed % 7 * 20)).await;
        let floor = floors(&session);
        if let Ok(digests) = reader.digest("d/").of_members().await {
            compared += compare(&digests);
            for MemberDigest { chain, as_of, sums, .. } in &digests {
                // The tail, or a member ahead of it, has each acknowledged write.
                let all = digests.iter().filter(|other| other.chain == *chain).all(|other| other.sums.is_ok());
                assert!(!all || sums.is_err() || *as_of >= Some(floor(*chain)), "a write is missing");
            }
        }
        let floor = floors(&session);
        if let Ok(digest) = reader.digest("d/").await {
            digest.points.iter().for_each(|&(chain, at)| assert!(at >= floor(chain), "a write is missing"));
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
    let digests = reader.digest("d/").hash_key(HASH).of_members().await.unwrap();
    compared += compare(&digests);
    assert!(digests.iter().all(|digest| digest.sums.is_ok()), "{digests:?}");
    let (digest, mut sums) = (reader.digest("d/").hash_key(HASH).await.unwrap(), Sums::default());
    let mut scan = reader.scan("d/");
    while let Some(entry) = scan.next().await {
        let entry = entry.unwrap();
        sums.add_record(HASH, &entry.key, &Held::new(entry.version, Some(Bytes::clone(&entry.value))));
    }
    assert_eq!(digest.sums, sums);
    compared
}

fn explore(builder: Builder, seeds: std::ops::Range<u64>, restarts: bool) {
    let (compared, runs) = (AtomicU64::new(0), seeds.end - seeds.start);
    builder.explore(seeds, |cluster| {
        let compared = &compared;
        async move {
            compared.fetch_add(observe(cluster, restarts).await, Ordering::Relaxed);
        }
    });
    let compared = compared.into_inner();
    assert!(compared > 4 * runs, "only {compared} comparisons in {runs} runs");
}

#[test]
fn members_agree_at_one_point_under_trouble() {
    let rough = Trouble { crashes: false, ..Trouble::rough() };
    explore(Cluster::builder().trouble(rough), 0..20, false);
    explore(Cluster::builder().nodes(4).replicas(2).chains(3).trouble(rough), 0..10, false);
}

#[test]
fn members_agree_after_restarts_of_all_nodes() {
    explore(Cluster::builder().durable().trouble(Trouble { crashes: false, ..Trouble::rough() }), 0..10, true);
}
