use std::{
    pin::pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

use super::*;
use crate::{
    ChainId, ChainMember, ClusterId, Incarnation, MemberId, Role,
    control::{Bootstrap, ChainSettings, NodeInfo, Timing, branch::Branch, conformance},
    fixtures::{founder, id as member, serving},
};

fn founding(chains: u32) -> Bootstrap {
    let members = (0..3).map(founder).collect();
    let settings = ChainSettings { chains, ..ChainSettings::default() };
    Bootstrap { settings, ..Bootstrap::new(ClusterId(5), "shop", members) }
}

fn config(chain: u32, members: &[u8]) -> ChainConfig {
    ChainConfig { chain: ChainId(chain), ..serving(0, members) }
}

fn entry(index: u64, changes: &[(u64, ChainConfig)]) -> LogEntry {
    let changes =
        changes.iter().map(|(replaces, config)| ChainChange { replaces: Epoch(*replaces), config: config.clone() });
    LogEntry { index: LogIndex(index), term: Term(0), change: ConfigChange::Chains(changes.collect()) }
}

/// Runs a future that never has to wait for another thread.
fn run<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the log waits for an event that never happens"),
    }
}

#[test]
fn the_log_takes_the_first_of_two() {
    let mut configs = Configs::default();
    assert_eq!(configs.apply(&entry(1, &[(0, config(0, &[1, 2, 3]))])).unwrap()[0].epoch, Epoch(1));
    assert_eq!(configs.apply(&entry(2, &[(1, config(0, &[1, 2]))])).unwrap()[0].epoch, Epoch(2));
    assert_eq!(configs.apply(&entry(3, &[(1, config(0, &[1, 3]))])), Ok(vec![]), "it replaces an old epoch");
    let present = configs.get(ChainId(0)).unwrap();
    assert_eq!((present.epoch, present.index), (Epoch(2), 2));
    assert_eq!(present.serving().collect::<Vec<_>>(), [member(1), member(2)]);
}

#[test]
fn each_chain_of_a_change_counts_by_itself() {
    let mut configs = Configs::default();
    configs.apply(&entry(1, &[(0, config(0, &[1])), (0, config(1, &[1]))])).unwrap();
    configs.apply(&entry(2, &[(1, config(1, &[2]))])).unwrap();
    let made = configs.apply(&entry(3, &[(1, config(0, &[3])), (1, config(1, &[3]))])).unwrap();
    assert_eq!(made.iter().map(|config| config.chain).collect::<Vec<_>>(), [ChainId(0)]);
}

#[test]
fn the_log_sets_epoch_and_index() {
    let mut configs = Configs::default();
    let boast = ChainConfig { epoch: Epoch(9), index: 9, ..config(0, &[1]) };
    let made = configs.apply(&entry(1, &[(0, boast)])).unwrap();
    assert_eq!((made[0].epoch, made[0].index), (Epoch(1), 1));
}

#[test]
fn a_chain_never_loses_its_last_member() {
    let mut configs = Configs::default();
    configs.apply(&entry(1, &[(0, config(0, &[1]))])).unwrap();
    assert_eq!(configs.apply(&entry(2, &[(1, config(0, &[]))])), Ok(vec![]));
    assert_eq!(configs.get(ChainId(0)).unwrap().epoch, Epoch(1));
}

#[test]
fn repeated_entries_are_ignored_and_gaps_refused() {
    let mut configs = Configs::default();
    let first = entry(1, &[(0, config(0, &[1]))]);
    configs.apply(&first).unwrap();
    assert_eq!(configs.apply(&first), Ok(vec![]));
    let error = OutOfOrder { expected: LogIndex(2), found: LogIndex(3) };
    assert_eq!(configs.apply(&entry(3, &[])), Err(error));
    assert_eq!(configs.applied(), LogIndex(1));
}

/// The smallest log that accepts changes. It shows that the suite for such logs can pass and fail.
#[derive(Debug, Default)]
struct InMemory {
    entries: Mutex<Vec<LogEntry>>,
    broken: Broken,
}

#[derive(Debug, Default, PartialEq, Clone, Copy)]
enum Broken {
    #[default]
    No,
    Overwrites,
    SkipsTheFirst,
    ConfirmsOldEntries,
    AnyTerm,
}

const TERM: Term = Term(3);

impl InMemory {
    fn new(broken: Broken) -> Self {
        Self { entries: Mutex::new(vec![entry(1, &[(0, config(0, &[1]))])]), broken }
    }
}

impl ConfigLog for InMemory {
    fn append(&self, term: Term, at: LogIndex, change: ConfigChange) -> ProposalFuture<'_> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let last = LogIndex(entries.len() as u64);
        let leads = term == TERM || self.broken == Broken::AnyTerm;
        let result = if !leads {
            Err(AppendError::NotLeading)
        } else if at == last.next() || (self.broken == Broken::Overwrites && at == last) {
            entries.truncate(at.0 as usize - 1);
            entries.push(LogEntry { index: at, term, change });
            Ok(())
        } else if at <= last {
            Err(AppendError::Taken { last })
        } else {
            Err(ConfigLogError::Failed("a gap".into()).into())
        };
        Box::pin(std::future::ready(result))
    }

    fn entry(&self, at: LogIndex) -> Result<Option<LogEntry>, ConfigLogError> {
        let skipped = u64::from(self.broken == Broken::SkipsTheFirst);
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(entries.get((at.0 + skipped - 1) as usize).cloned())
    }

    fn confirm(&self, term: Term) -> BoxFuture<'_, Result<LogIndex, ConfigLogError>> {
        let count = self.entries.lock().unwrap_or_else(PoisonError::into_inner).len() as u64;
        let last = if self.broken == Broken::ConfirmsOldEntries { 1 } else { count };
        let confirmed = if term == TERM { Ok(LogIndex(last)) } else { Err(ConfigLogError::NoQuorum) };
        Box::pin(std::future::ready(confirmed))
    }

    fn leads(&self) -> Option<Term> {
        Some(TERM)
    }

    fn leader(&self) -> Option<MemberId> {
        Some(member(1))
    }

    fn configs(&self) -> Arc<Configs> {
        let mut configs = Configs::default();
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().for_each(|entry| drop(configs.apply(entry)));
        Arc::new(configs)
    }

    fn voters(&self) -> BTreeSet<MemberId> {
        [member(1)].into()
    }

    fn set_voters(&self, _: Term, _: BTreeSet<MemberId>) -> ProposalFuture<'_> {
        Box::pin(std::future::ready(Err(AppendError::NotLeading)))
    }

    fn changed(&self, _: u64) -> BoxFuture<'_, u64> {
        Box::pin(std::future::pending())
    }
}

#[test]
fn a_log_in_memory_conforms() {
    run(conformance::appendable(&InMemory::new(Broken::No)));
}

#[test]
fn the_suite_catches_broken_logs() {
    for broken in [Broken::Overwrites, Broken::SkipsTheFirst, Broken::ConfirmsOldEntries, Broken::AnyTerm] {
        let result = std::panic::catch_unwind(|| run(conformance::appendable(&InMemory::new(broken))));
        assert!(result.is_err(), "{broken:?} was not seen");
    }
}

fn node(n: u8, starts: u64) -> NodeInfo {
    NodeInfo { id: MemberId { incarnation: Incarnation { store: 1, starts }, ..member(n) }, ..founder(n) }
}

fn nodes(index: u64, add: &[NodeInfo], remove: &[MemberId]) -> LogEntry {
    let change = ConfigChange::Nodes { add: add.to_vec(), remove: remove.to_vec() };
    LogEntry { index: LogIndex(index), term: Term(1), change }
}

#[test]
fn a_new_incarnation_replaces_the_old_one() {
    let mut configs = Configs::of(&founding(1));
    configs.apply(&nodes(2, &[node(2, 2), node(7, 1)], &[])).unwrap();
    assert_eq!(configs.node(member(2)), None, "that incarnation has ended");
    assert_eq!(configs.node(node(2, 2).id).unwrap().id.incarnation.starts, 2);
    assert_eq!(configs.nodes().count(), 4);
    configs.apply(&nodes(3, &[], &[node(7, 1).id, member(0), member(2)])).unwrap();
    assert_eq!(configs.nodes().count(), 3, "members and other incarnations stay");
    assert!(configs.node(member(0)).is_some());
}

#[test]
fn a_member_serves_since_the_entry_that_made_it_serve() {
    let mut configs = Configs::default();
    configs.apply(&entry(1, &[(0, config(0, &[1, 2, 3]))])).unwrap();
    configs.apply(&entry(2, &[(1, config(0, &[1, 3]))])).unwrap();
    assert_eq!(configs.serves_since(member(1)), Some(LogIndex(1)));
    assert_eq!(configs.serves_since(member(2)), None);
    let mut back = config(0, &[1, 3, 2]);
    back.members[2].role = Role::Syncing;
    configs.apply(&entry(3, &[(2, back)])).unwrap();
    assert_eq!(configs.serves_since(member(2)), None, "a syncing member serves nothing");
    configs.apply(&entry(4, &[(3, config(0, &[1, 3, 2]))])).unwrap();
    assert_eq!(configs.serves_since(member(2)), Some(LogIndex(4)), "its earlier membership is irrelevant");
    assert_eq!(configs.serves_since(member(3)), Some(LogIndex(1)));
}

#[test]
fn leaving_one_chain_counts_in_the_others() {
    let mut configs = Configs::default();
    configs.apply(&entry(1, &[(0, config(0, &[1, 2, 3])), (0, config(1, &[3, 2, 1]))])).unwrap();
    configs.apply(&entry(2, &[(1, config(0, &[1, 3]))])).unwrap();
    assert_eq!(configs.serves_since(member(2)), Some(LogIndex(2)), "it may still serve chain 0");
    assert_eq!(configs.serves_since(member(1)), Some(LogIndex(1)));
    configs.apply(&entry(3, &[(1, config(1, &[3, 1]))])).unwrap();
    assert_eq!(configs.serves_since(member(2)), None);
}

#[test]
fn the_times_of_a_cluster_stay_through_entries_and_a_recovery() {
    let timing = Timing { drift_ppm: 7, ..Timing::default() };
    let mut configs = Configs::of(&Bootstrap { timing, ..founding(1) });
    configs.apply(&entry(2, &[(1, config(0, &[1, 2]))])).unwrap();
    assert_eq!(configs.timing(), timing);
    let alone = configs.recovered(configs.history().next(9), founder(1), Epoch(2), LogIndex(2));
    assert_eq!(alone.timing(), timing);
}

#[test]
fn an_accepted_loss_gives_sessions_another_id() {
    let mut configs = Configs::of(&founding(1));
    let before = configs.sessions_id();
    let chain = configs.iter().next().unwrap().clone();
    let members = vec![ChainMember { id: member(2), role: Role::Serving }];
    let change = ChainChange { replaces: chain.epoch, config: ChainConfig { members, ..chain.clone() } };
    let index = configs.applied().next();
    let entry = |change| LogEntry { index, term: Term(1), change };
    let late = ChainChange { replaces: Epoch(9), ..change.clone() };
    let mut other = configs.clone();
    assert_eq!(other.apply(&entry(ConfigChange::AcceptLoss(late))), Ok(vec![]));
    assert_eq!((other.sessions_id(), other.loss(chain.chain)), (before, None), "it is too late");
    let entry = entry(ConfigChange::AcceptLoss(change));
    let made = configs.apply(&entry).unwrap();
    assert_eq!(made.iter().map(|config| config.epoch).collect::<Vec<_>>(), [Epoch(chain.epoch.0 + 1)]);
    let loss = AcceptedLoss { at: entry.index, epoch: made[0].epoch };
    assert_eq!((configs.loss(chain.chain), configs.last_loss()), (Some(loss), entry.index));
    assert_ne!(configs.sessions_id(), before);
    assert_eq!(configs.history(), other.history(), "the history of the log is the same");
    let recovered = configs.recovered(configs.history().next(9), founder(1), Epoch(2), LogIndex(2));
    assert_eq!(recovered.last_loss(), LogIndex(0));
}

#[test]
fn a_recovery_knows_the_branches_of_those_before_it() {
    let mut configs = Configs::of(&founding(1));
    for round in 0..20 {
        let branch = Branch { from: configs.history(), chains: vec![] };
        let next = configs.history().next(round);
        configs = configs.recovered(next, founder(1), Epoch(2), LogIndex(2)).branched(branch);
    }
    let from: Vec<_> = configs.branches().iter().map(|branch| branch.from.generation).collect();
    assert_eq!(from, (4..20).collect::<Vec<_>>(), "only the newest branches are kept");
}
