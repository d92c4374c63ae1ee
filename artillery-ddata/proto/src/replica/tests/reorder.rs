//! Planned reorders (docs/DESIGN.md §5.4, §5.10): every order of three members before and after, each fate of the
//! proposal, and links that delay frames or are restored.

use super::{super::*, rig::*};
use crate::{Epoch, Version, api::*, guards::Mutant};

const ORDERS: [[u8; 3]; 6] = [[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Proposal {
    /// Accepted while the head is closed.
    Taken,
    /// Lost: the closing expires, and the head continues. A second proposal is accepted.
    Lost,
    /// Accepted after the closing has expired and the head has ordered an update, which has passed this many hops.
    Late(usize),
}

const PROPOSALS: [Proposal; 5] =
    [Proposal::Taken, Proposal::Lost, Proposal::Late(0), Proposal::Late(1), Proposal::Late(2)];

#[derive(Clone, Copy, Debug)]
struct Course {
    before: [u8; 3],
    after: [u8; 3],
    proposal: Proposal,
    /// The order in which the members enter the new epoch.
    entering: [u8; 3],
    /// A link that delays its frames until all members have entered, and whether it then breaks and loses them.
    held: Option<(u8, u8)>,
    remade: bool,
}

fn courses(before: [u8; 3], after: [u8; 3]) -> impl Iterator<Item = Course> {
    let held = [None, Some((1, 2)), Some((2, 1)), Some((1, 3)), Some((3, 1)), Some((2, 3)), Some((3, 2))];
    PROPOSALS.into_iter().flat_map(move |proposal| {
        ORDERS.into_iter().flat_map(move |entering| {
            let course = move |held, remade| Course { before, after, proposal, entering, held, remade };
            held.into_iter().flat_map(move |held| [course(held, false), course(held, true)])
        })
    })
}

fn close(rig: &mut Rig, head: u8) {
    let until = rig.now + std::time::Duration::from_millis(50);
    rig.input(head, ReplicaInput::Close { epoch: Epoch(1), until });
    assert!(!rig.replicas[&head].has_room(), "writes wait");
}

impl Course {
    fn run(self, mutant: Option<Mutant>) -> Result<(), String> {
        let mut rig = Rig::new(&[1, 2, 3], &without(mutant));
        rig.enter_all(&config(1, &self.before));
        rig.put(self.before[0], "k", "before");
        rig.beat(2);
        close(&mut rig, self.before[0]);
        let written = (self.proposal != Proposal::Taken).then(|| self.write_on(&mut rig));
        if self.proposal == Proposal::Lost {
            rig.settle();
            close(&mut rig, self.before[0]);
        }
        self.change_places(&mut rig);
        self.check(&mut rig, written)
    }

    /// The closing expires, and the head orders an update.
    fn write_on(self, rig: &mut Rig) -> u64 {
        rig.heartbeat();
        let put = rig.put(self.before[0], "k", "old epoch");
        if let Proposal::Late(hops) = self.proposal {
            self.before.windows(2).take(hops).for_each(|hop| rig.run(hop[0], hop[1]));
        }
        put
    }

    fn change_places(self, rig: &mut Rig) {
        let new = config(2, &self.after);
        let held: Vec<_> = self.held.into_iter().collect();
        for n in self.entering {
            rig.enter(&[n], &new);
            rig.settle_without(&held);
        }
        if let Some((a, b)) = self.held.filter(|_| self.remade) {
            rig.cut_link(a, b);
            rig.join_link(a, b);
        }
        rig.beat(3);
    }

    fn check(self, rig: &mut Rig, written: Option<u64>) -> Result<(), String> {
        let put = rig.put(self.after[0], "other", "after");
        rig.beat(3);
        if let Some((n, halted)) = rig.events.iter().find(|(_, event)| matches!(event, ReplicaEvent::Halted(_))) {
            return Err(format!("{n}: {halted:?}"));
        }
        if !matches!(rig.replies.get(&put), Some(Reply::Committed(_))) {
            return Err("the chain is stuck".into());
        }
        for n in [2, 3] {
            if rig.contents(n) != rig.contents(1) || rig.last(n) != rig.last(1) {
                return Err(format!("{n} and 1 differ"));
            }
        }
        let acknowledged = written.filter(|token| matches!(rig.replies.get(token), Some(Reply::Committed(_))));
        let value = rig.contents(1).into_iter().find(|record| record.key == "k").and_then(|record| record.held.value);
        match (self.proposal, acknowledged) {
            (Proposal::Lost, None) => Err("the write failed although nothing disturbed it".into()),
            (_, Some(_)) if value.as_deref() != Some(b"old epoch") => Err("an acknowledged write is lost".into()),
            _ => Ok(()),
        }
    }
}

fn pairs() -> impl Iterator<Item = ([u8; 3], [u8; 3])> {
    ORDERS.into_iter().flat_map(|before| ORDERS.into_iter().map(move |after| (before, after)))
}

#[test]
fn any_order_becomes_any_other_and_loses_nothing() {
    for (before, after) in pairs() {
        for course in courses(before, after) {
            course.run(None).unwrap_or_else(|broken| panic!("{course:?}: {broken}"));
        }
    }
}

/// Without the rule, a pair of orders breaks exactly if the new middle preceded the new head.
#[test]
fn following_too_soon_breaks_half_of_all_pairs() {
    let run = |course: Course| {
        let run = std::panic::AssertUnwindSafe(|| course.run(Some(Mutant::FollowTooSoon)));
        std::panic::catch_unwind(run).unwrap_or_else(|_| Err("an assertion failed".into()))
    };
    for (before, after) in pairs() {
        let place = |n: u8| before.iter().position(|&member| member == n);
        let turned = place(after[1]) < place(after[0]);
        let broken = courses(before, after).any(|course| run(course).is_err());
        assert_eq!(broken, turned, "{before:?} {after:?}");
    }
}

/// Member 1 was the head, and ordered an update that no other member has. It is the tail of the next epoch. `then` runs
/// before member 1 exchanges frames in that epoch.
fn old_head_is_tail(new: &Arc<ChainConfig>, then: impl FnOnce(&mut Rig)) -> Rig {
    let mut rig = Rig::new(&[1, 2, 3], &ReplicaSettings::default());
    rig.enter(&[1, 2], &config(1, &[1, 2]));
    rig.put(1, "k", "kept");
    rig.beat(2);
    rig.put(1, "k", "dropped");
    rig.enter_all(new);
    then(&mut rig);
    rig
}

#[test]
fn a_read_that_waits_for_a_dropped_version_is_served_after_the_cut() {
    let mut read = 0;
    let mut rig = old_head_is_tail(&config(2, &[2, 1]), |rig| read = rig.read(1, "k", ReadMode::Strong));
    assert!(!rig.replies.contains_key(&read), "the newest version is pending");
    rig.wire.clear();
    rig.beat(2);
    assert_eq!(rig.last(1), Version::new(1, 1));
    assert_eq!(rig.found(read).0.unwrap(), "kept");
}

#[test]
fn a_probe_that_waits_for_a_dropped_version_ends_with_the_cut() {
    let rig = &mut old_head_is_tail(&joining(2, &[2, 1], 3), |rig| rig.beat(2));
    let report = rig.replicas[&1].progress().report(ChainId(0), rig.now).unwrap();
    assert_eq!((report.hop.waits, report.commit.waits), (None, None));
    assert_eq!(rig.promotions, [(1, Epoch(2), 3); 3], "the joiner is not considered far behind");
}

/// The newest version after an update from a predecessor whose history differs in an update with the same sequence.
fn parted(mutant: Option<Mutant>) -> Version {
    let mut rig = Rig::new(&[1, 2], &without(mutant));
    rig.enter_all(&config(1, &[1, 2]));
    rig.put(1, "k", "1");
    rig.beat(2);
    rig.put(1, "k", "2");
    rig.transmit();
    let queue = rig.wire.get_mut(&(1, 2)).unwrap();
    queue.retain(|frame| matches!(frame.message, ChainMessage::Updates(_)));
    for frame in queue {
        if let ChainMessage::Updates(updates) = &mut frame.message {
            updates.after.epoch = Epoch(0);
        }
    }
    while rig.deliver(1, 2) {}
    rig.last(2)
}

#[test]
fn an_update_behind_another_version_is_a_gap() {
    assert_eq!(parted(None), Version::new(1, 1));
}

#[test]
fn sequences_alone_do_not_show_that_histories_differ() {
    assert_eq!(parted(Some(Mutant::CompareSequences)), Version::new(1, 2));
}

#[test]
fn a_member_that_is_known_to_be_a_prefix_is_never_cut() {
    let mut rig = Rig::chain(&[1, 2]);
    rig.put(1, "k", "1");
    rig.run(1, 2);
    let cut = crate::message::Truncate { said: Version::new(1, 1), keep: Version::NONE };
    let message =
        ChainMessage::Control(crate::message::Control { cut: Some(cut), ..crate::message::Control::default() });
    let frame = ChainFrame { chain: ChainId(0), epoch: Epoch(1), index: 1, message };
    rig.input(2, ReplicaInput::Receive { from: member(1), frame });
    let halt = Halt::CutPrefix { said: cut.said, keep: cut.keep };
    assert!(rig.events.contains(&(2, ReplicaEvent::Halted(halt))), "{:?}", rig.events);
}
