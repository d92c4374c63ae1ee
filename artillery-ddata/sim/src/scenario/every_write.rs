//! The run of three nodes with disks that is repeated with a power cut at each of its writes and syncs.

use std::time::Duration;

use artillery_proto::guards::Guards;

use super::{
    SECOND, Setup,
    draw::{common, controlled},
};
use crate::{
    client::{Keys, Mix},
    disk::DiskSetup,
    faults::{Fault, Planned},
    network::Profile,
    rng::{Concern, Rng},
    world::PowerCut,
};

const MILLI: u64 = 1_000_000;
const KIBI: u64 = 1 << 10;

/// Three members write their journals while one restarts with an empty disk, and while an operator reorders them.
pub fn every_write(seed: u64, power_cut: Option<PowerCut>, guards: Guards) -> Setup {
    let mut rng = Rng::new(seed, Concern::Setup);
    let mut setup = common(&mut rng);
    controlled(&mut rng, &mut setup, 3, 3);
    let control = setup.control_mut();
    (control.lease, control.suspect) = (Duration::from_millis(300), Duration::from_millis(150));
    (control.drift, control.whims, control.cut_off, control.lags) = (0, 0, 0, 0);
    setup.keys = Keys { registers: 4, lists: 1, counters: 1, chains: 1 };
    (setup.clients, setup.lanes, setup.pace, setup.favourite) = (8, 1, 4, 0);
    setup.mix = Mix { writes: 700, deletes: 150, swaps: 100, takes: 50, batches: 100, numbered: 700, ..setup.mix };
    (setup.window, setup.backlog, setup.padding) = (1 << 20, 8 << 10, 300);
    setup.profile = Profile { delay: MILLI / 5, jitter: MILLI / 10, room: 16 << 10, nasty: false, uneven: false };
    (setup.heartbeat, setup.resend) = (Duration::from_millis(100), Some(Duration::from_millis(200)));
    (setup.patience, setup.attempt) = ((300 * MILLI, 1000 * MILLI), (50 * MILLI, 200 * MILLI));
    (setup.late_polls, setup.late_turns, setup.batch, setup.wired) = (0, 0, 4, false);
    setup.durable = Some(DiskSetup {
        sync: MILLI,
        fails: 0,
        cuts: 1000,
        wipes: 0,
        segment: 64 * KIBI,
        room: 160 * KIBI,
        reserve: 1 << 20,
        never: 0,
    });
    setup.faults = vec![
        Planned { fault: Fault::Replace(2), start: 600 * MILLI, end: 900 * MILLI },
        Planned { fault: Fault::Order(3), start: 1800 * MILLI, end: 1801 * MILLI },
    ];
    (setup.healed, setup.stop, setup.fewest) = (2 * SECOND, 5 * SECOND / 2, 300);
    (setup.power_cut, setup.guards) = (power_cut, guards);
    setup
}
