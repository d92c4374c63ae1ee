//! Aims faults where they hurt most: at the head of the chain or the leader of the log. Shortens many of them, so that
//! the victim keeps its place. Also pauses nodes briefly, so that messages sent together arrive one after the other.

use std::time::Duration;

use artillery_programs::{chance::Dice, exit::Failure};
use rustix::process::Signal;
use tokio::time::sleep;

use super::{
    cluster::Cluster,
    desk::Desk,
    fault::{Fault, Kind, name},
    view::View,
};

/// The shortest and the longest duration of a shortened fault, in milliseconds. A node that is silent for longer
/// usually loses its place in the chain.
const SHORT_MS: (u64, u64) = (400, 2000);

pub(super) struct Aims(Dice);

impl Aims {
    pub(super) fn new(seed: u64) -> Self {
        Self(Dice::new(seed.rotate_left(32)))
    }

    /// The kinds of faults to draw from. By default, kinds whose victim can still send but receives decisions too late
    /// are drawn twice as often.
    pub(super) fn kinds(kinds: &[Kind], durable: bool) -> Vec<Kind> {
        let more = [Kind::Deaf, Kind::OneWay, Kind::Slow];
        if kinds.is_empty() { [&Kind::all(durable)[..], &more].concat() } else { kinds.to_vec() }
    }

    /// Aims two of three faults, and shortens half of the faults that may be short.
    pub(super) fn adjust(&mut self, fault: &mut Fault, view: &View) {
        let (aim, short, ms) = (self.0.below(3), self.0.below(2), self.0.below(SHORT_MS.1 - SHORT_MS.0));
        let (head, leader) = (node(view.members.first()), node(view.leader.as_ref()));
        let target = match (aim, fault.kind) {
            // Hit the leader: if it is slow, its decisions arrive late.
            (1, _) | (0, Kind::Slow) => leader,
            // Hit the head: if it is cut off from the leader, it receives no decisions.
            (0, _) => {
                fault.other = leader.filter(|leader| Some(*leader) != head).unwrap_or(fault.other);
                head
            }
            _ => None,
        };
        if let Some(victim) = target {
            fault.aim(victim);
        }
        let may_be_short =
            matches!(fault.kind, Kind::Pause | Kind::Cut | Kind::OneWay | Kind::Deaf | Kind::Mute | Kind::Slow);
        if may_be_short && short == 0 {
            fault.hold = Duration::from_millis(SHORT_MS.0 + ms);
        }
    }
}

fn node(called: Option<&String>) -> Option<usize> {
    let called = called?;
    (0..u8::MAX.into()).find(|node| name(*node) == *called)
}

/// Pauses nodes briefly again and again, until this future is dropped. Returns only if a signal fails.
pub(super) async fn stall(cluster: &Cluster, desk: &Desk, seed: u64) -> Failure {
    let mut dice = Dice::new(seed.rotate_left(48));
    loop {
        let (gap, node) = (dice.below(300), dice.below(cluster.size() as u64) as usize);
        let ms = if dice.below(4) == 0 { 100 + dice.below(200) } else { 5 + dice.below(45) };
        sleep(Duration::from_millis(gap)).await;
        // A node that the current fault pauses must stay paused until the fault ends.
        let is_paused = || desk.fault().0.is_some_and(|fault| (fault.kind, fault.victim) == (Kind::Pause, node));
        if is_paused() {
            continue;
        }
        let stopped = cluster.nodes.signal(node, Signal::STOP);
        sleep(Duration::from_millis(ms)).await;
        let gone_on = if is_paused() { Ok(()) } else { cluster.nodes.signal(node, Signal::CONT) };
        if let Err(failure) = stopped.and(gone_on) {
            return failure;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_leaders_are_hit_and_others_too() {
        let view = View { members: vec![name(3), name(1)], leader: Some(name(2)), ..View::default() };
        let mut aims = Aims::new(7);
        let mut hits = [0; 5];
        for _ in 0..300 {
            let mut fault = Fault { hold: Duration::from_secs(60), ..Fault::of(Kind::Cut, 0, 3) };
            aims.adjust(&mut fault, &view);
            assert_ne!(fault.victim, fault.other);
            assert!(
                fault.victim != 3 || [0, 2].contains(&fault.other),
                "either the head and the leader, or the drawn nodes"
            );
            hits[fault.victim] += 1;
        }
        assert_eq!(hits.iter().sum::<u32>(), 300);
        assert!([0, 2, 3].iter().all(|node| hits[*node] > 60), "{hits:?}");
    }

    #[test]
    fn isolation_stays_long_enough_to_be_checked() {
        let hold = Duration::from_secs(9);
        let mut aims = Aims::new(7);
        for _ in 0..50 {
            let mut fault = Fault { hold, ..Fault::of(Kind::Isolate, 0, 1) };
            aims.adjust(&mut fault, &View::default());
            assert_eq!((fault.victim, fault.hold), (0, hold));
        }
    }
}
