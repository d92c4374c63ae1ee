//! The setups that are drawn from the seed.

use std::time::Duration;

use artillery_proto::{Mode, guards::Guards};

use super::{ControlSetup, FoundingSetup, HEALED, LockSetup, OPERATIONS, STOP, Setup};
use crate::{
    client::{Keys, Mix},
    disk::DiskSetup,
    network::Profile,
    node::QUICK,
    rng::Rng,
};

const MICRO: u64 = 1_000;
const MILLI: u64 = 1_000_000;

pub(super) fn common(rng: &mut Rng) -> Setup {
    // Within a rack, a city, or a continent.
    let delay = match rng.below(3) {
        0 => rng.between(50, 300) * MICRO,
        1 => rng.between(300, 2000) * MICRO,
        _ => rng.between(2, 12) * MILLI,
    };
    let uneven = rng.chance(600);
    let delay = if uneven { delay / 4 } else { delay };
    let rooms: &[usize] = if delay < MILLI { &[200, 1000, 16 << 10, 1 << 20] } else { &[2000, 16 << 10, 1 << 20] };
    let mut setup = Setup {
        members: 3,
        chains: 1,
        // With long delays more clients are needed for the same number of operations.
        clients: (rng.between(4, 9) + delay / (2 * MILLI)) as usize,
        lanes: rng.pick(&[1, 1, 1, 3]),
        keys: Keys {
            registers: rng.between(1, 6) as u32,
            lists: rng.below(2) as u32,
            counters: rng.below(2) as u32,
            chains: 1,
        },
        mode: Mode::Craq,
        mix: Mix::draw(rng),
        window: rng.pick(&[4 << 10, 64 << 10, 1 << 20]),
        backlog: rng.pick(&[16 << 10, 1 << 20, 64 << 20]),
        joiner_buffer: 32 << 20,
        session_bytes: rng.pick(&[16 << 20, 16 << 20, 4 << 10]),
        answer: 256 << 10,
        watch_steps: 16 << 10,
        join: 4 << 20,
        snapshot_age: Duration::from_millis(rng.between(200, 2000)),
        snapshot_bytes: rng.pick(&[4 << 10, 1 << 20]),
        heartbeat: Duration::from_millis(rng.between(20, 150)),
        resend: Some(Duration::from_millis(rng.between(50, 400))),
        profile: Profile {
            delay,
            jitter: delay * rng.between(0, 3) / 2,
            room: rng.pick(rooms),
            nasty: rng.chance(500),
            uneven,
        },
        chunk: rng.pick(&[64 << 10, 64 << 10, 100]),
        padding: rng.pick(&[0, 8, 300]),
        patience: (300 * MILLI, rng.between(500, 2500) * MILLI),
        attempt: (40 * MILLI, rng.between(100, 600) * MILLI),
        retries: u32::MAX,
        bursts: None,
        pace: 1,
        favourite: 500,
        floors: true,
        late_polls: rng.pick(&[0, 100, 500, 1000]),
        late_turns: 50,
        cost: QUICK,
        record_cost: 0,
        turn: Duration::MAX,
        longest_ttl: None,
        locks: None,
        gray: None,
        excused: true,
        peaceful: false,
        batch: rng.pick(&[1, 4, 64]),
        leases: false,
        stalls: 0,
        healed: HEALED,
        stop: STOP,
        fewest: OPERATIONS,
        most: u64::MAX,
        watchers: 0,
        followers: 0,
        wired: rng.chance(300),
        founding: None,
        control: None,
        durable: None,
        power_cut: None,
        faults: Vec::new(),
        closes: false,
        crash: None,
        boundary: None,
        audited: false,
        guards: Guards::ALL,
    };
    // Small pieces over a link with little capacity could take up the whole run.
    if setup.profile.room < 16 << 10 {
        setup.chunk = 64 << 10;
    }
    setup
}

/// An append occupies the window with its whole list until it commits. With long delays and a small window, most writes
/// would get `Busy` until their clients gave up, since these heads have no queue in front of the window.
pub(super) fn hold_lists(setup: &mut Setup) {
    if setup.keys.lists > 0 && setup.profile.delay >= 2 * MILLI {
        setup.window = setup.window.max(16 << 10);
    }
}

pub(super) fn one_key() -> Keys {
    Keys { registers: 1, lists: 0, counters: 0, chains: 1 }
}

pub(super) fn retries(rng: &mut Rng, setup: &mut Setup) {
    setup.keys = Keys { registers: 2, lists: 1, counters: 1, chains: 1 };
    setup.clients += rng.between(4, 8) as usize;
    setup.lanes = rng.between(1, 8) as usize;
    setup.attempt = (5 * MILLI, 60 * MILLI + 12 * setup.profile.delay);
    setup.mix = Mix {
        writes: 650,
        deletes: 300,
        swaps: 400,
        numbered: 1000,
        duplicates: 300,
        settled: rng.between(0, 200) as u32,
        ..setup.mix
    };
    // The records of all requests in flight fit into half of the table.
    setup.session_bytes = setup.session_bytes.max(16 << 10);
    // An append occupies the window with its whole list.
    setup.window = rng.pick(&[16 << 10, 64 << 10, 1 << 20]);
}

pub(super) fn evictions(rng: &mut Rng, setup: &mut Setup) {
    setup.keys = Keys { registers: 2, lists: 1, counters: 1, chains: 1 };
    setup.clients += rng.between(4, 8) as usize;
    setup.lanes = 1;
    // Space for the sessions of at least two fifths of the clients, with one record each. With less, each session is
    // evicted before its client can use it, and clients do nothing but open sessions.
    setup.session_bytes = (rng.between(900, 3000) as usize).max(setup.clients * 256 * 2 / 5);
    // For the same reason clients don't retry before an answer can have arrived: each attempt to open a session opens
    // another one.
    let far = 12 * setup.profile.delay;
    setup.attempt = (setup.attempt.0.max(far), setup.attempt.1.max(2 * far));
    setup.patience = (setup.patience.0.max(4 * far), setup.patience.1.max(8 * far));
    setup.mix = Mix { writes: 650, numbered: 1000, duplicates: 400, ..setup.mix };
}

pub(super) fn batches(rng: &mut Rng, setup: &mut Setup) {
    setup.keys = Keys { registers: 10, lists: rng.below(2) as u32, counters: rng.below(2) as u32, chains: 1 };
    setup.mix = Mix {
        writes: rng.between(200, 500) as u32,
        batches: 300,
        whole_batches: rng.chance(500),
        cuts: 600,
        scans: 250,
        eventual: 100,
        ..setup.mix
    };
}

pub(super) fn scripts(rng: &mut Rng, setup: &mut Setup) {
    setup.keys = Keys { registers: 3, lists: 1, counters: 1, chains: 1 };
    setup.clients += rng.between(0, 4) as usize;
    setup.attempt = (5 * MILLI, 60 * MILLI + 12 * setup.profile.delay);
    setup.mix = Mix {
        writes: rng.between(400, 700) as u32,
        scripts: rng.between(300, 800) as u32,
        numbered: rng.pick(&[500, 1000]),
        duplicates: 200,
        cuts: 300,
        ..setup.mix
    };
    setup.session_bytes = setup.session_bytes.max(16 << 10);
    setup.window = rng.pick(&[16 << 10, 64 << 10, 1 << 20]);
}

pub(super) fn walks(rng: &mut Rng, setup: &mut Setup) {
    setup.keys = Keys { registers: 12, lists: rng.below(2) as u32, counters: rng.below(2) as u32, chains: 1 };
    setup.mix = Mix {
        writes: rng.between(200, 400) as u32,
        deletes: 400,
        cuts: 0,
        scans: 0,
        walks: 800,
        eventual: 100,
        ..setup.mix
    };
}

pub(super) fn readers(setup: &mut Setup) {
    setup.keys = one_key();
    setup.clients = 65;
    setup.lanes = 1;
    setup.mix = Mix { writers: 1, eventual: 0, bounded: 0, through_chain: 0, cuts: 0, scans: 0, ..setup.mix };
    // All reads go to the same node, which changes over time.
    setup.favourite = 1000;
    setup.bursts = Some(30 * setup.profile.delay);
}

pub(super) fn large(rng: &mut Rng, setup: &mut Setup) {
    setup.members = rng.between(2, 4) as usize;
    setup.chains = rng.between(1, 2) as usize;
    setup.chunk = rng.between(10, 60) as usize;
    setup.padding = rng.between(200, 600);
    // Each append transfers the whole list, which would never complete.
    setup.keys.lists = 0;
    // Capacity for a few pieces, or more with longer delays.
    let far = 1 + setup.profile.delay / MILLI;
    setup.profile.room = rng.between(4, 16) as usize * far as usize * (64 + setup.chunk);
}

pub(super) fn watches(rng: &mut Rng, setup: &mut Setup) {
    setup.watchers = rng.between(3, 8) as usize;
    setup.chains = rng.between(1, 2) as usize;
    setup.keys.registers = rng.between(3, 6) as u32;
    setup.mix = Mix { writes: rng.between(400, 700) as u32, batches: 300, ..setup.mix };
    // With a small backlog, a watcher that was cut off temporarily falls behind.
    setup.backlog = rng.pick(&[4 << 10, 64 << 10, 1 << 20]);
    // Some answers are so small that updates are shown in parts.
    setup.answer = rng.pick(&[700, 1 << 10, 4 << 10, 256 << 10]);
    setup.watch_steps = rng.pick(&[20, 300, 16 << 10]);
}

pub(super) fn founded(rng: &mut Rng, setup: &mut Setup) {
    let expect = rng.between(2, 5);
    setup.members = (expect + rng.below(2)) as usize;
    setup.chains = rng.between(1, 3) as usize;
    let (expects, replicas) = (expect as u16, rng.between(2, expect) as u32);
    setup.founding = Some(FoundingSetup { expect: expects, most: expects, replicas });
}

pub(super) fn mixed(rng: &mut Rng, setup: &mut Setup) {
    setup.members = rng.between(2, 5) as usize;
    setup.chains = rng.between(1, setup.members.min(3) as u64) as usize;
    setup.leases = rng.chance(300);
    if rng.chance(200) {
        setup.mode = Mode::Classic;
    }
    if rng.chance(300) {
        setup.window = rng.between(300, 4000) as usize;
    }
    setup.watchers = rng.below(3) as usize;
    setup.answer = rng.pick(&[1 << 10, 4 << 10, 256 << 10]);
    // Some heads concatenate appended values in many steps.
    setup.join = rng.pick(&[40, 300, 4 << 20]);
}

/// Three to seven nodes. Each chain has up to three members, and the other nodes are spares.
pub(super) fn moving(rng: &mut Rng, setup: &mut Setup) {
    let founders = rng.between(3, 5) as usize;
    setup.members = (founders + rng.below(3) as usize).min(7);
    controlled(rng, setup, founders, 3);
    setup.backlog = rng.pick(&[1 << 20, 64 << 20]);
}

pub(super) fn controlled(rng: &mut Rng, setup: &mut Setup, founders: usize, replicas: u64) {
    // Answers to renewals must arrive before leases expire, or nothing is ever served.
    if setup.profile.delay > 2 * MILLI {
        setup.profile.delay = 2 * MILLI;
        setup.profile.jitter = 2 * MILLI;
    }
    let (lease, suspect) = rng.pick(&[(1000, 500), (300, 150)]);
    setup.control = Some(ControlSetup {
        founders,
        replicas: replicas as u32,
        lease: Duration::from_millis(lease),
        suspect: Duration::from_millis(suspect),
        slow: Duration::from_secs(2),
        // Two clocks differ by at most 1 %.
        drift: 4_900,
        whims: 2,
        cut_off: 100,
        last_words: 0,
        disturbed: 0,
        lags: 10,
        rolls: false,
        founds: false,
        meets: false,
        loses: false,
        accepts: false,
        unnamed: 0,
    });
    setup.window = setup.window.max(16 << 10);
    setup.session_bytes = 16 << 20;
    setup.patience = (1000 * MILLI, 4000 * MILLI);
}

pub(super) fn sole(rng: &mut Rng, setup: &mut Setup) {
    setup.members = rng.between(3, 4) as usize;
    let founders = rng.between(1, 3) as usize;
    let replicas = rng.between(1, 2);
    controlled(rng, setup, founders, replicas);
    setup.backlog = rng.pick(&[1 << 20, 64 << 20]);
    setup.mix.through_chain = 300;
    setup.control_mut().cut_off = 700;
}

pub(super) fn clocks(rng: &mut Rng, setup: &mut Setup) {
    unrest(rng, setup);
    setup.profile.delay = setup.profile.delay.min(300_000);
    setup.profile.jitter = setup.profile.delay;
    let control = setup.control_mut();
    control.drift = 49_000;
    control.whims = 2;
}

pub(super) fn unrest(rng: &mut Rng, setup: &mut Setup) {
    moving(rng, setup);
    setup.keys = one_key();
    setup.profile.delay = setup.profile.delay.min(rng.pick(&[100_000, 1_000_000]));
    setup.profile.jitter = setup.profile.delay;
    setup.profile.uneven = false;
    setup.clients = 10;
    setup.mix = Mix { writes: 450, eventual: 50, bounded: 50, cuts: 0, scans: 0, ..setup.mix };
    setup.pace = 5;
    let control = setup.control_mut();
    control.whims = rng.pick(&[2, 20]);
    control.lease = Duration::from_millis(300);
    control.suspect = Duration::from_millis(150);
}

pub(super) fn lags(rng: &mut Rng, setup: &mut Setup) {
    unrest(rng, setup);
    setup.chains = rng.between(2, 3) as usize;
    setup.keys.registers = setup.chains as u32;
    let control = setup.control_mut();
    control.slow = Duration::from_millis(500);
    control.lags = 200;
    control.whims = 2;
}

pub(super) fn resync(rng: &mut Rng, setup: &mut Setup) {
    moving(rng, setup);
    setup.keys.registers = rng.between(3, 12) as u32;
    setup.mix.deletes = 300;
    // Enough for a batch of all registers.
    setup.backlog = rng.pick(&[16 << 10, 48 << 10]);
    setup.padding = rng.pick(&[0, 300, 600]);
}

/// Adds disks to the nodes, and a control half if the cluster has none.
pub(super) fn disks(rng: &mut Rng, setup: &mut Setup) {
    if let (Some(FoundingSetup { expect, replicas, .. }), None) = (setup.founding, setup.control) {
        controlled(rng, setup, usize::from(expect), u64::from(replicas));
    }
    let never = rng.pick(&[0, 0, 0, 500, 1000]);
    // Without syncs, some seeds have no power cuts: an outage that only kills processes must lose nothing.
    let cuts = if never > 0 { [0, 300, 1000] } else { [300, 700, 1000] };
    setup.durable = Some(DiskSetup {
        sync: rng.pick(&[100 * MICRO, MILLI, 5 * MILLI]),
        fails: rng.pick(&[0, 0, 2]),
        cuts: rng.pick(&cuts),
        wipes: rng.pick(&[0, 200, 500]),
        segment: rng.pick(&[32 << 10, 256 << 10, 1 << 20]),
        room: rng.pick(&[32 << 10, 256 << 10, 1 << 20]),
        reserve: 1 << 20,
        never,
    });
}

pub(super) fn power(rng: &mut Rng, setup: &mut Setup) {
    moving(rng, setup);
    setup.chains = rng.between(1, 3) as usize;
    setup.backlog = rng.pick(&[16 << 10, 64 << 10, 1 << 20]);
    setup.mix.numbered = rng.pick(&[500, 1000]);
    disks(rng, setup);
}

/// Nodes with disks, most of which don't serve, so that the log outlives all serving members.
pub(super) fn losses(rng: &mut Rng, setup: &mut Setup) {
    setup.members = rng.between(5, 6) as usize;
    controlled(rng, setup, 5, 2);
    setup.backlog = rng.pick(&[16 << 10, 64 << 10, 1 << 20]);
    setup.mix.numbered = rng.pick(&[500, 1000]);
    setup.mix.sessions = 300;
    disks(rng, setup);
    if let Some(durable) = &mut setup.durable {
        // The effects of such a loss on unsynced writes are not modelled.
        (durable.wipes, durable.fails, durable.never) = (0, 0, 0);
    }
    setup.control_mut().accepts = true;
}

pub(super) fn addresses(rng: &mut Rng, setup: &mut Setup) {
    moving(rng, setup);
    setup.chains = rng.between(1, 2) as usize;
    let control = setup.control_mut();
    control.slow = Duration::from_secs(1);
    control.lease = Duration::from_millis(300);
    control.suspect = Duration::from_millis(150);
}

/// Three or four founders, and one to three nodes without names in a crash loop.
pub(super) fn young(rng: &mut Rng, setup: &mut Setup) {
    let (founders, unnamed) = (rng.between(3, 4) as usize, rng.between(1, 3) as usize);
    setup.members = founders + unnamed;
    controlled(rng, setup, founders, 3);
    let control = setup.control_mut();
    control.unnamed = unnamed;
    // The defaults. With shorter times, the leader would notice the end of each incarnation before the next one starts.
    (control.lease, control.suspect) = (Duration::from_millis(1000), Duration::from_millis(500));
}

pub(super) fn turmoil(rng: &mut Rng, setup: &mut Setup) {
    moving(rng, setup);
    setup.chains = rng.between(1, 2) as usize;
    setup.backlog = rng.pick(&[16 << 10, 64 << 10, 1 << 20]);
    setup.mix.numbered = 1000;
}

/// Keys with times to live, under power failures, orders and all other faults that change a configuration.
pub(super) fn expiry(rng: &mut Rng, setup: &mut Setup) {
    power(rng, setup);
    setup.chains = rng.between(1, 2) as usize;
    setup.longest_ttl = Some(rng.pick(&[1500, 5000]));
    setup.mix = Mix { numbered: 1000, cuts: 0, scans: 0, ..setup.mix };
    setup.control_mut().drift = rng.pick(&[4_900, 49_000]);
    if let Some(durable) = &mut setup.durable {
        // Without syncs a power failure may lose acknowledged writes, which ends a run.
        durable.never = 0;
    }
}

/// Locks with short times to live, and copies. The history is short, and answers are small, so that copies fall behind
/// and are read in many pages.
pub(super) fn locks(rng: &mut Rng, setup: &mut Setup) {
    moving(rng, setup);
    setup.chains = rng.between(1, 2) as usize;
    setup.keys.registers = rng.between(4, 12) as u32;
    setup.backlog = rng.pick(&[16 << 10, 16 << 10, 64 << 10]);
    setup.answer = rng.pick(&[700, 2 << 10, 256 << 10]);
    setup.watch_steps = rng.pick(&[20, 300, 16 << 10]);
    setup.mix = Mix { writes: rng.between(400, 700) as u32, deletes: 300, cuts: 0, scans: 0, ..setup.mix };
    setup.control_mut().drift = rng.pick(&[4_900, 49_000]);
    setup.locks = Some(LockSetup {
        processes: rng.between(4, 6) as usize,
        names: rng.pick(&[1, 1, 2]),
        longest_ttl: 3000,
        drift_ppm: setup.control_mut().drift_ppm(),
    });
    setup.followers = rng.between(2, 3) as usize;
}
