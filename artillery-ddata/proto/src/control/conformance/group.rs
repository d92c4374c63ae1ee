//! Checks of a group of nodes that keep a log together, while links between them are cut.

use std::{cell::Cell, collections::BTreeSet, sync::Arc};

use crate::{
    ChainConfig, Incarnation, MemberId, NodeId,
    control::{
        NodeInfo,
        log::{AppendError, BoxFuture, ChainChange, ConfigChange, Configs, LogEntry, LogIndex, ProposalFuture, Term},
    },
};

/// Five nodes that keep a log, and nodes that join later. Time is virtual: it passes while a task waits.
pub trait Rig {
    /// All nodes. The first five are the founders, and the first voters.
    fn nodes(&self) -> Vec<MemberId>;

    /// Starts a node that is not in the log yet.
    fn come(&self) -> BoxFuture<'_, NodeInfo>;

    /// Cuts one direction of a link.
    fn cut(&self, from: MemberId, to: MemberId);

    fn heal(&self);

    fn pass(&self) -> BoxFuture<'_, ()>;

    fn leads(&self, node: MemberId) -> Option<Term>;

    fn configs(&self, node: MemberId) -> Arc<Configs>;

    /// All entries that a node has applied, from the first one.
    fn entries(&self, node: MemberId) -> Vec<LogEntry>;

    /// The voters known to a node: two sets while one replaces the other.
    fn voter_sets(&self, node: MemberId) -> Vec<BTreeSet<MemberId>>;

    fn append(&self, node: MemberId, term: Term, at: LogIndex, change: ConfigChange) -> ProposalFuture<'_>;

    fn set_voters(&self, node: MemberId, term: Term, voters: BTreeSet<MemberId>) -> ProposalFuture<'_>;
}

/// Requests a change of voters while a majority of the old or of the new ones is unreachable. Neither set decides
/// without the other, and one set remains after healing.
pub async fn joint_set_stuck(rig: &impl Rig) {
    let case = Case::new(rig);
    let (leader, term, [a, b, c, d]) = case.begin().await;
    let (pair, all) = ([[leader, a, b], [leader, c, d]].map(BTreeSet::from), rig.nodes());
    rig.set_voters(leader, term, pair[0].clone()).await.expect("all can be reached");
    case.until("the voters are replaced", || rig.voter_sets(leader) == pair[..1]).await;

    let mut old = pair[0].clone();
    for alone in ["old", "new"] {
        case.agree(case.commit(&all).await).await;
        let new = if old == pair[0] { pair[1].clone() } else { pair[0].clone() };
        let (leader, term) = case.leader(&all).await;
        let part = |of: &BTreeSet<MemberId>| of.iter().copied().collect::<Vec<_>>();
        // The leader is with most of one set, and a minority of the other. In the second case the rest of the old set
        // is split up too: its nodes don't know of the new set, so together they could decide.
        if alone == "old" {
            case.part(&[&part(&old), &part(&(&new - &old))], &[]);
        } else {
            case.part(&[&part(&(&(&new - &old) | &BTreeSet::from([leader])))], &[]);
        }
        let begun = rig.set_voters(leader, term, new.clone()).await;
        assert!(begun.is_err(), "both sets have to agree");
        case.nothing_is_committed().await;
        let sets = rig.voter_sets(leader);
        if alone == "old" {
            assert!(matches!(begun, Err(AppendError::OutcomeUnknown(_))), "it was begun: {begun:?}");
            assert_eq!(sets, [old, new], "it was begun, and can't end");
        } else {
            // A leader may refuse to begin when it knows that it has no majority.
            assert!(sets[0] == old, "the new set doesn't decide alone: {sets:?}");
        }

        rig.heal();
        let ended = || match &rig.voter_sets(case.leading(&all)?.0)[..] {
            [set] => Some(set.clone()),
            _ => None,
        };
        old = case.wait("one set of voters remains", ended).await;
        assert!(pair.contains(&old), "one of both: {old:?}");
        case.agree(case.commit(&all).await).await;
    }
}

/// A node that was cut off while others decided, and a node that starts later, catch up with the others.
pub async fn catch_up(rig: &impl Rig) {
    let case = Case::new(rig);
    let (leader, _, [a, b, c, cut_off]) = case.begin().await;
    let rest = [leader, a, b, c];
    case.part(&[&rest], &[]);
    let before = rig.configs(cut_off);
    let mut last = before.applied();
    for _ in 0..CATCH_UP_ENTRIES {
        last = case.commit(&rest).await;
    }
    case.still().await;
    assert_eq!(rig.configs(cut_off), before, "the cut-off node receives nothing");
    rig.heal();
    case.agree(last).await;

    let fresh = rig.come().await;
    assert!(!rig.voter_sets(leader).iter().any(|set| set.contains(&fresh.id)), "it only learns");
    let add = |_| ConfigChange::Nodes { add: vec![fresh.clone()], remove: vec![case.nobody()] };
    let last = case.commit_such(&rest, add).await;
    case.agree(last).await;
    assert!(rig.configs(fresh.id).node(fresh.id).is_some(), "it knows of itself");
    case.agree(case.commit(&rest).await).await;
}

/// A leader loses its majority while it has a proposal in flight that only a minority has received. The others
/// continue, and no node ever applies the proposal.
pub async fn unknown_then_refused(rig: &impl Rig) {
    let case = Case::new(rig);
    let (leader, term, [a, b, c, d]) = case.begin().await;
    let (at, change) = case.cut_off_while_appending(leader, term, &[a]).await;

    case.part(&[&[b, c, d]], &[]);
    let (next, next_term) = case.leader(&[b, c, d]).await;
    assert!(next_term > term, "each leader has a term of its own");
    assert_eq!(rig.configs(next).applied().next(), at, "the place is free");
    let again = case.again(next, term, at, &change).await;
    assert_eq!(again, Err(AppendError::NotLeading), "a proposal is valid only in its term");
    let last = case.commit(&[b, c, d]).await;
    rig.heal();
    case.agree(last).await;
    case.is_refused(leader, term, at, &change).await;
    let (next, term) = case.leader(&rig.nodes()).await;
    case.is_taken(next, term, at, &change).await;

    for _ in 0..CATCH_UP_ENTRIES {
        case.commit(&rig.nodes()).await;
    }
    let entries = case.agree(case.commit(&rig.nodes()).await).await;
    assert!(entries.iter().all(|entry| entry.change != change), "it never enters the log");
}

/// A leader loses its majority while it has a proposal in flight that a majority has received. The next leader commits
/// it, exactly once.
pub async fn unknown_then_taken(rig: &impl Rig) {
    let case = Case::new(rig);
    let (leader, term, others) = case.begin().await;
    let [a, b, ..] = others;
    let (at, change) = case.cut_off_while_appending(leader, term, &[a, b]).await;

    case.part(&[&others], &[]);
    let (next, next_term) = case.leader(&others).await;
    assert!(next_term > term, "each leader has a term of its own");
    let found = rig.entries(next).into_iter().find(|entry| entry.index == at);
    let placed = LogEntry { index: at, term, change: change.clone() };
    assert_eq!(found, Some(placed.clone()), "a leader has every entry that a majority has received");
    case.is_taken(next, next_term, at, &change).await;

    let last = case.commit(&others).await;
    rig.heal();
    case.agree(last).await;
    case.is_refused(leader, term, at, &change).await;
    let entries = case.agree(case.commit(&rig.nodes()).await).await;
    assert_eq!(entries.iter().filter(|entry| entry.change == change).collect::<Vec<_>>(), [&placed], "and only once");
}

/// How many steps of two milliseconds a test waits for an expected event: a minute, far longer than needed.
const WAIT_STEPS: usize = 30_000;
/// How many steps a test waits to show that nothing happens: ten seconds, longer than elections take.
const QUIET_STEPS: usize = 5_000;
/// A large number of entries for a node to catch up with.
const CATCH_UP_ENTRIES: usize = 20;

struct Case<'a, R> {
    rig: &'a R,
    /// Counts the proposals, to make each one unique.
    proposed: Cell<u32>,
}

impl<'a, R: Rig> Case<'a, R> {
    fn new(rig: &'a R) -> Self {
        Self { rig, proposed: Cell::new(1000) }
    }

    /// Waits until all nodes agree; returns the leader, its term, and the other nodes.
    async fn begin(&self) -> (MemberId, Term, [MemberId; 4]) {
        let nodes = self.rig.nodes();
        self.agree(self.commit(&nodes).await).await;
        let (leader, term) = self.leader(&nodes).await;
        let others: Vec<_> = nodes.into_iter().filter(|&node| node != leader).collect();
        (leader, term, others.try_into().expect("the suite needs five nodes"))
    }

    /// Cuts all links except those within a part, and those in `but`.
    fn part(&self, parts: &[&[MemberId]], but: &[(MemberId, MemberId)]) {
        self.rig.heal();
        let together = |from, to| parts.iter().any(|part| part.contains(&from) && part.contains(&to));
        for from in self.rig.nodes() {
            for to in self.rig.nodes() {
                if from != to && !together(from, to) && !but.contains(&(from, to)) {
                    self.rig.cut(from, to);
                }
            }
        }
    }

    async fn wait<T>(&self, what: &str, mut found: impl FnMut() -> Option<T>) -> T {
        for _ in 0..WAIT_STEPS {
            if let Some(found) = found() {
                return found;
            }
            self.rig.pass().await;
        }
        panic!("timed out waiting until {what}");
    }

    async fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        self.wait(what, || is_so().then_some(())).await;
    }

    fn leading(&self, among: &[MemberId]) -> Option<(MemberId, Term)> {
        let leading = among.iter().filter_map(|&node| Some((node, self.rig.leads(node)?)));
        leading.max_by_key(|&(_, term)| term)
    }

    async fn leader(&self, among: &[MemberId]) -> (MemberId, Term) {
        self.wait("a node leads", || self.leading(among)).await
    }

    fn number(&self) -> u32 {
        self.proposed.set(self.proposed.get() + 1);
        self.proposed.get()
    }

    /// An incarnation that never existed, for a unique change.
    fn nobody(&self) -> MemberId {
        let incarnation = Incarnation { store: self.number().into(), starts: 0 };
        MemberId { node: NodeId::from_bytes([0xff; 16]), incarnation }
    }

    /// A unique new configuration of the first chain, based on the one that `node` knows.
    fn change(&self, node: MemberId) -> ConfigChange {
        let configs = self.rig.configs(node);
        let config = configs.iter().next().expect("the suite needs a chain");
        let replaces = config.epoch;
        let config = ChainConfig { min_members: self.number(), ..config.clone() };
        ConfigChange::Chains(vec![ChainChange { replaces, config }])
    }

    async fn commit(&self, among: &[MemberId]) -> LogIndex {
        self.commit_such(among, |leader| self.change(leader)).await
    }

    async fn commit_such(&self, among: &[MemberId], change: impl Fn(MemberId) -> ConfigChange) -> LogIndex {
        for _ in 0..WAIT_STEPS {
            let (leader, term) = self.leader(among).await;
            let at = self.rig.configs(leader).applied().next();
            if self.rig.append(leader, term, at, change(leader)).await.is_ok() {
                return at;
            }
            self.rig.pass().await;
        }
        panic!("nothing is ever appended");
    }

    /// Waits until every node has the same entries, at least up to `last`, and returns them.
    async fn agree(&self, last: LogIndex) -> Vec<LogEntry> {
        let (rig, nodes) = (self.rig, self.rig.nodes());
        let applied = |&node: &MemberId| rig.configs(node).applied();
        let same = || applied(&nodes[0]) >= last && nodes.iter().all(|node| applied(node) == applied(&nodes[0]));
        self.until("all nodes have the same entries", same).await;
        let (entries, configs) = (rig.entries(nodes[0]), rig.configs(nodes[0]));
        for &node in &nodes {
            assert_eq!(rig.entries(node), entries, "an entry is the same at every node");
            assert_eq!(rig.configs(node), configs, "the entries give the same configurations at every node");
        }
        let mut replayed = Configs::default();
        entries.iter().for_each(|entry| drop(replayed.apply(entry).expect("entries are in order")));
        assert_eq!(replayed.applied(), configs.applied(), "every applied entry is in the log");
        assert!(replayed.iter().eq(configs.iter()), "replaying the entries gives the log's configurations");
        let twice = (1..entries.len()).find(|&at| entries[..at].iter().any(|entry| entry.change == entries[at].change));
        assert_eq!(twice.map(|at| &entries[at]), None, "a change that was proposed once is applied once");
        entries
    }

    async fn still(&self) {
        for _ in 0..QUIET_STEPS {
            self.rig.pass().await;
        }
    }

    /// Checks that no node commits anything for twice [`QUIET_STEPS`], although the test appends at the leaders in
    /// between.
    async fn nothing_is_committed(&self) {
        let rig = self.rig;
        let all = || rig.nodes().into_iter().map(|node| rig.entries(node)).collect::<Vec<_>>();
        let before = all();
        for round in 0..2 {
            self.still().await;
            for node in rig.nodes() {
                let Some(term) = rig.leads(node).filter(|_| round == 0) else { continue };
                let (at, change) = (rig.configs(node).applied().next(), self.change(node));
                let done = rig.append(node, term, at, change).await;
                assert!(done.is_err(), "one set alone commits nothing");
            }
        }
        assert_eq!(all(), before, "one set alone commits nothing");
    }

    /// Appends a proposal at a leader that receives nothing from any node, and whose messages only the nodes of `hear`
    /// receive. All other links are cut.
    async fn cut_off_while_appending(
        &self,
        leader: MemberId,
        term: Term,
        hear: &[MemberId],
    ) -> (LogIndex, ConfigChange) {
        let to = hear.iter().map(|&to| (leader, to)).collect::<Vec<_>>();
        self.part(&[], &to);
        let (at, change) = (self.rig.configs(leader).applied().next(), self.change(leader));
        let done = self.rig.append(leader, term, at, change.clone()).await;
        assert!(matches!(done, Err(AppendError::OutcomeUnknown(_))), "no node answers: {done:?}");
        (at, change)
    }

    /// Repeats a proposal until its outcome is known: answers may be lost.
    async fn again(&self, node: MemberId, term: Term, at: LogIndex, change: &ConfigChange) -> Result<(), AppendError> {
        for _ in 0..WAIT_STEPS {
            let done = self.rig.append(node, term, at, change.clone()).await;
            if !matches!(done, Err(AppendError::OutcomeUnknown(_))) {
                return done;
            }
            self.rig.pass().await;
        }
        panic!("the outcome of a proposal is never known");
    }

    async fn is_refused(&self, node: MemberId, term: Term, at: LogIndex, change: &ConfigChange) {
        let done = self.again(node, term, at, change).await;
        let refused = matches!(done, Err(AppendError::NotLeading | AppendError::Taken { .. }));
        assert!(refused, "its term is over: {done:?}");
    }

    async fn is_taken(&self, node: MemberId, term: Term, at: LogIndex, change: &ConfigChange) {
        let done = self.again(node, term, at, change).await;
        assert!(matches!(done, Err(AppendError::Taken { last }) if last >= at), "the place is taken: {done:?}");
    }
}
