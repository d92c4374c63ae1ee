//! A group under faults, its clients, and an operator that repairs it.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use artillery_proto::guards::Guards;
use tokio::time::{Instant, sleep, timeout};

use super::{
    super::{Embedded, EmbeddedSettings},
    book::Book,
    network::{Net, Weather, node},
};
use crate::{
    MemberId,
    control::{
        Bootstrap, ConfigLog, NodeInfo,
        log::{ConfigChange, ConfigLogError, LogIndex},
    },
};

pub(super) struct Group {
    pub(super) net: Net,
    pub(super) founding: Bootstrap,
    pub(super) settings: EmbeddedSettings,
    nodes: usize,
    book: Arc<Mutex<Book>>,
    /// Whether majorities may be lost permanently.
    lethal: bool,
    /// Whether nodes have disks. Then all of them may stop at once.
    durable: bool,
}

/// The maximum time from healing until the group has a leader that all nodes follow.
const BOUND: Duration = Duration::from_secs(30);

impl Group {
    pub(super) fn new(seed: u64, founders: usize, nodes: usize, lethal: bool, guards: Guards) -> Self {
        let small = seed.is_multiple_of(2);
        let (snapshot_every, window) = if small { (8, 16) } else { (512, 1024) };
        let settings = EmbeddedSettings { snapshot_every, window, guards, ..EmbeddedSettings::default() };
        let (net, founding) = (Net::new(seed, guards), super::network::founding(founders));
        Self { net, founding, settings, nodes, book: Arc::default(), lethal, durable: false }
    }

    pub(super) fn durable(seed: u64, founders: usize, nodes: usize, guards: Guards) -> Self {
        let net = Net::with_disks(seed, guards);
        Self { net, durable: true, ..Self::new(seed, founders, nodes, false, guards) }
    }

    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap()
    }

    pub(super) async fn start(&self, n: usize) {
        let log = self.net.start(n, &self.founding, &self.settings).await;
        tokio::spawn(read(format!("n{n}"), log, self.book.clone()));
    }

    pub(super) async fn restart(&self, n: usize) {
        self.net.crash(n);
        self.start(n).await;
    }

    fn observe(&self) {
        let mut book = self.book();
        for (founder, log) in self.net.logs() {
            book.observe(founder.id, &log);
            if self.settings.guards == Guards::ALL && log.0.applied.progress().ended {
                book.violation = Some(format!("the part of {} in the group ended by itself", founder.id));
            }
        }
    }

    fn leading(&self) -> Option<(NodeInfo, Embedded)> {
        let leading: Vec<_> = self.net.logs().into_iter().filter(|(_, log)| log.leads().is_some()).collect();
        let pick = self.net.below(leading.len().max(1) as u64) as usize;
        leading.into_iter().nth(pick)
    }

    /// A client appends at a node that leads or believes so. Sometimes it waits first, perhaps until the node no longer
    /// leads, or names a wrong place.
    fn append(&self) {
        let Some((_, log)) = self.leading() else { return };
        let Some(term) = log.leads() else { return };
        let at = log.configs().applied().0 + [1, 1, 1, 1, 0, 2][self.net.below(6) as usize];
        let wait = Duration::from_millis([0, 0, self.net.below(30), self.net.below(1500)][self.net.below(4) as usize]);
        let book = self.book.clone();
        let change = self.book().change();
        tokio::spawn(async move {
            sleep(wait).await;
            let done = log.append(term, LogIndex(at), change.clone()).await;
            book.lock().unwrap().append_done(term, LogIndex(at), change, &done);
        });
    }

    fn confirm(&self) {
        let Some((founder, log)) = self.leading() else { return };
        let Some(term) = log.leads() else { return };
        let book = self.book.clone();
        tokio::spawn(async move {
            let floor = book.lock().unwrap().floor();
            let done: Result<_, ConfigLogError> = log.confirm(term).await;
            book.lock().unwrap().confirm_done(founder.id, floor, &done);
        });
    }

    /// Adds new incarnations to the configuration, and makes live nodes voters.
    pub(super) async fn look_after(&self) {
        let Some((_, log)) = self.leading() else { return };
        let Some(term) = log.leads() else { return };
        let (configs, living) = (log.configs(), self.net.logs());
        let add: Vec<_> = living.iter().filter(|(founder, _)| configs.node(founder.id).is_none()).collect();
        if !add.is_empty() {
            let add = add.iter().map(|(founder, _)| founder.clone()).collect();
            let change = match self.book().change() {
                ConfigChange::Nodes { remove, .. } => ConfigChange::Nodes { add, remove },
                other => other,
            };
            let at = configs.applied().next();
            let done = log.append(term, at, change.clone()).await;
            self.book().append_done(term, at, change, &done);
            return;
        }
        let voters = log.voters();
        let wanted = wanted(&voters, &living);
        if wanted != voters {
            let _ = log.set_voters(term, wanted).await;
        }
    }

    fn can_spare(&self, n: usize) -> bool {
        let left = |id: MemberId| id.node != node(n) && self.net.log(id).is_some();
        self.net.logs().iter().all(|(_, log)| {
            let metrics = log.0.metrics.borrow().membership_config.clone();
            let majority =
                |set: &BTreeSet<_>| set.iter().filter(|id: &&super::super::RaftId| left(id.0)).count() * 2 > set.len();
            metrics.membership().get_joint_config().iter().all(majority)
        })
    }

    fn cut(&self) {
        let n = self.net.below(self.nodes as u64) as usize;
        let victim = match self.leading() {
            Some((leader, _)) if self.net.below(2) == 0 => leader.id.node,
            _ => node(n),
        };
        let (to, from, some) = (self.net.below(3) > 0, self.net.below(3) > 0, self.net.below(2) == 0);
        for other in 0..self.nodes {
            if !some || self.net.below(2) == 0 {
                let cuts = &mut self.net.world().cuts;
                if to {
                    cuts.insert((node(other), victim));
                }
                if from {
                    cuts.insert((victim, node(other)));
                }
            }
        }
    }

    pub(super) async fn rough(&self, time: Duration) {
        let pick = |from: &[u64]| from[self.net.below(from.len() as u64) as usize];
        let weather =
            Weather { loss: pick(&[0, 0, 20, 200]) as u32, twice: pick(&[0, 100]) as u32, delay: pick(&[2, 10, 40]) };
        self.net.world().weather = weather;
        let (cut, crash) = (pick(&[20, 60, 200]), pick(&[60, 200, 1000]));
        let end = Instant::now() + time;
        while Instant::now() < end && self.book().violation.is_none() {
            sleep(Duration::from_micros(1000 + self.net.below(30_000))).await;
            self.observe();
            if self.net.below(3) == 0 {
                self.append();
            }
            if self.net.below(5) == 0 {
                self.confirm();
            }
            if self.net.below(cut) == 0 {
                self.cut();
            } else if self.net.below(cut) == 0 {
                self.net.world().cuts.clear();
            }
            let n = self.net.below(self.nodes as u64) as usize;
            if self.net.below(crash) == 0 && (self.lethal || self.durable || self.can_spare(n)) {
                self.net.crash(n);
            }
            if self.durable && self.net.below(10 * crash) == 0 {
                (0..self.nodes).for_each(|n| self.net.crash(n));
            }
            if self.net.below(crash / 4) == 0 {
                self.start_fallen().await;
            }
            if self.net.below(20) == 0 {
                let _ = timeout(Duration::from_millis(self.net.below(1000)), self.look_after()).await;
            }
        }
    }

    async fn start_fallen(&self) {
        for n in 0..self.nodes {
            if !self.net.world().living.contains_key(&node(n)) {
                self.start(n).await;
            }
        }
    }

    /// Heals everything. Returns the time until one leader accepts changes and all others follow it.
    pub(super) async fn recover(&self) -> Result<Duration, String> {
        self.net.heal();
        self.start_fallen().await;
        let healed = Instant::now();
        while healed.elapsed() < BOUND && self.book().violation.is_none() {
            sleep(Duration::from_millis(5)).await;
            self.observe();
            self.look_after().await;
            let Some((_, log)) = self.leading() else { continue };
            let Some(term) = log.leads() else { continue };
            let (at, change) = (log.configs().applied().next(), self.book().change());
            let done = log.append(term, at, change.clone()).await;
            self.book().append_done(term, at, change, &done);
            if done.is_ok() && log.confirm(term).await.is_ok() && self.all_reach(at, &log).await {
                self.observe();
                return Ok(healed.elapsed());
            }
        }
        let logs = self.net.logs();
        let state: Vec<_> =
            logs.iter().map(|(_, log)| format!("{log:?} {:?} {:?}", log.leads(), log.voters())).collect();
        Err(format!("no progress within {BOUND:?} after healing: {state:#?}"))
    }

    async fn all_reach(&self, at: LogIndex, leader: &Embedded) -> bool {
        let logs = self.net.logs();
        if leader.voters() != wanted(&leader.voters(), &logs) {
            return false;
        }
        for (_, log) in logs {
            let mut seen = 0;
            let reached = async {
                while log.configs().applied() < at {
                    seen = log.changed(seen).await;
                }
            };
            if timeout(Duration::from_secs(1), reached).await.is_err() {
                return false;
            }
        }
        true
    }

    pub(super) async fn end(&self) {
        self.net.logs().iter().for_each(|(founder, _)| self.net.crash(usize::from(founder.id.node.as_bytes()[0]) - 1));
        sleep(Duration::from_millis(100)).await;
        self.book().close();
    }
}

/// The wanted voters: an odd number of live nodes, as many as allowed, current voters first.
fn wanted(voters: &BTreeSet<MemberId>, living: &[(NodeInfo, Embedded)]) -> BTreeSet<MemberId> {
    let mut ids: Vec<_> =
        living.iter().map(|(founder, log)| super::super::raft_id(&log.0.settings, founder.id).0).collect();
    ids.sort_by_key(|id| (!voters.contains(id), *id));
    ids.truncate(5);
    ids.truncate(ids.len() - (ids.len() + 1) % 2);
    ids.into_iter().collect()
}

async fn read(by: String, log: Embedded, book: Arc<Mutex<Book>>) {
    let (mut next, mut seen) = (LogIndex(1), 0);
    loop {
        match log.entry(next) {
            Ok(Some(entry)) => {
                next = entry.index.next();
                book.lock().unwrap().read(&by, entry);
            }
            Ok(None) if log.0.applied.progress().ended => return,
            Ok(None) => seen = log.changed(seen).await,
            Err(ConfigLogError::Compacted { first }) => next = first,
            Err(error) => {
                book.lock().unwrap().violation = Some(format!("{by} can't read: {error}"));
                return;
            }
        }
    }
}
