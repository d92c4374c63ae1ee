use proptest::prelude::*;

use super::*;

fn addr(n: u16) -> SocketAddr {
    ([127, 0, 0, 1], n + 1).into()
}

fn node(n: u8) -> NodeId {
    NodeId::from_bytes([n; 16])
}

fn target(n: u8, at: u16) -> DialTarget {
    DialTarget { node: Some(node(n)), addr: addr(at) }
}

/// A node with a proven address, and the argument of [`addr`] for that address.
const KNOWN: u8 = 1;
const THERE: u16 = 1;

fn known() -> DialTargets {
    let mut targets = DialTargets::default();
    targets.set_proven(node(KNOWN), addr(THERE));
    assert_eq!(targets.on_announced(Some(node(KNOWN)), &[addr(THERE)]).begin, [target(KNOWN, THERE)]);
    targets
}

fn full(mut targets: DialTargets) -> DialTargets {
    for n in 0..MAX_UNPROVEN_TARGETS as u16 {
        assert_eq!(targets.on_announced(None, &[addr(1000 + n)]).end, []);
    }
    targets
}

#[test]
fn a_foreign_address_is_tried_beside_the_known_one() {
    let mut targets = known();
    assert_eq!(targets.on_failed(target(KNOWN, THERE)), Some(1));
    let changes = targets.on_announced(Some(node(KNOWN)), &[addr(7)]);
    assert_eq!(changes, TargetChanges { begin: vec![target(KNOWN, 7)], end: vec![] });
    assert_eq!(targets.on_failed(target(KNOWN, THERE)), Some(2), "its pause keeps growing");
    assert_eq!(targets.on_announced(Some(node(KNOWN)), &[addr(THERE), addr(7)]), TargetChanges::default());
}

#[test]
fn a_new_address_counts_once_the_node_has_answered_there() {
    let mut targets = known();
    targets.on_announced(Some(node(KNOWN)), &[addr(7), addr(8)]);
    assert_eq!(targets.on_answered(node(KNOWN), addr(8)), [target(KNOWN, THERE), target(KNOWN, 7), target(KNOWN, 8)]);
    let changes = targets.on_announced(Some(node(KNOWN)), &[]);
    assert_eq!(changes.begin, [target(KNOWN, THERE), target(KNOWN, 8)], "both have been proved");
}

#[test]
fn a_node_that_has_answered_finds_room_however_many_strangers_there_are() {
    let mut targets = full(DialTargets::default());
    targets.set_proven(node(KNOWN), addr(THERE));
    assert_eq!(targets.on_announced(Some(node(KNOWN)), &[addr(THERE)]).begin, [target(KNOWN, THERE)]);
}

#[test]
fn a_target_tried_in_vain_gives_way_to_a_new_one() {
    let mut targets = full(known());
    targets.on_failed(target(KNOWN, THERE));
    assert_eq!(targets.on_announced(Some(node(2)), &[addr(2)]), TargetChanges::default(), "each must be tried first");
    let tried = DialTarget { node: None, addr: addr(1003) };
    assert_eq!(targets.on_failed(tried), Some(1));
    assert_eq!(
        targets.on_announced(Some(node(2)), &[addr(2)]),
        TargetChanges { begin: vec![target(2, 2)], end: vec![tried] }
    );
}

#[test]
fn a_good_bye_ends_what_was_tried_in_vain_and_nothing_else() {
    let mut targets = known();
    targets.on_announced(Some(node(2)), &[addr(2)]);
    assert_eq!(targets.on_gone(Some(node(2)), &[addr(2)]), [], "a stranger may have sent it");
    targets.on_failed(target(2, 2));
    targets.on_failed(target(KNOWN, THERE));
    assert_eq!(targets.on_gone(Some(node(2)), &[addr(2), addr(THERE)]), [target(2, 2)]);
    assert_eq!(targets.on_gone(Some(node(KNOWN)), &[addr(THERE)]), []);
}

#[test]
fn a_target_dialled_in_vain_is_given_up() {
    let mut targets = known();
    for round in 1..MAX_FAILED_ROUNDS {
        assert_eq!(targets.on_failed(target(KNOWN, THERE)), Some(round));
    }
    assert_eq!(targets.on_failed(target(KNOWN, THERE)), None);
    assert_eq!(
        targets.on_announced(Some(node(KNOWN)), &[]).begin,
        [target(KNOWN, THERE)],
        "until it is announced again"
    );
}

#[test]
fn an_announcement_has_so_many_addresses_at_most() {
    let addrs: Vec<_> = (0..1000).map(addr).collect();
    assert_eq!(DialTargets::default().on_announced(Some(node(2)), &addrs).begin.len(), MAX_ADDRS_PER_ANNOUNCEMENT);
}

#[test]
fn the_nodes_that_answered_longest_ago_are_forgotten_first() {
    let mut targets = DialTargets::default();
    let id = |n: u16| NodeId::from_name(&format!("n{n}"));
    for n in 0..=MAX_PROVEN_NODES as u16 {
        targets.set_proven(id(n), addr(n));
        targets.set_proven(id(1), addr(1));
    }
    assert_eq!(targets.proven.len(), MAX_PROVEN_NODES);
    assert_eq!(targets.on_announced(Some(id(1)), &[]).begin.len(), 1);
    assert_eq!(targets.on_announced(Some(id(0)), &[]).begin, []);
}

#[derive(Clone, Debug)]
enum Step {
    /// Announcements by unnamed strangers: how many, and the argument of [`addr`] for the first one. Each has the next
    /// address.
    Crowd(u16, u16),
    Announce(u8, Vec<u16>),
    GoodBye(u8, Vec<u16>),
    Fail(usize),
    Refuse(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let addrs = || proptest::collection::vec(0..40_u16, 0..20);
    prop_oneof![
        1 => (1..1500_u16, 100..2000_u16).prop_map(|(count, from)| Step::Crowd(count, from)),
        6 => (0..4_u8, addrs()).prop_map(|(node, addrs)| Step::Announce(node, addrs)),
        3 => (0..4_u8, addrs()).prop_map(|(node, addrs)| Step::GoodBye(node, addrs)),
        6 => any::<usize>().prop_map(Step::Fail),
        2 => any::<usize>().prop_map(Step::Refuse),
    ]
}

fn stranger(targets: &DialTargets, n: usize) -> Option<DialTarget> {
    let all: Vec<_> = targets.dialled.keys().filter(|&&target| target != place_known()).copied().collect();
    (!all.is_empty()).then(|| all[n % all.len()])
}

fn place_known() -> DialTarget {
    target(KNOWN, THERE)
}

/// Applies a step. Returns the targets that an announcement or a withdrawal ended.
fn take(targets: &mut DialTargets, step: Step) -> Vec<DialTarget> {
    let addrs = |all: Vec<u16>| all.into_iter().map(addr).collect::<Vec<_>>();
    match step {
        Step::Crowd(count, from) => {
            let announced = (from..from.saturating_add(count)).flat_map(|n| targets.on_announced(None, &[addr(n)]).end);
            announced.collect()
        }
        Step::Announce(n, all) => targets.on_announced(Some(node(n)), &addrs(all)).end,
        Step::GoodBye(n, all) => targets.on_gone(Some(node(n)), &addrs(all)),
        Step::Fail(n) => {
            stranger(targets, n).and_then(|target| targets.on_failed(target));
            Vec::new()
        }
        Step::Refuse(n) => {
            stranger(targets, n).into_iter().for_each(|target| targets.remove(target));
            Vec::new()
        }
    }
}

proptest! {
    #[test]
    fn no_stranger_ends_the_dialling_of_a_known_node(steps in proptest::collection::vec(step(), 0..60), tried in 0..MAX_FAILED_ROUNDS) {
        let mut targets = known();
        for round in 1..tried {
            prop_assert_eq!(targets.on_failed(place_known()), Some(round));
        }
        let rounds = targets.dialled[&place_known()];
        for step in steps {
            let end = take(&mut targets, step);
            prop_assert!(!end.contains(&place_known()));
            prop_assert_eq!(targets.dialled.get(&place_known()), Some(&rounds), "its pause is its own");
            prop_assert!(targets.dialled.len() <= MAX_UNPROVEN_TARGETS + 1);
            prop_assert_eq!(targets.proven.len(), 1);
            prop_assert_eq!(&targets.proven[&node(KNOWN)].addrs, &[addr(THERE)]);
        }
    }
}

/// When an announcement names a member at unknown addresses, even a forged one, the dialer calls
/// [`DialTargets::set_proven`] for all addresses that the membership lists for that member.
#[test]
fn addresses_that_a_member_states_do_not_displace_the_one_where_it_has_answered() {
    const ANSWERED: u16 = 500;
    let mut targets = DialTargets::default();
    targets.on_answered(node(KNOWN), addr(ANSWERED));
    // Eight addresses announced by the member, all unreachable from here, and a forged announcement with yet another
    // address.
    for stated in (0..8).rev() {
        targets.set_proven(node(KNOWN), addr(stated));
    }
    let begun = targets.on_announced(Some(node(KNOWN)), &[addr(900)]).begin;
    assert!(begun.contains(&target(KNOWN, ANSWERED)), "{begun:?}");
}
