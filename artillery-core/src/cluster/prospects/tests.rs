use proptest::prelude::*;

use super::*;

fn addr(n: u16) -> SocketAddr {
    ([127, 0, 0, 1], n + 1).into()
}

fn node(n: u8) -> NodeId {
    NodeId::from_bytes([n; 16])
}

fn place(n: u8, at: u16) -> Place {
    Place { node: Some(node(n)), addr: addr(at) }
}

/// A node that has answered, and is dialled again where it did.
const KNOWN: u8 = 1;
const THERE: u16 = 1;

fn known() -> Prospects {
    let mut prospects = Prospects::default();
    prospects.proved(node(KNOWN), addr(THERE));
    assert_eq!(prospects.announced(Some(node(KNOWN)), &[addr(THERE)]).begin, [place(KNOWN, THERE)]);
    prospects
}

/// Full of places of strangers, none of which was tried yet.
fn full(mut prospects: Prospects) -> Prospects {
    for n in 0..MAX_UNPROVEN as u16 {
        assert_eq!(prospects.announced(None, &[addr(1000 + n)]).end, []);
    }
    prospects
}

#[test]
fn a_foreign_address_is_tried_beside_the_known_one() {
    let mut prospects = known();
    assert_eq!(prospects.failed(place(KNOWN, THERE)), Some(1));
    let orders = prospects.announced(Some(node(KNOWN)), &[addr(7)]);
    assert_eq!(orders, Orders { begin: vec![place(KNOWN, 7)], end: vec![] });
    assert_eq!(prospects.failed(place(KNOWN, THERE)), Some(2), "its pause grows on");
    assert_eq!(prospects.announced(Some(node(KNOWN)), &[addr(THERE), addr(7)]), Orders::default());
}

#[test]
fn a_new_address_counts_once_the_node_has_answered_there() {
    let mut prospects = known();
    prospects.announced(Some(node(KNOWN)), &[addr(7), addr(8)]);
    assert_eq!(prospects.answered(node(KNOWN), addr(8)), [place(KNOWN, THERE), place(KNOWN, 7), place(KNOWN, 8)]);
    let orders = prospects.announced(Some(node(KNOWN)), &[]);
    assert_eq!(orders.begin, [place(KNOWN, THERE), place(KNOWN, 8)], "both have been proved");
}

#[test]
fn a_node_that_has_answered_finds_room_however_many_strangers_there_are() {
    let mut prospects = full(Prospects::default());
    prospects.proved(node(KNOWN), addr(THERE));
    assert_eq!(prospects.announced(Some(node(KNOWN)), &[addr(THERE)]).begin, [place(KNOWN, THERE)]);
}

#[test]
fn what_was_tried_in_vain_gives_way_to_what_is_new() {
    let mut prospects = full(known());
    prospects.failed(place(KNOWN, THERE));
    assert_eq!(prospects.announced(Some(node(2)), &[addr(2)]), Orders::default(), "all are to be tried first");
    let tried = Place { node: None, addr: addr(1003) };
    assert_eq!(prospects.failed(tried), Some(1));
    assert_eq!(prospects.announced(Some(node(2)), &[addr(2)]), Orders { begin: vec![place(2, 2)], end: vec![tried] });
}

#[test]
fn a_good_bye_ends_what_was_tried_in_vain_and_nothing_else() {
    let mut prospects = known();
    prospects.announced(Some(node(2)), &[addr(2)]);
    assert_eq!(prospects.gone(Some(node(2)), &[addr(2)]), [], "it may be a stranger's word");
    prospects.failed(place(2, 2));
    prospects.failed(place(KNOWN, THERE));
    assert_eq!(prospects.gone(Some(node(2)), &[addr(2), addr(THERE)]), [place(2, 2)]);
    assert_eq!(prospects.gone(Some(node(KNOWN)), &[addr(THERE)]), []);
}

#[test]
fn what_is_dialled_in_vain_is_given_up() {
    let mut prospects = known();
    for round in 1..ROUNDS {
        assert_eq!(prospects.failed(place(KNOWN, THERE)), Some(round));
    }
    assert_eq!(prospects.failed(place(KNOWN, THERE)), None);
    assert_eq!(prospects.announced(Some(node(KNOWN)), &[]).begin, [place(KNOWN, THERE)], "until it is announced again");
}

#[test]
fn an_announcement_has_so_many_addresses_at_most() {
    let addrs: Vec<_> = (0..1000).map(addr).collect();
    assert_eq!(Prospects::default().announced(Some(node(2)), &addrs).begin.len(), MAX_ANNOUNCED);
}

#[test]
fn the_nodes_that_answered_longest_ago_are_forgotten_first() {
    let mut prospects = Prospects::default();
    let id = |n: u16| NodeId::from_name(&format!("n{n}"));
    for n in 0..=MAX_PROVEN as u16 {
        prospects.proved(id(n), addr(n));
        prospects.proved(id(1), addr(1));
    }
    assert_eq!(prospects.proven.len(), MAX_PROVEN);
    assert_eq!(prospects.announced(Some(id(1)), &[]).begin.len(), 1);
    assert_eq!(prospects.announced(Some(id(0)), &[]).begin, []);
}

/// What strangers can do, and what can become of their places.
#[derive(Clone, Debug)]
enum Step {
    /// This many of them announce, from this number on.
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

/// An unproven place.
fn stranger(prospects: &Prospects, n: usize) -> Option<Place> {
    let all: Vec<_> = prospects.dialled.keys().filter(|&&place| place != place_known()).copied().collect();
    (!all.is_empty()).then(|| all[n % all.len()])
}

fn place_known() -> Place {
    place(KNOWN, THERE)
}

/// What is to be dialled no longer.
fn take(prospects: &mut Prospects, step: Step) -> Vec<Place> {
    let addrs = |all: Vec<u16>| all.into_iter().map(addr).collect::<Vec<_>>();
    match step {
        Step::Crowd(count, from) => {
            let announced = (from..from.saturating_add(count)).flat_map(|n| prospects.announced(None, &[addr(n)]).end);
            announced.collect()
        }
        Step::Announce(n, all) => prospects.announced(Some(node(n)), &addrs(all)).end,
        Step::GoodBye(n, all) => prospects.gone(Some(node(n)), &addrs(all)),
        Step::Fail(n) => {
            stranger(prospects, n).and_then(|place| prospects.failed(place));
            Vec::new()
        }
        Step::Refuse(n) => {
            stranger(prospects, n).into_iter().for_each(|place| prospects.over(place));
            Vec::new()
        }
    }
}

proptest! {
    #[test]
    fn no_stranger_ends_the_dialling_of_a_known_node(steps in proptest::collection::vec(step(), 0..60), tried in 0..ROUNDS) {
        let mut prospects = known();
        for round in 1..tried {
            prop_assert_eq!(prospects.failed(place_known()), Some(round));
        }
        let rounds = prospects.dialled[&place_known()];
        for step in steps {
            let end = take(&mut prospects, step);
            prop_assert!(!end.contains(&place_known()));
            prop_assert_eq!(prospects.dialled.get(&place_known()), Some(&rounds), "its pause is its own");
            prop_assert!(prospects.dialled.len() <= MAX_UNPROVEN + 1);
            prop_assert_eq!(prospects.proven.len(), 1);
            prop_assert_eq!(&prospects.proven[&node(KNOWN)].addrs, &[addr(THERE)]);
        }
    }
}
