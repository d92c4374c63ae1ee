//! Views through all trouble: they show committed states, report each change once, and end level.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{task::JoinHandle, time::sleep};

use super::{super::*, disks::restart};
use crate::{
    Batch, Kv, Session, Version, View,
    kv::Versioned,
    view::{ViewChange, ViewState},
};

/// The timeout of each step, in virtual time.
const PATIENCE: Duration = Duration::from_secs(120);
const ROUNDS: u64 = 12;
/// Each pair is always written together, with one value.
const PAIRS: [[&str; 2]; 2] = [["v/{p}x", "v/{p}y"], ["v/{q}x", "v/{q}y"]];

type State = BTreeMap<Bytes, Versioned<Bytes>>;

/// The acknowledged values, with their versions.
type Acknowledged = Arc<Mutex<Vec<(String, Version, String)>>>;

/// A choice that the seed determines.
fn draw(seed: u64, writer: u64, round: u64) -> u64 {
    let mut mixed = (seed << 32) ^ (writer << 16) ^ round;
    for _ in 0..3 {
        mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    mixed >> 7
}

/// Makes random writes, with unique values. Their errors are ignored: the outcomes of some are unknown.
async fn write(kv: Kv, seed: u64, writer: u64, acknowledged: Acknowledged) {
    for round in 0..ROUNDS {
        let drawn = draw(seed, writer, round);
        let (key, value) = (format!("v/{}", drawn / 16 % 5), format!("{writer}/{round}"));
        let [x, y] = PAIRS[drawn as usize / 16 % 2];
        let done = match drawn % 8 {
            0 | 1 => kv.put(&key, value.clone()).await.ok().map(|done| (vec![key.as_str()], done.version)),
            2 => kv
                .put(&key, value.clone())
                .ttl(Duration::from_millis(200))
                .await
                .ok()
                .map(|done| (vec![key.as_str()], done.version)),
            3 => {
                let _ = kv.delete(&key).await;
                let _ = kv.expire("v/0", Duration::from_secs(3)).await;
                None
            }
            4 => {
                let _ = kv.write(Batch::new().delete(x).delete(y)).await;
                None
            }
            _ => {
                let batch = Batch::new().put(x, value.clone()).put(y, value.clone());
                kv.write(batch).await.ok().map(|done| (vec![x, y], done.version))
            }
        };
        if let Some((keys, version)) = done {
            let all = keys.into_iter().map(|key| (key.to_owned(), version, value.clone()));
            acknowledged.lock().unwrap().extend(all);
        }
        sleep(Duration::from_millis(drawn % 90)).await;
    }
}

/// A view with a record of its callback.
struct Observed {
    view: View,
    prefix: &'static str,
    reported: Arc<Mutex<Vec<ViewChange>>>,
    /// Whether it was open before the first write.
    is_early: bool,
}

impl Observed {
    async fn open(kv: &Kv, prefix: &'static str, is_early: bool) -> Self {
        let reported = Arc::<Mutex<Vec<ViewChange>>>::default();
        let record = reported.clone();
        let view = kv.view(prefix).timeout(PATIENCE);
        let view = view.on_change(move |change| record.lock().unwrap().push(change.clone())).await.unwrap();
        Self { view, prefix, reported, is_early }
    }

    fn state(&self) -> State {
        let entry = |entry: crate::kv::Entry| (entry.key, Versioned { version: entry.version, value: entry.value });
        self.view.iter().map(entry).collect()
    }

    /// Checks that the pairs are whole, until the end.
    fn check_pairs(&self, over: &Arc<AtomicBool>) -> JoinHandle<()> {
        let (view, over) = (self.view.clone(), over.clone());
        tokio::spawn(async move {
            while !over.load(Ordering::Relaxed) {
                let state: State = view
                    .iter()
                    .map(|entry| (entry.key, Versioned { version: entry.version, value: entry.value }))
                    .collect();
                for [x, y] in PAIRS {
                    assert_eq!(state.get(x.as_bytes()), state.get(y.as_bytes()), "half of a batch");
                }
                sleep(Duration::from_millis(3)).await;
            }
        })
    }

    /// Checks the reported changes, by themselves and against the acknowledged values. Returns the state that they lead
    /// to.
    fn folded(&self, acknowledged: &Acknowledged) -> State {
        let mut state = State::new();
        let mut newest = BTreeMap::<Bytes, Version>::new();
        let reported = self.reported.lock().unwrap().clone();
        for change in &reported {
            let ViewChange { key, previous, value, .. } = change.clone();
            assert!(key.starts_with(self.prefix.as_bytes()));
            assert_ne!(previous, value, "{key:?} was reported again");
            if let Some(value) = &value {
                let former = newest.insert(key.clone(), value.version).unwrap_or(Version::NONE);
                assert!(former < value.version, "{key:?} was reported as of {former} before {}", value.version);
            }
            let former = match value {
                Some(value) => state.insert(key.clone(), value),
                None => state.remove(&key),
            };
            let values = |found: Option<Versioned<Bytes>>| found.map(|found| found.value);
            assert_eq!(values(former), values(previous), "{key:?}");
        }
        for (key, version, value) in acknowledged.lock().unwrap().iter() {
            let of_value = |change: &&ViewChange| {
                change.key == *key && change.value.as_ref().is_some_and(|found| found.value == *value)
            };
            let times: Vec<_> = reported.iter().filter(of_value).collect();
            assert!(times.len() <= 1, "{key} was reported twice: {times:?}");
            for change in &times {
                let shown = change.value.as_ref().unwrap().version;
                // Renewals of the expiry change the version of this key.
                assert!(shown == *version || (key == "v/0" && shown > *version), "{key} = {value} at {shown}");
            }
            let status = self.view.status();
            let is_complete = self.is_early && status.resyncs == 0 && status.state == ViewState::Level;
            if is_complete && key.starts_with(self.prefix) {
                assert_eq!(times.len(), 1, "{key} = {value} wasn't reported");
            }
        }
        state
    }
}

/// The values of all keys, without their versions: a renewal of an expiry changes only the version.
fn values(state: State) -> BTreeMap<Bytes, Bytes> {
    state.into_iter().map(|(key, found)| (key, found.value)).collect()
}

/// The reported changes as text, and how often keys were read again.
struct Outcome {
    text: String,
    resyncs: u64,
}

async fn observe(cluster: Cluster, restarts: bool) -> Outcome {
    let (seed, over, acknowledged) = (cluster.seed(), Arc::<AtomicBool>::default(), Acknowledged::default());
    let (one, other, of_node) = (cluster.client(), cluster.client(), cluster.kv(cluster.head()));
    let mut views = vec![
        Observed::open(&one, "v/", true).await,
        Observed::open(&other, "v/{p}", true).await,
        Observed::open(&of_node, "v/", true).await,
    ];
    let checks: Vec<_> = views.iter().map(|observed| observed.check_pairs(&over)).collect();
    let writers = [cluster.client(), one.clone(), of_node.clone(), cluster.client()];
    let writers: Vec<_> = writers
        .into_iter()
        .zip(0..)
        .map(|(kv, writer)| tokio::spawn(write(kv, seed, writer, acknowledged.clone())))
        .collect();
    sleep(Duration::from_millis(150 + 40 * (seed % 10))).await;
    views.push(Observed::open(&one, "v/", false).await);
    views.push(Observed::open(&other, "v/", false).await);
    if restarts {
        for round in 0..2 {
            restart(&cluster, seed >> round).await;
            sleep(Duration::from_millis(200)).await;
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    cluster.check().await;
    over.store(true, Ordering::Relaxed);
    for check in checks {
        check.await.unwrap();
    }
    // Keys that expire are gone by then.
    sleep(Duration::from_secs(10)).await;
    let (mut text, mut resyncs) = (String::new(), 0);
    for observed in views {
        let session = Session::new();
        let mut scan = cluster.client().scan(observed.prefix).session(&session);
        let mut strong = State::new();
        while let Some(entry) = scan.next().await {
            let entry = entry.unwrap();
            strong.insert(entry.key, Versioned { version: entry.version, value: entry.value });
        }
        let caught_up = tokio::time::timeout(PATIENCE, observed.view.caught_up_to_session(&session)).await;
        let folded = observed.folded(&acknowledged);
        assert_eq!(values(folded), values(observed.state()), "{}", observed.prefix);
        let status = observed.view.status();
        resyncs += status.resyncs;
        match status.state {
            ViewState::Ended(error) => assert!(restarts, "{error}"),
            state => {
                caught_up.expect("the view is never level").unwrap();
                assert_eq!(values(observed.state()), values(strong), "{}", observed.prefix);
                assert_eq!(state, ViewState::Level);
            }
        }
        text += &format!("{:?}\n", observed.reported.lock().unwrap());
    }
    Outcome { text, resyncs }
}

/// All faults except crashes of the processes of views.
fn rough() -> Trouble {
    Trouble { crashes: false, ..Trouble::rough() }
}

fn many_chains() -> Builder {
    Cluster::builder().nodes(4).replicas(2).chains(3).trouble(rough())
}

#[test]
fn views_report_each_change_once_and_end_level() {
    Cluster::builder().trouble(rough()).explore(0..60, |cluster| async move { drop(observe(cluster, false).await) });
    many_chains().explore(0..30, |cluster| async move { drop(observe(cluster, false).await) });
}

#[test]
fn views_survive_restarts_of_all_nodes() {
    many_chains().durable().explore(0..30, |cluster| async move { drop(observe(cluster, true).await) });
}

/// Members keep few updates, so views often read all keys again.
#[test]
fn views_survive_gaps_of_the_kept_history() {
    let resyncs = AtomicU64::new(0);
    let observe = |cluster| {
        let resyncs = &resyncs;
        async move {
            resyncs.fetch_add(observe(cluster, false).await.resyncs, Ordering::Relaxed);
        }
    };
    Cluster::builder().trouble(rough()).backlog(300).explore(0..30, observe);
    many_chains().backlog(300).explore(0..30, observe);
    let resyncs = resyncs.into_inner();
    assert!(resyncs > 60, "only {resyncs}");
}

#[test]
fn a_seed_determines_all_views() {
    let reported = |seed| {
        let reported = Mutex::new(String::new());
        many_chains().durable().explore([seed], |cluster| {
            let reported = &reported;
            async move {
                let Outcome { text, .. } = observe(cluster.clone(), true).await;
                *reported.lock().unwrap() = text + &cluster.history();
            }
        });
        reported.into_inner().unwrap()
    };
    assert_eq!(reported(3), reported(3));
    assert_ne!(reported(3), reported(4));
}
