//! Scenarios: which changes members must notice, and which not.

use std::time::Duration;

use bytes::Bytes;

use super::network::{Network, addr, local, member, name};
use crate::{
    Incarnation, MemberId,
    config::SwimSettings,
    membership::{MemberState::*, *},
};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn lan() -> SwimSettings {
    SwimSettings::lan()
}

#[test]
fn two_meet_within_a_few_round_trips() {
    let mut network = Network::new(2, lan(), 1);
    network.announce(0, 1);
    network.run_until("both meet", ms(20), |network| network.all_see_all(Alive));
    assert_eq!(network.told(0, 1), ["joined", "up"]);
    assert_eq!(network.told(1, 0), ["joined", "up"]);
    let seen = &network.nodes[0].members()[0];
    assert_eq!((seen.name.as_str(), &seen.payload[..], seen.payload_version), ("node-1", &b"role=1"[..], 1));
    assert_eq!(seen.peer(), network.nodes[1].local().peer());
}

#[test]
fn all_meet_through_one() {
    for count in [3, 5, 12, 30] {
        let mut network = Network::new(count, lan(), 7);
        network.introduce_all();
        network.run_until("all meet", secs(10), |network| network.all_see_all(Alive));
        network.run_for(secs(10));
        assert_eq!(network.log.len(), 2 * count * (count - 1), "exactly one joined and one up per pair");
        assert!(network.largest <= 1200);
    }
}

#[test]
fn repeated_announcements_cause_no_events() {
    let mut network = Network::met(3, lan(), 2);
    for (from, to) in [(0, 1), (1, 0), (2, 1), (0, 1)] {
        network.announce(from, to);
        network.run_for(ms(50));
    }
    assert_eq!(network.log, []);
}

#[test]
fn a_silent_member_is_suspected_within_half_a_second_and_then_down_everywhere() {
    for (count, seed) in (0..40).map(|seed| (2 + seed as usize % 2, seed)) {
        let mut network = Network::met(count, lan(), seed);
        network.run_for(ms(seed * 37));
        network.asleep.insert(1);
        let suspected = |network: &Network| (0..count).any(|node| node != 1 && network.sees(node, 1) == Some(Suspect));
        let took = network.run_until("one member suspects it", secs(2), suspected);
        assert!(took <= ms(500), "{took:?} with {count} members and seed {seed}");
        network.run_until("all see it down", secs(3), |network| network.all_see(1, Down));
        assert_eq!(network.told(0, 1), ["suspect", "down"]);
    }
}

#[test]
fn the_silence_of_one_of_ten_is_noticed_by_all() {
    let mut network = Network::met(10, lan(), 3);
    network.asleep.insert(4);
    network.run_until("all see it down", secs(5), |network| network.all_see(4, Down));
    network.run_for(secs(20));
    for node in [0, 1, 2, 3, 5, 6, 7, 8, 9] {
        assert_eq!(network.told(node, 4), ["suspect", "down"]);
    }
    assert_eq!(network.log.len(), 18, "no other member was affected");
}

#[test]
fn dead_members_stay_dead() {
    let mut network = Network::met(4, lan(), 4);
    network.asleep.insert(0);
    network.run_for(secs(120));
    assert_eq!((network.count("suspect"), network.count("down"), network.log.len()), (3, 3, 6));
}

#[test]
fn the_dead_are_forgotten_in_the_end() {
    let mut network = Network::met(3, SwimSettings { forget_after: secs(30), ..lan() }, 4);
    network.asleep.insert(0);
    network.run_for(secs(20));
    assert_eq!(network.nodes[1].members().len(), 2);
    network.run_for(secs(30));
    assert_eq!(network.nodes[1].members().len(), 1);
    network.asleep.remove(&0);
    network.announce(0, 1);
    network.run_until("they meet again", secs(10), |network| network.all_see_all(Alive));
}

#[test]
fn a_lossy_network_brings_no_member_down_for_long() {
    for seed in 0..4 {
        let mut network = Network::met(5, lan(), seed);
        network.loss_percent = 20;
        network.run_for(secs(60));
        assert_eq!(network.count("down"), 0, "seed {seed}");
        network.loss_percent = 0;
        network.run_until("all well", secs(10), |network| network.all_see_all(Alive));
        assert_eq!(network.count("suspect"), network.count("up"), "each suspicion was refuted");
    }
}

#[test]
fn a_restart_in_memory_is_another_member() {
    let mut network = Network::met(3, lan(), 5);
    network.asleep.insert(2);
    network.run_for(ms(100));
    network.restart(2, local(2, 2));
    network.announce(2, 0);
    network.run_until("all see the new incarnation", secs(2), |network| network.all_see_all(Alive));
    assert_eq!(
        network.told(0, 2).into_iter().filter(|kind| *kind != "suspect").collect::<Vec<_>>(),
        ["down", "joined", "up"]
    );
    let down = network.log.iter().find_map(|(_, node, event)| match event {
        SwimEvent::Down(m) if *node == 0 => Some(m.id),
        _ => None,
    });
    assert_eq!(down, Some(member(2, 1)), "the old incarnation is down, not the new one");
    network.run_for(secs(10));
    assert!(network.nodes[0].members().iter().all(|seen| seen.id != member(2, 1)), "the old one is no longer listed");
    assert!(network.all_see_all(Alive));
}

#[test]
fn a_restart_is_seen_although_the_clock_went_back() {
    let mut network = Network::met(3, lan(), 6);
    network.asleep.insert(2);
    network.restart(2, LocalMember { started_at_ms: 5, ..local(2, 2) });
    network.announce(2, 0);
    network.run_until("all see the new incarnation", secs(3), |network| network.all_see_all(Alive));
    network.run_for(secs(20));
    assert!(network.all_see_all(Alive));
    assert_eq!(network.count("superseded"), 0);
}

/// Drains the outputs of a process. Returns its packets to `member`, drops all others, and passes its events to `told`.
fn packets_to(member: MemberId, from: &mut Swim, mut told: impl FnMut(SwimEvent)) -> Vec<Bytes> {
    let mut packets = Vec::new();
    while let Some(output) = from.poll_output() {
        match output {
            SwimOutput::Packet { to, bytes } if to.id == member => packets.push(bytes),
            SwimOutput::Packet { .. } => {}
            SwimOutput::Event(event) => told(event),
        }
    }
    packets
}

#[test]
fn a_process_that_wakes_after_its_successor_came_gives_up() {
    let mut network = Network::met(3, lan(), 8);
    network.asleep.insert(2);
    network.run_for(secs(5));
    let new = Swim::new(local(2, 2), lan(), 99).unwrap();
    let mut old = std::mem::replace(&mut network.nodes[2], new);
    network.asleep.remove(&2);
    network.announce(2, 1);
    network.run_until("all see the new incarnation", secs(2), |network| network.all_see_all(Alive));
    network.run_for(secs(1));
    network.log.clear();
    // The old process resumes. Its packets reach node 0, and the answers reach it.
    let mut packets = 0;
    for _ in 0..50 {
        network.now = network.now + ms(50);
        old.tick(network.now);
        for bytes in packets_to(member(0, 1), &mut old, |event| network.log.push((network.now, 2, event))) {
            packets += 1;
            let _ = network.nodes[0].handle_packet(network.now, member(2, 1), &bytes);
        }
        let Network { nodes, log, now, .. } = &mut network;
        for bytes in packets_to(member(2, 1), &mut nodes[0], |event| log.push((*now, 0, event))) {
            let _ = old.handle_packet(*now, member(0, 1), &bytes);
        }
    }
    packets_to(member(0, 1), &mut old, |event| network.log.push((network.now, 2, event)));
    assert!(old.is_stopped());
    assert_eq!(old.next_timer(), None);
    assert!(packets < 20, "no storm: {packets}");
    let superseded = |entry: &&super::network::Entry| entry.2 == SwimEvent::Superseded { by: member(2, 2) };
    assert_eq!(network.log.iter().filter(superseded).count(), 1);
    assert_eq!(network.sees(0, 2), Some(Alive), "the successor is unharmed");
}

/// While node 2 is unreachable, `copy` runs under its name and then leaves, like an outdated copy of a directory that
/// was refused.
fn away_while_a_copy_runs(seed: u64, belongs: bool, copy: LocalMember) -> Network {
    let mut network = Network::met(3, lan(), seed);
    if belongs {
        network.nodes[2].belong();
    }
    network.asleep.insert(2);
    network.run_for(secs(5));
    let original = std::mem::replace(&mut network.nodes[2], Swim::new(copy, lan(), 99).unwrap());
    network.asleep.remove(&2);
    network.announce(2, 1);
    network.run_until("all see the copy", secs(2), |network| network.all_see_all(Alive));
    network.nodes[2].leave();
    network.drain(2);
    network.run_until("all see it gone", secs(2), |network| network.all_see(2, Left));
    network.nodes[2] = original;
    network.log.clear();
    network
}

/// A later start of node 2's store.
fn copy() -> LocalMember {
    let (mut copy, id) = (local(2, 2), member(2, 1));
    copy.id = MemberId { incarnation: Incarnation { starts: 2, ..id.incarnation }, ..id };
    copy
}

#[test]
fn a_process_comes_back_after_a_copy_of_its_store_has_left() {
    for seed in 0..20 {
        let mut network = away_while_a_copy_runs(seed, true, copy());
        network.run_until("the original is back", secs(60), |network| network.all_see_all(Alive));
        assert_eq!(network.nodes[2].local().id, member(2, 1));
        assert_eq!(network.count("superseded"), 0);
    }
}

/// The proof of the formation requires that a process without a formation stops here ([`Swim::belong`]). A later
/// process with another store is no copy.
#[test]
fn a_process_without_a_cluster_ends_although_the_later_one_has_left() {
    for (belongs, copy) in [(false, copy()), (true, local(2, 2))] {
        let mut network = away_while_a_copy_runs(1, belongs, copy);
        network.run_until("the original ends", secs(60), |network| network.nodes[2].is_stopped());
        assert_eq!(network.count("superseded"), 1);
    }
}

/// Two copies of a stopped directory start as the same incarnation. One is refused and leaves.
#[test]
fn the_farewell_of_a_process_with_the_id_of_a_member_leaves_the_member_alone() {
    let mut network = Network::met(3, lan(), 4);
    let mut twin = Swim::new(LocalMember { started_at_ms: 1, ..local(2, 1) }, lan(), 99).unwrap();
    for to in [0, 1] {
        twin.announce_to(network.now, SwimPeer { id: member(to, 1), addr: addr(to) });
        let packets = packets_to(member(to, 1), &mut twin, |_| {});
        packets.iter().for_each(|packet| drop(network.nodes[to].handle_packet(network.now, member(2, 1), packet)));
        for packet in packets_to(member(2, 1), &mut network.nodes[to], |_| {}) {
            drop(twin.handle_packet(network.now, member(to, 1), &packet));
        }
    }
    twin.set_payload(Bytes::from_static(b"another")).unwrap();
    twin.leave();
    let mut farewells = 0;
    while let Some(output) = twin.poll_output() {
        let SwimOutput::Packet { to, bytes } = output else { continue };
        let to = if to.id == member(0, 1) { 0 } else { 1 };
        drop(network.nodes[to].handle_packet(network.now, member(2, 1), &bytes));
        farewells += 1;
    }
    assert!(farewells > 0);
    network.run_for(secs(5));
    assert!(network.all_see_all(Alive));
}

#[test]
fn a_member_that_leaves_has_left_and_is_not_down() {
    let mut network = Network::met(5, lan(), 9);
    network.nodes[3].leave();
    network.drain(3);
    assert!(network.nodes[3].is_stopped());
    network.run_until("all see it gone", ms(500), |network| network.all_see(3, Left));
    network.run_for(secs(30));
    assert_eq!((network.count("left"), network.log.len()), (4, 4));
    assert_eq!(network.nodes[3].next_timer(), None);
}

#[test]
fn a_farewell_that_was_lost_on_the_way_to_some_reaches_them_through_others() {
    let mut network = Network::met(5, lan(), 10);
    network.part(&[3], &[0, 1, 2]);
    network.nodes[3].leave();
    network.drain(3);
    network.run_until("all see it gone", secs(5), |network| network.all_see(3, Left));
    network.run_for(secs(10));
    assert_eq!(network.count("left"), 4);
}

#[test]
fn a_payload_reaches_all_members_in_spite_of_losses() {
    let mut network = Network::met(6, lan(), 11);
    network.loss_percent = 40;
    for version in 2..6u64 {
        let payload = Bytes::from(vec![version as u8; MAX_MEMBER_PAYLOAD_BYTES]);
        network.nodes[1].set_payload(payload.clone()).unwrap();
        network.drain(1);
        let id = member(1, 1);
        network.run_until("all have it", secs(10), |network| {
            [0, 2, 3, 4, 5].iter().all(|node| {
                let members = network.nodes[*node].members();
                members.iter().any(|m| m.id == id && m.payload == payload && m.payload_version == version)
            })
        });
    }
    assert_eq!(network.count("payload"), 20);
    assert!(network.largest <= 1200);
}

#[test]
fn a_payload_goes_round_a_dead_link() {
    let mut network = Network::met(3, lan(), 12);
    network.part(&[0], &[1]);
    network.nodes[0].set_payload(Bytes::from_static(b"new")).unwrap();
    network.drain(0);
    network.run_until("it is reported", secs(3), |network| network.told(1, 0).contains(&"payload"));
}

#[test]
fn the_same_payload_is_no_news() {
    let mut network = Network::met(2, lan(), 12);
    network.nodes[0].set_payload(Bytes::from_static(b"role=0")).unwrap();
    assert_eq!(network.nodes[0].poll_output(), None);
    assert_eq!(network.nodes[0].local().payload_version, 1);
}

#[test]
fn one_dead_direction_brings_no_member_down() {
    let mut network = Network::met(4, lan(), 13);
    network.cut.insert((0, 1));
    network.run_for(secs(60));
    network.cut.clear();
    network.run_until("all well", secs(5), |network| network.all_see_all(Alive));
    assert_eq!(network.count("down"), 0);
    assert_eq!(network.count("suspect"), network.count("up"), "each suspicion was refuted");
}

#[test]
fn a_partition_heals() {
    for seed in 0..6 {
        let mut network = Network::met(5, lan(), seed);
        network.part(&[0, 1], &[2, 3, 4]);
        network.run_until("both sides lose each other", secs(10), |network| {
            [0, 1].iter().all(|a| {
                [2, 3, 4].iter().all(|b| network.sees(*a, *b) == Some(Down) && network.sees(*b, *a) == Some(Down))
            })
        });
        network.run_for(secs(30));
        network.cut.clear();
        network.run_until("all meet again", secs(15), |network| network.all_see_all(Alive));
        network.run_for(secs(20));
        assert!(network.all_see_all(Alive));
        let ids: Vec<_> = network.nodes[0].members().iter().map(|m| m.id).collect();
        assert!((1..5).all(|node| ids.contains(&member(node, 1))), "all kept their ids");
    }
}

#[test]
fn two_that_lost_each_other_meet_again() {
    let mut network = Network::met(2, lan(), 14);
    network.part(&[0], &[1]);
    network.run_until("they lose each other", secs(10), |network| network.all_see_all(Down));
    network.run_for(secs(100));
    network.cut.clear();
    network.run_until("they meet again", secs(5), |network| network.all_see_all(Alive));
    assert_eq!(network.told(0, 1), ["suspect", "down", "up"]);
}

#[test]
fn members_that_were_all_isolated_meet_again() {
    let mut network = Network::met(4, lan(), 15);
    network.cut.extend((0..4).flat_map(|a| (0..4).map(move |b| (a, b))));
    network.run_until("all alone", secs(10), |network| network.all_see_all(Down));
    network.cut.clear();
    network.run_until("all meet again", secs(20), |network| network.all_see_all(Alive));
}

#[test]
fn a_paused_member_comes_back_and_suspects_no_other() {
    let mut network = Network::met(3, lan(), 16);
    network.asleep.insert(0);
    network.run_until("it is down", secs(10), |network| network.all_see(0, Down));
    network.run_for(secs(60));
    network.asleep.remove(&0);
    network.run_until("it is back", secs(5), |network| network.all_see_all(Alive));
    network.run_for(secs(10));
    assert_eq!(network.told(1, 0), ["suspect", "down", "up"]);
    assert!(!network.told(0, 1).contains(&"down"), "{:?}", network.told(0, 1));
    assert!(!network.told(0, 2).contains(&"down"), "{:?}", network.told(0, 2));
}

#[test]
fn a_suspicion_does_not_ripen_during_a_pause() {
    for seed in 0..10 {
        let mut network = Network::met(3, lan(), seed);
        network.part(&[0], &[1, 2]);
        network.run_until("it suspects both", secs(3), |network| {
            network.sees(0, 1) == Some(Suspect) && network.sees(0, 2) == Some(Suspect)
        });
        network.cut.clear();
        network.asleep.insert(0);
        network.run_for(ms(2100));
        network.asleep.remove(&0);
        network.run_until("all well", secs(10), |network| network.all_see_all(Alive));
        assert!(!network.told(0, 1).contains(&"down") && !network.told(0, 2).contains(&"down"), "{:?}", network.log);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let mut network = Network::met(5, lan(), seed);
        network.loss_percent = 30;
        network.asleep.insert(2);
        network.run_for(secs(20));
        network.asleep.remove(&2);
        network.run_for(secs(10));
        format!("{:?}", network.log)
    };
    assert_eq!(run(21), run(21));
    assert_ne!(run(21), run(22));
}

#[test]
fn oversized_names_and_payloads_are_refused() {
    let new = |local| Swim::new(local, lan(), 1).err();
    let long = LocalMember { name: "x".repeat(MAX_MEMBER_NAME_BYTES + 1), ..local(0, 1) };
    assert_eq!(
        new(long),
        Some(SwimError::NameTooLong { len: MAX_MEMBER_NAME_BYTES + 1, limit: MAX_MEMBER_NAME_BYTES })
    );
    let large = LocalMember { payload: vec![0; MAX_MEMBER_PAYLOAD_BYTES + 1].into(), ..local(0, 1) };
    assert_eq!(
        new(large),
        Some(SwimError::PayloadTooLarge { len: MAX_MEMBER_PAYLOAD_BYTES + 1, limit: MAX_MEMBER_PAYLOAD_BYTES })
    );
    let fits = LocalMember {
        name: "x".repeat(MAX_MEMBER_NAME_BYTES),
        payload: vec![0; MAX_MEMBER_PAYLOAD_BYTES].into(),
        ..local(0, 1)
    };
    assert_eq!(new(fits), None);
    let mut swim = Swim::new(local(0, 1), lan(), 1).unwrap();
    assert!(swim.set_payload(vec![0; MAX_MEMBER_PAYLOAD_BYTES + 1].into()).is_err());
    assert_eq!(swim.local().payload, "role=0");
    assert_eq!(swim.local().name, name(0));
}

#[test]
fn the_last_member_finds_restarted_members_again() {
    for seed in 0..20 {
        let mut network = Network::met(3, lan(), seed);
        network.asleep.extend([1, 2]);
        network.run_until("alone", secs(10), |network| (1..3).all(|other| network.sees(0, other) == Some(Down)));
        network.run_for(ms(seed * 300));
        for node in [1, 2] {
            network.restart(node, local(node, 2));
            network.announce(node, 0);
        }
        network.run_until("all see the new incarnations", secs(10), |network| network.all_see_all(Alive));
    }
}
