use std::num::{NonZeroU8, NonZeroUsize};

use foca::{Config, PeriodicParams};

use super::wire::ENVELOPE_BYTES;
use crate::config::SwimSettings;

/// foca's part of the settings. [`Swim`](super::Swim) implements the rest, including announcements to members that are
/// down: foca would stop announcing once every member is down.
pub(super) fn foca_config(settings: &SwimSettings) -> Config {
    let at_least_one = |count: usize| NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN);
    let every = |frequency, members| PeriodicParams { frequency, num_members: at_least_one(members) };
    Config {
        probe_period: settings.probe_period,
        probe_rtt: settings.probe_rtt,
        num_indirect_probes: at_least_one(settings.indirect_probes),
        max_transmissions: NonZeroU8::new(settings.max_transmissions).unwrap_or(NonZeroU8::MIN),
        suspect_to_down_after: settings.suspect_to_down,
        remove_down_after: Some(settings.forget_after),
        max_packet_size: at_least_one(settings.max_packet - ENVELOPE_BYTES),
        notify_down_members: true,
        periodic_announce: Some(every(settings.refresh_period, 1)),
        periodic_announce_to_down_members: None,
        periodic_gossip: Some(every(settings.gossip_period, settings.gossip_fan_out)),
    }
}
