//! Living members that stall their chain.

use super::*;
use crate::{Sequence, control::message::PathDelay};

const CHAIN: ChainId = ChainId(0);

fn places(world: &World) -> Vec<u8> {
    world.serving().into_iter().map(number).collect()
}

pub(super) fn report(world: &World, held: u64) -> Report {
    Report {
        chain: CHAIN,
        epoch: world.config().epoch,
        open: true,
        held: Sequence(held),
        watermark: Sequence(held),
        hop: PathDelay::default(),
        commit: PathDelay::default(),
        disk: PathDelay::default(),
        slowed: Duration::ZERO,
        closed: false,
        unheard: Duration::ZERO,
        halted: false,
    }
}

/// Lets time pass while all nodes renew with `report`, which is passed the elapsed time. Returns when the epoch
/// changed.
fn pass(world: &mut World, millis: u64, report: impl Fn(&World, u8, Duration) -> Option<Report>) -> Option<u64> {
    let before = world.config().epoch;
    for passed in (0..millis).step_by(50) {
        world.now = world.now + Duration::from_millis(50);
        if passed % 250 == 0 {
            for n in 0..world.nodes {
                let reports = report(world, n, Duration::from_millis(passed)).into_iter().collect();
                let renewal = Renewal { reports, ..world.renewal(n) };
                world.renew_with(n, renewal);
            }
        }
        world.handle(CoordinatorInput::Tick);
        if world.config().epoch != before {
            return Some(passed + 50);
        }
    }
    None
}

fn calm(world: &mut World) {
    let moved = pass(world, 3000, |world, n, _| world.serving().contains(&id(n)).then(|| report(world, 5)));
    assert_eq!(moved, None);
}

/// A chain of `nodes` nodes after a calm period, and its members.
fn calm_chain(nodes: u8) -> (World, Vec<u8>) {
    let mut world = World::new(nodes, nodes.into());
    calm(&mut world);
    let places = places(&world);
    (world, places)
}

/// Reports of a dead hop: the updates of `from` don't reach `to`.
fn dead(from: u8, to: u8) -> impl Fn(&World, u8, Duration) -> Option<Report> {
    move |world, n, lasts| {
        let mut said = report(world, 9);
        if n == from {
            said.hop = PathDelay { waits: Some((Sequence(6), lasts)), ..said.hop };
        }
        if n == to {
            said.held = Sequence(5);
        }
        Some(said)
    }
}

#[test]
fn an_unreached_member_is_moved_out_and_returns_behind_another() {
    let (mut world, places) = calm_chain(3);
    let at = pass(&mut world, 6000, dead(places[0], places[1])).expect("it is moved");
    assert!((2000..=3600).contains(&at), "{at} ms");
    assert_eq!(self::places(&world), [places[0], places[2]]);
    assert!(world.why.contains(&Why::Unreached), "{:?}", world.why);
    pass(&mut world, 500, |world, _, _| Some(report(world, 9)));
    assert_eq!(world.config().syncing(), Some(id(places[1])), "it returns at once behind another tail");
}

#[test]
fn the_end_of_a_dead_hop_that_answers_no_message_of_the_log_is_to_blame_and_sooner() {
    for (undialable, stay) in [(0, [1, 2]), (1, [0, 2])] {
        let (mut world, places) = calm_chain(3);
        let hop = dead(places[0], places[1]);
        if places[undialable] == 0 {
            continue;
        }
        world.undialable = vec![places[undialable]];
        let at = pass(&mut world, 6000, hop).expect("it is moved");
        assert!((1000..=2600).contains(&at), "{at} ms");
        assert_eq!(self::places(&world), stay.map(|at| places[at]));
    }
}

#[test]
fn a_member_that_makes_progress_is_not_moved_out() {
    let (mut world, places) = calm_chain(3);
    let dead = dead(places[0], places[1]);
    let slow = |world: &World, n: u8, lasts: Duration| {
        let held = if n == places[1] { lasts.as_millis() as u64 } else { 10_000 };
        dead(world, n, lasts).map(|said| Report { held: Sequence(held), ..said })
    };
    assert_eq!(pass(&mut world, 6000, slow), None);
}

#[test]
fn a_member_that_does_not_open_is_moved_out() {
    let (mut world, places) = calm_chain(3);
    let last = places[2];
    let at = pass(&mut world, 6000, |world, n, _| Some(Report { open: n != last, ..report(world, 5) }));
    assert!(at.is_some_and(|at| at >= 1000), "{at:?}");
    assert!(!world.serving().contains(&id(last)));
}

/// Reports of paths with these delays in milliseconds: head to middle, middle to tail, tail to head.
fn ways(places: &[u8], ways: [u64; 3]) -> impl Fn(&World, u8, Duration) -> Option<Report> {
    let [first, second, back] = ways;
    let way = |took| PathDelay { waits: None, took: Duration::from_millis(took), usual: Duration::from_millis(1) };
    let places = places.to_vec();
    move |world, n, lasts| {
        let mut said = report(world, 9 + lasts.as_millis() as u64);
        match places.iter().position(|&place| place == n) {
            Some(0) => {
                (said.hop, said.slowed) = (way(2 * first), lasts);
                said.commit = way(first + second + back);
            }
            Some(1) => said.hop = way(2 * second),
            _ => {}
        }
        Some(said)
    }
}

#[test]
fn a_member_between_two_slow_paths_is_moved_out() {
    for (slow, expected) in [([100, 100, 1], 1), ([100, 1, 100], 0), ([1, 100, 100], 2), ([100, 1, 1], 1)] {
        let (mut world, places) = calm_chain(3);
        let at = pass(&mut world, 6000, ways(&places, slow)).expect("it is moved");
        assert!((2000..=3700).contains(&at), "{at} ms");
        assert!(!world.serving().contains(&id(places[expected])), "{slow:?}: {:?}", self::places(&world));
        assert_eq!(world.serving().len(), 2);
        let soon = pass(&mut world, 9000, |world, n, _| world.serving().contains(&id(n)).then(|| report(world, 9)));
        assert_eq!(soon, None, "it stays in quarantine");
        assert!(pass(&mut world, 3000, |world, _, _| Some(report(world, 9))).is_some(), "it returns");
    }
}

#[test]
fn quarantine_backoff_is_bounded() {
    let mut world = World::new(3, 3);
    let (slow, mut away) = (places(&world)[2], Vec::new());
    for _ in 0..6 {
        calm(&mut world);
        // The member that returns is the tail.
        let places = places(&world);
        pass(&mut world, 6000, ways(&places, [1, 100, 100])).expect("it is moved");
        assert!(!world.serving().contains(&id(slow)));
        away.push(pass(&mut world, 120_000, |world, _, _| Some(report(world, 9))).expect("it returns") / 1000);
        assert_eq!(world.config().syncing(), Some(id(slow)));
        let wish = Promotion { chain: CHAIN, epoch: world.config().epoch, member: id(slow) };
        world.wish(world.tail(), wish);
        assert_eq!(world.serving().len(), 3);
    }
    assert_eq!(away, [10, 20, 40, 40, 40, 40]);
}

#[test]
fn a_single_path_far_above_its_usual_time_is_slow_though_short() {
    for (slow, moved) in [([20, 20, 1], true), ([20, 20, 10], true), ([20, 20, 18], false), ([4, 4, 0], false)] {
        let (mut world, places) = calm_chain(3);
        let at = pass(&mut world, 6000, usually(2, ways(&places, slow)));
        assert_eq!(at.is_some(), moved, "{slow:?}");
        assert_eq!(world.serving().contains(&id(places[1])), !moved, "{slow:?}");
    }
}

/// Reports of a slow chain whose disks have these delays in milliseconds, by position.
fn disks(places: &[u8], millis: &[u64]) -> impl Fn(&World, u8, Duration) -> Option<Report> + use<> {
    let way = |took| PathDelay { waits: None, took: Duration::from_millis(took), usual: Duration::from_millis(1) };
    let (places, disks) = (places.to_vec(), millis.to_vec());
    move |world, n, lasts| {
        let mut said = report(world, 9 + lasts.as_millis() as u64);
        let at = places.iter().position(|&place| place == n)?;
        said.disk = way(disks[at]);
        if at + 1 < places.len() {
            said.hop = way(2);
        }
        if at == 0 {
            (said.commit, said.slowed) = (way(3 + disks.iter().max().unwrap()), lasts);
        }
        Some(said)
    }
}

#[test]
fn a_member_with_a_slow_disk_is_moved_out_itself() {
    for slow in 0..3 {
        let (mut world, places) = calm_chain(3);
        let mut millis = [1; 3];
        millis[slow] = 100;
        let at = pass(&mut world, 6000, disks(&places, &millis)).expect("it is moved");
        assert!((2000..=3700).contains(&at), "{at} ms");
        assert!(!world.serving().contains(&id(places[slow])), "{slow}: {:?}", self::places(&world));
        assert!(world.why.contains(&Why::Disk), "{:?}", world.why);
    }
    let (mut world, places) = calm_chain(2);
    pass(&mut world, 6000, disks(&places, &[1, 100])).expect("it is moved");
    assert_eq!(self::places(&world), [places[0]], "a slow disk is found even with two members");
}

#[test]
fn where_all_disks_are_slow_no_member_is_moved_out() {
    for millis in [[100, 100, 100], [100, 90, 110], [100, 100, 1], [1, 1, 1]] {
        let (mut world, places) = calm_chain(3);
        assert_eq!(pass(&mut world, 6000, disks(&places, &millis)), None, "{millis:?}: {:?}", world.why);
    }
}

#[test]
fn a_slow_disk_does_not_hide_a_slow_member() {
    let (mut world, places) = calm_chain(3);
    let (slow, disks) = (ways(&places, [200, 200, 1]), disks(&places, &[1, 1, 50]));
    let report = |world: &World, n: u8, lasts: Duration| {
        Some(Report { disk: disks(world, n, lasts)?.disk, ..slow(world, n, lasts)? })
    };
    pass(&mut world, 6000, report).expect("it is moved");
    assert!(!world.serving().contains(&id(places[1])), "the disk explains little of a commit's delay");
}

#[test]
fn a_slow_disk_that_is_not_found_costs_the_tail_its_place() {
    let (world, places) = calm_chain(3);
    let mut world = world.without(Some(Mutant::TolerateSlowDisk));
    pass(&mut world, 6000, disks(&places, &[100, 1, 1])).expect("a member is moved");
    assert_eq!(self::places(&world), [places[0], places[1]]);
}

/// Reports of a chain that commits nothing while these disks complete no write.
fn stuck(places: &[u8], disks: &[u8]) -> impl Fn(&World, u8, Duration) -> Option<Report> + use<> {
    let (places, disks) = (places.to_vec(), disks.to_vec());
    move |world, n, lasts| {
        let waits = |is: bool| PathDelay { waits: is.then_some((Sequence(6), lasts)), ..PathDelay::default() };
        let (disk, commit) = (waits(disks.contains(&n)), waits(places.contains(&n)));
        Some(Report { held: Sequence(9), disk, commit, ..report(world, 5) })
    }
}

#[test]
fn a_member_whose_disk_takes_nothing_is_moved_out() {
    let (mut world, places) = calm_chain(3);
    for _ in 0..2 {
        let at = pass(&mut world, 6000, stuck(&places, &places[1..])).expect("it is moved");
        assert!((2000..=3700).contains(&at), "{at} ms");
    }
    assert_eq!(self::places(&world), [places[0]], "one after the other, but not the one that works");
    let (mut world, places) = calm_chain(3);
    assert_eq!(pass(&mut world, 6000, stuck(&places, &places)), None, "no disk works");
}

#[test]
fn a_joiner_whose_disk_takes_nothing_is_dropped_once_the_tail_waits_for_it() {
    let (mut world, places) = calm_chain(4);
    let last = places[3];
    pass(&mut world, 6000, stuck(&places, &[last])).expect("it is moved");
    pass(&mut world, 20_000, |world, _, _| Some(report(world, 9))).expect("it is back");
    assert_eq!(world.config().syncing(), Some(id(last)));
    let told = stuck(&places, &[last]);
    let idle =
        |world: &World, n: u8, lasts: Duration| Some(Report { commit: PathDelay::default(), ..told(world, n, lasts)? });
    assert_eq!(pass(&mut world, 6000, idle), None, "it stalls nothing");
    pass(&mut world, 6000, &told).expect("it is dropped");
    assert_eq!(world.config().syncing(), None);
}

/// `report` with a watermark that usually takes `back` milliseconds from tail to head.
fn usually(
    back: u64,
    report: impl Fn(&World, u8, Duration) -> Option<Report>,
) -> impl Fn(&World, u8, Duration) -> Option<Report> {
    move |world, n, lasts| {
        let mut said = report(world, n, lasts)?;
        said.commit.usual += Duration::from_millis(back);
        Some(said)
    }
}

#[test]
fn a_member_slow_for_a_moment_stays() {
    let (mut world, places) = calm_chain(3);
    let (busy, other) = (ways(&places, [60, 50, 70]), ways(&places, [1, 1, 1]));
    let hiccups = [ways(&places, [100, 100, 1]), ways(&places, [1, 100, 100]), ways(&places, [100, 1, 100])];
    let report = |world: &World, n: u8, lasts: Duration| {
        let moment = lasts.as_millis() as usize / 750;
        match moment % 4 {
            0 => busy(world, n, lasts),
            2 => other(world, n, lasts),
            _ => hiccups[moment / 2 % 3](world, n, lasts),
        }
    };
    assert_eq!(pass(&mut world, 12_000, report), None, "{:?}", world.why);
}

#[test]
fn where_all_are_slow_no_member_is_moved_out() {
    for equal in [[100, 100, 100], [100, 90, 110], [20, 20, 20], [20, 20, 1]] {
        let (mut world, places) = calm_chain(3);
        assert_eq!(pass(&mut world, 9000, ways(&places, equal)), None, "{equal:?}");
    }
}

#[test]
fn the_last_member_is_never_moved_out() {
    let (mut world, places) = calm_chain(2);
    pass(&mut world, 6000, dead(places[0], places[1]));
    assert_eq!(self::places(&world), [places[0]]);
    pass(&mut world, 9000, |world, n, _| Some(Report { open: n != places[0], ..report(world, 9) }));
    assert_eq!(self::places(&world), [places[0]]);
}

/// Node 2 of three sends renewals but receives no answer. Also returns when it was moved out.
fn deaf_member(mutant: Option<Mutant>) -> (World, Option<u64>) {
    let mut world = World::new(3, 3).without(mutant);
    calm(&mut world);
    let mut at = None;
    for passed in (0..6000).step_by(50) {
        world.now = world.now + Duration::from_millis(50);
        if passed % 250 == 0 {
            for n in [0, 1] {
                world.renew(n);
            }
            let deaf = Renewal { answered: 0, ..world.renewal(2) };
            world.renew_with(2, deaf);
        }
        world.handle(CoordinatorInput::Tick);
        if at.is_none() && !world.serving().contains(&id(2)) {
            at = Some(passed);
        }
    }
    (world, at)
}

#[test]
fn a_deaf_member_that_is_taken_joins_again() {
    let (world, _) = deaf_member(Some(Mutant::TakeDeaf));
    assert!(world.why.contains(&Why::Joins), "{:?}", world.why);
}

#[test]
fn a_deaf_member_is_moved_out() {
    let (mut world, at) = deaf_member(None);
    assert!(at.is_some_and(|at| at >= 1700), "{at:?}");
    assert!(world.why.contains(&Why::Deaf) && !world.why.contains(&Why::Joins));
    assert_eq!(world.config().syncing(), None, "it receives nothing yet");
    world.pass(500, &[0, 1, 2]);
    assert_eq!(world.config().syncing(), Some(id(2)), "it hears again");
}

fn halted(mutant: Option<Mutant>) -> (World, u8) {
    let mut world = World::new(3, 3).without(mutant);
    calm(&mut world);
    let head = places(&world)[0];
    pass(&mut world, 3000, |world, n, _| {
        Some(Report { halted: n == head, ..report(world, 5) }).filter(|_| n == head || world.serving().contains(&id(n)))
    });
    (world, head)
}

#[test]
fn a_halted_incarnation_is_moved_out_for_good() {
    let (mut world, head) = halted(None);
    assert!(!world.serving().contains(&id(head)) && world.config().syncing().is_none(), "{:?}", world.config());
    assert!(world.why.contains(&Why::Halted), "{:?}", world.why);
    // The node is not in quarantine: its next incarnation may join at once.
    let mut next = founder(head);
    next.id.incarnation = Incarnation { store: 2, starts: 1 };
    let others: Vec<u8> = (0..3).filter(|&n| n != head).collect();
    world.pass(700, &others);
    for _ in 0..4 {
        let answered = world.said.get(&head).map_or(0, |renewed| renewed.number);
        let renewal = Renewal { me: next.clone(), answered, ..world.renewal(head) };
        world.handle(CoordinatorInput::Renewal { from: next.id, renewal });
        world.pass(250, &others);
    }
    assert_eq!(world.config().syncing(), Some(next.id));
}

#[test]
fn a_halted_member_that_stays_keeps_its_place_for_ever() {
    let (world, head) = halted(Some(Mutant::KeepHalted));
    assert!(world.serving().contains(&id(head)));
}

#[test]
fn a_joiner_that_halted_loses_its_place() {
    let (mut world, spare, there) = joined();
    let halted = Report { halted: true, open: false, ..report(&world, 0) };
    world.report(spare, halted);
    assert_eq!(world.config().syncing(), None);
    let others: Vec<u8> = there.into_iter().filter(|&n| n != spare).collect();
    for _ in 0..20 {
        world.report(spare, halted);
        world.pass(100, &others);
    }
    assert_eq!(world.config().syncing(), None, "it halted permanently");
}

/// Whether a joiner from which its tail has received nothing for `millis` keeps its place, with another spare or
/// without one.
fn keeps_place(mutant: Option<Mutant>, other: bool, millis: u64) -> bool {
    let mut world = World::running(if other { 5 } else { 4 }, 3).without(mutant);
    let gone = (1..world.nodes).find(|&n| world.serving().contains(&id(n))).unwrap();
    let there: Vec<u8> = (0..world.nodes).filter(|&n| n != gone).collect();
    world.pass(2000, &there);
    let joiner = world.config().syncing().expect("a spare joins");
    world.report(world.tail(), Report { unheard: Duration::from_millis(millis), ..report(&world, 9) });
    world.config().syncing() == Some(joiner)
}

#[test]
fn an_unheard_joiner_gives_its_place_to_a_spare() {
    assert!(!keeps_place(None, true, 2000));
    assert!(keeps_place(None, true, 1990), "the time isn't over yet");
    assert!(keeps_place(None, false, 60_000), "no other node could take its place");
}

#[test]
fn an_unheard_joiner_that_stays_keeps_a_spare_waiting() {
    assert!(keeps_place(Some(Mutant::TolerateUnheardJoiner), true, 60_000));
}
