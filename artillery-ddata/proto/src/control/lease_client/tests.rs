//! The choice of the nodes to ask for a lease, and the use of their answers.

use super::*;
use crate::{
    ClusterId,
    control::{Bootstrap, Timing},
    fixtures::{founder, id},
};

/// Node 3 of three, which knows node 1 as the leader.
fn holder() -> LeaseClient {
    let members = (1..4).map(founder).collect();
    let founding = Bootstrap::new(ClusterId(5), "shop", members);
    let mut holder = LeaseClient::new(founder(3), Arc::new(Configs::of(&founding)));
    holder.leads(Timestamp::ZERO, id(1));
    holder
}

/// The time of the next renewal, and the nodes that are asked then.
fn asked(holder: &mut LeaseClient) -> (Timestamp, BTreeMap<MemberId, u64>) {
    let now = holder.next_tick();
    (now, std::iter::from_fn(|| holder.renew(now)).map(|(to, renewal)| (to, renewal.number)).collect())
}

fn answer(number: u64, leader: Option<MemberId>, lease: Option<Duration>) -> Renewed {
    Renewed { lease, ..Renewed::bare(number, leader) }
}

#[test]
fn a_slow_leader_is_still_asked() {
    let mut holder = holder();
    let mut others = BTreeSet::new();
    let (first, numbers) = asked(&mut holder);
    for _ in 0..20 {
        let (_, asked) = asked(&mut holder);
        assert!(asked.contains_key(&id(1)), "{asked:?}");
        others.extend(asked.into_keys());
    }
    assert_eq!(others, [1, 2, 3].map(id).into(), "other nodes are asked too");
    let lease = Duration::from_secs(20);
    let learned = holder.answered(holder.next_tick(), id(1), answer(numbers[&id(1)], Some(id(1)), Some(lease)));
    assert_eq!(learned.lease, Some(first + lease), "a late answer is still valid, from the time of its renewal");
    assert_eq!(
        asked(&mut holder).1.into_keys().collect::<Vec<_>>(),
        [id(1)],
        "the leader answers: no other node is asked"
    );
}

#[test]
fn renewals_follow_the_lease_of_the_cluster() {
    let lease = Duration::from_secs(8);
    let timing = Timing { lease, ..Timing::default() };
    let founding = Bootstrap { timing, ..Bootstrap::new(ClusterId(5), "shop", vec![]) };
    let mut holder = LeaseClient::new(founder(3), Arc::new(Configs::of(&founding)));
    let (first, second) = (asked(&mut holder).0, asked(&mut holder).0);
    assert_eq!(second - first, lease / 4);
}

#[test]
fn a_leader_that_is_gone_is_asked_until_another_one_is_named() {
    let mut holder = holder();
    let to_other = (0..40).find_map(|_| asked(&mut holder).1.remove(&id(2))).unwrap();
    holder.answered(holder.next_tick(), id(2), answer(to_other, Some(id(2)), None));
    assert_eq!(asked(&mut holder).1.into_keys().collect::<Vec<_>>(), [id(2)]);
}

#[test]
fn a_deposed_leader_is_asked_only_in_its_turn() {
    let mut holder = holder();
    let number = asked(&mut holder).1[&id(1)];
    holder.answered(holder.next_tick(), id(1), answer(number, None, None));
    let asked: Vec<_> = (0..3).map(|_| asked(&mut holder).1.into_keys().collect::<Vec<_>>()).collect();
    assert_eq!(asked, [1, 2, 3].map(|n| vec![id(n)]));
}

#[test]
fn a_node_serves_until_a_leader_agrees_and_again_when_it_is_told_to() {
    let (mut holder, lease) = (holder(), Some(Duration::from_secs(1)));
    let say = |holder: &mut LeaseClient, next, lease| {
        let (at, numbers) = asked(holder);
        holder.answered(at, id(1), Renewed { leave: next, ..answer(numbers[&id(1)], Some(id(1)), lease) })
    };
    let asks = Leave { number: 0, stage: LeaveStage::Asks, returns: false };
    holder.leave(Timestamp::ZERO, false);
    assert_eq!(holder.leaves(), asks);
    assert!(say(&mut holder, None, lease).lease.is_some(), "it serves until then");
    let agreed = say(&mut holder, Some(asks.resigned()), lease);
    assert_eq!((agreed.resigns, agreed.lease), (true, None));
    holder.resign(holder.next_tick());
    let (_, before) = asked(&mut holder);
    assert_eq!(say(&mut holder, None, lease).lease, None, "a resigned node accepts no lease");
    let back = say(&mut holder, Some(asks.resigned().back(LeaveStage::Asks)), None);
    assert!(back.serves_again);
    assert_eq!(holder.leaves(), Leave { number: 1, stage: LeaveStage::Asks, returns: false });
    let late = holder.answered(holder.next_tick(), id(1), answer(before[&id(1)], Some(id(1)), lease));
    assert_eq!(late, RenewalOutcome::default(), "an answer to a renewal from before the withdrawal (trap 62)");
    assert!(say(&mut holder, None, lease).lease.is_some());
    assert!(!say(&mut holder, Some(asks.resigned()), lease).resigns, "an agreement to a withdrawn request");
    holder.stay(holder.next_tick());
    assert_eq!(holder.leaves(), Leave { number: 2, stage: LeaveStage::Stays, returns: false });
    assert!(
        !say(&mut holder, Some(Leave { number: 2, stage: LeaveStage::Resigned, returns: false }), lease).resigns,
        "it hasn't asked"
    );
}

#[test]
fn renewals_name_the_addresses_of_now() {
    let mut holder = holder();
    let addrs: Vec<SocketAddr> = vec![([10, 0, 0, 9], 7400).into()];
    holder.moves(addrs.clone());
    let (_, renewal) = holder.renew(holder.next_tick()).unwrap();
    assert_eq!(renewal.me, NodeInfo { addrs, ..founder(3) });
}
