use std::time::Duration;

use crate::error::ConfigError;

/// How often members are probed, and how long they may be silent. [`SwimSettings::validate`] checks the values.
///
/// All members of a cluster should use the same settings.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SwimSettings {
    /// One member is probed per period, and suspected if neither it nor a helper has answered by the end of the period.
    pub probe_period: Duration,
    /// After this time without an answer, other members are asked to probe too. At most half of `probe_period`.
    pub probe_rtt: Duration,
    /// A suspected member that does not refute the suspicion within this time is down.
    pub suspect_to_down: Duration,
    /// Maximum number of members that are asked to help with a probe. When this node refutes a suspicion or changes its
    /// identity, it gossips this at once to as many members.
    pub indirect_probes: usize,
    /// How often updates are gossiped in separate packets. Probes carry updates too.
    pub gossip_period: Duration,
    /// Maximum number of members that each gossip round reaches.
    pub gossip_fan_out: usize,
    /// Maximum number of packets in which each member forwards an update. A newer update about the same member replaces
    /// it.
    pub max_transmissions: u8,
    /// How often one member is asked for the members that it knows.
    pub refresh_period: Duration,
    /// How often members that are down are asked whether they are back. This heals partitions.
    pub heal_period: Duration,
    /// Maximum number of members that are down and are asked each time.
    pub heal_fan_out: usize,
    /// A member that is down or has left is forgotten after this time. At least twice `suspect_to_down`.
    pub forget_after: Duration,
    /// Largest membership packet in bytes (1,000 to 65,000). Larger ones that other members send are rejected.
    pub max_packet: usize,
}

impl SwimSettings {
    /// For one site. In small clusters a silent member is suspected within 500 ms.
    pub fn lan() -> Self {
        Self {
            probe_period: Duration::from_millis(120),
            probe_rtt: Duration::from_millis(50),
            suspect_to_down: Duration::from_secs(2),
            indirect_probes: 3,
            gossip_period: Duration::from_millis(100),
            gossip_fan_out: 3,
            max_transmissions: 10,
            refresh_period: Duration::from_secs(5),
            heal_period: Duration::from_secs(2),
            heal_fan_out: 2,
            forget_after: Duration::from_secs(24 * 3600),
            // Fits a QUIC datagram on any path, before the path's real size is known.
            max_packet: 1100,
        }
    }

    /// For members in several sites, with round trips of up to some hundred milliseconds.
    pub fn wan() -> Self {
        Self {
            probe_period: Duration::from_millis(1500),
            probe_rtt: Duration::from_millis(500),
            suspect_to_down: Duration::from_secs(8),
            gossip_period: Duration::from_millis(400),
            gossip_fan_out: 4,
            refresh_period: Duration::from_secs(15),
            heal_period: Duration::from_secs(5),
            ..Self::lan()
        }
    }

    /// For members on one machine. Probes are timed as in [`SwimSettings::lan`], since a busy processor delays answers
    /// there too. Members find each other again faster.
    pub fn loopback() -> Self {
        Self {
            gossip_period: Duration::from_millis(50),
            refresh_period: Duration::from_secs(2),
            heal_period: Duration::from_millis(500),
            ..Self::lan()
        }
    }

    /// Adjusts the timing of probes so that a silent member of a small cluster is suspected within `time`.
    pub fn suspecting_within(self, time: Duration) -> Self {
        let probe_period = time * 24 / 100;
        Self { probe_period, probe_rtt: probe_period * 5 / 12, ..self }
    }

    /// Checks that the settings are consistent.
    ///
    /// # Errors
    /// The first invalid setting, and why it is invalid.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let zero = [
            ("probe_period", self.probe_period.is_zero()),
            ("probe_rtt", self.probe_rtt.is_zero()),
            ("suspect_to_down", self.suspect_to_down.is_zero()),
            ("indirect_probes", self.indirect_probes == 0),
            ("gossip_period", self.gossip_period.is_zero()),
            ("gossip_fan_out", self.gossip_fan_out == 0),
            ("max_transmissions", self.max_transmissions == 0),
            ("refresh_period", self.refresh_period.is_zero()),
            ("heal_period", self.heal_period.is_zero()),
            ("heal_fan_out", self.heal_fan_out == 0),
        ];
        if let Some((field, _)) = zero.into_iter().find(|(_, zero)| *zero) {
            return Err(ConfigError { field, problem: "must not be zero".into() });
        }
        if self.probe_rtt * 2 > self.probe_period {
            return Err(ConfigError { field: "probe_rtt", problem: "must be at most half of `probe_period`".into() });
        }
        if self.forget_after < self.suspect_to_down * 2 {
            return Err(ConfigError {
                field: "forget_after",
                problem: "must be at least twice `suspect_to_down`".into(),
            });
        }
        if !(1000..=65_000).contains(&self.max_packet) {
            return Err(ConfigError { field: "max_packet", problem: "must be from 1000 to 65000 bytes".into() });
        }
        Ok(())
    }
}

impl Default for SwimSettings {
    fn default() -> Self {
        Self::lan()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_valid() {
        for settings in [SwimSettings::lan(), SwimSettings::wan(), SwimSettings::loopback(), SwimSettings::default()] {
            assert_eq!(settings.validate(), Ok(()));
        }
        assert_eq!(SwimSettings::lan().suspecting_within(Duration::from_millis(500)), SwimSettings::lan());
        assert_eq!(SwimSettings::lan().suspecting_within(Duration::from_millis(50)).validate(), Ok(()));
    }

    #[test]
    fn a_bad_setting_is_named() {
        let bad = SwimSettings { probe_rtt: Duration::from_millis(61), ..SwimSettings::lan() };
        assert_eq!(bad.validate().unwrap_err().field, "probe_rtt");
        let bad = SwimSettings { max_packet: 100, ..SwimSettings::lan() };
        assert_eq!(bad.validate().unwrap_err().field, "max_packet");
        let bad = SwimSettings { heal_fan_out: 0, ..SwimSettings::lan() };
        assert_eq!(bad.validate().unwrap_err().to_string(), "heal_fan_out: must not be zero");
    }
}
