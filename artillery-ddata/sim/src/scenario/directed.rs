//! Worlds in which an otherwise rare event happens all the time.

use std::time::Duration;

use super::{
    FoundingSetup, Setup,
    draw::{controlled, one_key, unrest},
};
use crate::{client::Mix, rng::Rng};

const MILLI: u64 = 1_000_000;

/// One key, short leases and short delays.
fn brisk(rng: &mut Rng, setup: &mut Setup, members: usize, founders: usize, replicas: u64) {
    setup.members = members;
    controlled(rng, setup, founders, replicas);
    setup.keys = one_key();
    setup.clients = 10;
    setup.mix = Mix { writes: 350, eventual: 50, bounded: 0, through_chain: 50, cuts: 0, scans: 0, ..setup.mix };
    setup.profile.uneven = false;
    setup.profile.delay = setup.profile.delay.min(MILLI);
    setup.profile.jitter = setup.profile.delay;
    setup.pace = 2;
    let control = setup.control_mut();
    control.lease = Duration::from_millis(300);
    control.suspect = Duration::from_millis(150);
}

pub(super) fn whispers(rng: &mut Rng, setup: &mut Setup) {
    brisk(rng, setup, 5, 5, 4);
}

pub(super) fn halves(rng: &mut Rng, setup: &mut Setup) {
    let members = rng.between(5, 6) as usize;
    brisk(rng, setup, members, 5, 3);
}

pub(super) fn stalls(rng: &mut Rng, setup: &mut Setup) {
    unrest(rng, setup);
    setup.stalls = 300;
    setup.clients = 20;
    setup.pace = 3;
    // Attempts last longer than any stall, so that clients don't retry stalled reads.
    setup.attempt = (3000 * MILLI, 4000 * MILLI);
    setup.patience = (3500 * MILLI, 5000 * MILLI);
}

pub(super) fn last_words(rng: &mut Rng, setup: &mut Setup) {
    let members = rng.between(3, 4) as usize;
    brisk(rng, setup, members, 3, 2);
    setup.mix.through_chain = 500;
    let control = setup.control_mut();
    (control.cut_off, control.last_words) = (0, 300);
}

/// Many keys, so that a snapshot has many parts.
fn broad(rng: &mut Rng, setup: &mut Setup, registers: u32) {
    setup.members = rng.between(4, 5) as usize;
    controlled(rng, setup, 3, 3);
    setup.keys = crate::client::Keys { registers, lists: 0, counters: 0, chains: 1 };
    setup.clients = 12;
    setup.mix = Mix { writes: 600, batches: 0, cuts: 0, scans: 0, eventual: 50, bounded: 50, ..setup.mix };
    setup.profile.uneven = false;
    setup.profile.delay = rng.between(500_000, 2 * MILLI);
    setup.profile.jitter = setup.profile.delay / 2;
    setup.chunk = 64 << 10;
    setup.padding = 600;
    setup.backlog = 8 << 10;
}

pub(super) fn disturbed(rng: &mut Rng, setup: &mut Setup) {
    broad(rng, setup, 60);
    setup.profile.room = 400;
    setup.pace = 2;
    setup.control_mut().disturbed = 700;
}

pub(super) fn race(rng: &mut Rng, setup: &mut Setup) {
    broad(rng, setup, 300);
    setup.profile.room = 256;
    setup.pace = 4;
}

pub(super) fn overlaps(rng: &mut Rng, setup: &mut Setup) {
    broad(rng, setup, 40);
    setup.profile.room = 600;
    setup.pace = 4;
    (setup.backlog, setup.joiner_buffer) = (32 << 10, 2 << 10);
    let mix = Mix { writes: 400, deletes: 200, takes: 200, numbered: 1000, duplicates: 300, ..setup.mix };
    setup.mix = Mix { eventual: 700, cuts: 300, sessions: 500, ..mix };
}

/// Records so expensive that processing the snapshot parts in flight takes longer than a node may be silent.
pub(super) fn busy(rng: &mut Rng, setup: &mut Setup) {
    broad(rng, setup, 500);
    // About 60 parts of two records each are in flight. A snapshot has several times as many.
    setup.profile.room = 4 << 10;
    setup.chunk = 1 << 10;
    // Large enough for the updates written while a busy joiner resyncs.
    setup.backlog = 64 << 10;
    setup.batch = 128;
    setup.record_cost = rng.between(2 * MILLI, 5 * MILLI / 2);
    setup.turn = Duration::from_millis(rng.between(1, 5));
    let control = setup.control_mut();
    control.lease = Duration::from_millis(300);
    control.suspect = Duration::from_millis(150);
}

pub(super) fn crowd(rng: &mut Rng, setup: &mut Setup) {
    let (expect, members) = rng.pick(&[(2, 3), (3, 5), (3, 5), (4, 7)]);
    setup.members = members;
    setup.founding = Some(FoundingSetup { expect, most: expect, replicas: u32::from(expect) });
}

pub(super) fn unequal(rng: &mut Rng, setup: &mut Setup) {
    // Few nodes, because clients choose nodes at random and most nodes may be spares.
    let nodes = rng.pick(&[1, 2, 3, 4, 4, 4]);
    setup.members = nodes as usize;
    let any = rng.between(1, nodes);
    let most = rng.pick(&[any, nodes, nodes]);
    let any = rng.between(1, most);
    let expect = rng.pick(&[1, most, any]);
    let founding = FoundingSetup { expect: expect as u16, most: most as u16, replicas: nodes as u32 };
    setup.founding = Some(founding);
}

pub(super) fn forks(rng: &mut Rng, setup: &mut Setup) {
    let members = rng.between(3, 4) as usize;
    brisk(rng, setup, members, 3, 3);
    // Enough keys that the other members rarely change a key that the lost head changes.
    setup.keys.registers = 150;
    setup.backlog = 64 << 20;
}
