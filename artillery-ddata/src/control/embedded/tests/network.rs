//! A network in memory: delays, losses, one-way cuts, crashes and restarts, all from one seed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use artillery_proto::{
    allows,
    data_dir::{ControlFile, ControlRecord, WrittenRecord},
    disk::{
        Disk,
        simulated::{CutSettings, SimulatedDisk},
    },
    guards::Guards,
};
use bytes::Bytes;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::{sync::oneshot, time::sleep};

use super::super::{CallError, Embedded, EmbeddedSettings, LogTransport, StorePlace};
use crate::{
    ClusterId, Incarnation, MemberId, NodeId,
    control::{Bootstrap, NodeInfo, log::BoxFuture},
};

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Weather {
    /// Lost messages per thousand.
    pub(super) loss: u32,
    /// Messages per thousand that arrive twice.
    pub(super) twice: u32,
    /// The maximum delay of a message, in milliseconds.
    pub(super) delay: u64,
}

pub(super) struct World {
    pub(super) random: ChaCha8Rng,
    pub(super) weather: Weather,
    /// Links (from, to) that deliver nothing.
    pub(super) cuts: BTreeSet<(NodeId, NodeId)>,
    pub(super) living: BTreeMap<NodeId, (NodeInfo, Embedded)>,
    starts: BTreeMap<NodeId, u64>,
    /// A digest of all sent messages: equal runs have equal ones.
    pub(super) digest: u64,
    /// Whether a new incarnation receives messages for an old one.
    any_incarnation: bool,
    /// The disk of each node; `None`: nodes have no disks.
    disks: Option<BTreeMap<NodeId, SimulatedDisk>>,
}

#[derive(Clone)]
pub(super) struct Net(Arc<Mutex<World>>);

pub(super) fn node(n: usize) -> NodeId {
    NodeId::from_bytes([n as u8 + 1; 16])
}

/// Node `n` without a disk: each start has another store.
fn founder(n: usize, starts: u64) -> NodeInfo {
    named(n, Incarnation { store: u128::from(starts), starts: 1 })
}

fn named(n: usize, incarnation: Incarnation) -> NodeInfo {
    let id = MemberId { node: node(n), incarnation };
    NodeInfo { id, name: format!("n{n}"), addrs: vec![([127, 0, 0, 1], 7000 + n as u16).into()], host: None }
}

pub(super) fn founding(founders: usize) -> Bootstrap {
    Bootstrap::new(ClusterId(7), "shop", (0..founders).map(|n| founder(n, 1)).collect())
}

impl Net {
    pub(super) fn new(seed: u64, guards: Guards) -> Self {
        Self(Arc::new(Mutex::new(World {
            random: ChaCha8Rng::seed_from_u64(seed),
            weather: Weather { loss: 0, twice: 0, delay: 2 },
            cuts: BTreeSet::new(),
            living: BTreeMap::new(),
            starts: BTreeMap::new(),
            digest: 0,
            any_incarnation: allows!(guards, KeepVote),
            disks: None,
        })))
    }

    pub(super) fn with_disks(seed: u64, guards: Guards) -> Self {
        let net = Self::new(seed, guards);
        net.world().disks = Some(BTreeMap::new());
        net
    }

    /// The node and its control file in its next start; `None`: the node has no disk.
    fn opened(&self, n: usize, starts: u64, guards: Guards) -> Option<(NodeInfo, ControlFile)> {
        let mut world = self.world();
        let World { disks, random, .. } = &mut *world;
        let cuts = CutSettings { tears_sectors: true, leaves_garbage: true };
        let new = || SimulatedDisk::new(random.random(), 1 << 30, cuts);
        let disk = disks.as_mut()?.entry(node(n)).or_insert_with(new);
        let mut found = ControlFile::find(disk).unwrap().unwrap_or_else(|| {
            let record = ControlRecord::new(node(n), 1);
            WrittenRecord { number: 0, record }
        });
        found.record.incarnation.starts = starts - 1;
        let id = random.random();
        found.record.begin(id, found.number, 0);
        let me = named(n, found.record.incarnation);
        Some((me, ControlFile::begin(Arc::new(disk.clone()), found, guards).unwrap()))
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    pub(super) fn below(&self, bound: u64) -> u64 {
        self.world().random.random_range(0..bound)
    }

    pub(super) async fn start(&self, n: usize, founding: &Bootstrap, settings: &EmbeddedSettings) -> Embedded {
        let (started, seed) = {
            let mut world = self.world();
            let started = world.starts.entry(node(n)).or_default();
            *started += 1;
            (*started, world.random.random())
        };
        let (me, control) = match self.opened(n, started, settings.guards) {
            Some((me, control)) => {
                let place = StorePlace::new(me.id, control, Arc::default());
                (me, Some(place))
            }
            None => (founder(n, started), None),
        };
        let wire = Wire { net: self.clone(), from: me.id };
        let settings = EmbeddedSettings { seed, ..settings.clone() };
        let log = Embedded::start(me.clone(), founding, settings, Arc::new(wire), control).await.unwrap();
        self.world().living.insert(node(n), (me, log.clone()));
        log
    }

    pub(super) fn crash(&self, n: usize) {
        let gone = self.world().living.remove(&node(n));
        let mut world = self.world();
        let lit = world.random.random();
        if let Some(disk) = world.disks.as_ref().and_then(|disks| disks.get(&node(n))) {
            if lit { disk.restart() } else { disk.cut_power() }
        }
        drop(world);
        if let Some((_, log)) = gone {
            tokio::spawn(async move { log.stop().await });
        }
    }

    pub(super) fn logs(&self) -> Vec<(NodeInfo, Embedded)> {
        self.world().living.values().cloned().collect()
    }

    pub(super) fn heal(&self) {
        let mut world = self.world();
        world.cuts.clear();
        world.weather = Weather { loss: 0, twice: 0, delay: 5 };
    }

    /// Waits for the delay of a message; `false` if the message is lost.
    async fn travel(&self, from: MemberId, to: MemberId) -> bool {
        let (delay, lost) = {
            let World { random, weather, .. } = &mut *self.world();
            (random.random_range(0..=weather.delay * 1000), random.random_range(0..1000) < weather.loss)
        };
        sleep(Duration::from_micros(delay)).await;
        !lost && !self.world().cuts.contains(&(from.node, to.node))
    }

    pub(super) fn log(&self, id: MemberId) -> Option<Embedded> {
        let world = self.world();
        let (founder, log) = world.living.get(&id.node)?;
        (founder.id.shares_store(id) || world.any_incarnation).then(|| log.clone())
    }

    async fn deliver(&self, from: MemberId, to: MemberId, message: Bytes) -> Option<Result<Bytes, CallError>> {
        if !self.travel(from, to).await {
            return None;
        }
        let answer = match self.log(to) {
            Some(log) => log.serve(from, message).await,
            None => Err(CallError::Unreachable("no such node".into())),
        };
        self.travel(to, from).await.then_some(answer)
    }
}

pub(super) struct Wire {
    pub(super) net: Net,
    pub(super) from: MemberId,
}

impl LogTransport for Wire {
    fn call(&self, to: &NodeInfo, message: Bytes) -> BoxFuture<'static, Result<Bytes, CallError>> {
        let (net, from, to) = (self.net.clone(), self.from, to.id);
        let times = {
            let mut world = net.world();
            world.digest =
                message.iter().fold(world.digest, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
            let alive = world.living.get(&from.node).is_none_or(|(founder, _)| founder.id == from);
            let twice = world.weather.twice;
            if !alive { 0 } else { 1 + usize::from(world.random.random_range(0..1000) < twice) }
        };
        let (tx, rx) = oneshot::channel();
        let mut tx = Some(tx);
        for _ in 0..times {
            let (net, message, tx) = (net.clone(), message.clone(), tx.take());
            // A sent message arrives even if no caller still waits for an answer.
            tokio::spawn(async move {
                if let (Some(answer), Some(tx)) = (net.deliver(from, to, message).await, tx) {
                    let _ = tx.send(answer);
                }
            });
        }
        Box::pin(async move {
            match rx.await {
                Ok(answer) => answer,
                Err(_) => std::future::pending().await,
            }
        })
    }
}

/// A control file in the start `starts` of node `n`, after `Data::keep_founding` and before anything else.
pub(super) fn after_keep_founding(n: usize, starts: u64, founding: &Bootstrap) -> (NodeInfo, StorePlace) {
    let disk = SimulatedDisk::new(5, 1 << 30, CutSettings { tears_sectors: true, leaves_garbage: true });
    let mut record = ControlRecord::new(node(n), 1);
    record.incarnation.starts = starts - 1;
    record.begin(1, 0, 0);
    let me = named(n, record.incarnation);
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let control = ControlFile::begin(disk, WrittenRecord { number: 0, record }, Guards::ALL).unwrap();
    control.change(|record| record.keep_founding(me.id, founding)).unwrap();
    let place = StorePlace::new(me.id, control, Arc::default());
    (me, place)
}

/// The only founder is killed after its founding was stored, and before the log's first entry was.
#[tokio::test(start_paused = true)]
async fn a_founder_killed_before_its_first_entry_leads_after_a_restart() {
    use crate::control::ConfigLog;
    let founding = founding(1);
    let net = Net::new(1, Guards::ALL);
    let (me, control) = after_keep_founding(0, 2, &founding);
    let wire = Wire { net: net.clone(), from: me.id };
    let log = Embedded::start(me, &founding, EmbeddedSettings::default(), Arc::new(wire), Some(control)).await.unwrap();
    sleep(Duration::from_secs(600)).await;
    assert!(log.leads().is_some(), "no leader after ten minutes; voters: {:?}", log.voters());
}

/// A new durable node joins a cluster that was recovered once.
#[tokio::test(start_paused = true)]
async fn a_new_durable_node_joins_a_recovered_cluster() {
    use crate::control::{
        ConfigLog, History,
        embedded::LogHandle,
        log::{ConfigChange, LogIndex},
    };
    let (net, founding, log, _) = super::conformance::group(1, &EmbeddedSettings::default()).await;
    let seat = LogHandle::new(log.clone());
    let history = History::first(founding.cluster).next(99);
    let leader = founding.members[0].clone();
    seat.recover(log.configs().recovered(history, leader.clone(), crate::Epoch(3), LogIndex(9))).await.unwrap();
    net.world().living.insert(leader.id.node, (leader, seat.log()));
    while seat.leads().is_none() {
        sleep(Duration::from_millis(50)).await;
    }
    for durable in [false, true] {
        let n = 3 + usize::from(durable);
        let (me, control) = after_keep_founding(n, 1, &founding);
        let control = durable.then_some(control);
        let wire = Wire { net: net.clone(), from: me.id };
        let late =
            Embedded::start(me.clone(), &founding, EmbeddedSettings::default(), Arc::new(wire), control).await.unwrap();
        net.world().living.insert(me.id.node, (me.clone(), late.clone()));
        let (term, at) = (seat.leads().unwrap(), seat.configs().applied().next());
        seat.append(term, at, ConfigChange::Nodes { add: vec![me], remove: vec![] }).await.unwrap();
        let left = tokio::time::timeout(Duration::from_secs(30), late.histories().left_behind(None)).await;
        assert!(left.is_err(), "durable: {durable}: the new node reports that {left:?} left it behind, and stops");
        assert_eq!(late.configs().applied(), at, "durable: {durable}");
    }
}
