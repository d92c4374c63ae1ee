use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::RangeInclusive,
    str::FromStr,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::error::ConfigError;

/// Congestion control (RFC 9002): the sending rate when the network is the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Congestion {
    /// CUBIC (RFC 9438): slows down at each loss, and recovers fast. For datacenters, and for links that lose packets
    /// only when they are full.
    #[default]
    Cubic,
    /// BBR: measures bandwidth and delay, and does not treat a single loss as congestion. For long links that lose some
    /// packets even when they are far from full. This is quinn's experimental implementation; it takes more than its
    /// fair share when it competes with other algorithms.
    Bbr,
    /// NewReno (RFC 9002, section 7): slows down at each loss, and recovers slowly. The simplest, for comparison.
    NewReno,
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
            Self::NewReno => "newreno",
        })
    }
}

impl FromStr for Congestion {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, ConfigError> {
        let all = [Self::Cubic, Self::Bbr, Self::NewReno];
        let problem = || ConfigError { field: "congestion", problem: format!("{name} is none of cubic, bbr, newreno") };
        all.into_iter().find(|one| one.to_string() == name).ok_or_else(problem)
    }
}

/// Settings of an endpoint. The defaults suit nodes within one datacenter and their clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct TransportConfig {
    /// UDP address to listen on (`[::]:0`). `[::]` means all addresses of this machine, of both families, or all IPv4
    /// addresses if the machine has no IPv6. With port 0 the system chooses a port.
    pub listen: SocketAddr,
    /// The address that other nodes dial, if it differs from the one listened on. An unspecified IP (`0.0.0.0`, `::`)
    /// means the source IP that a peer observes, and port 0 the port listened on.
    pub advertise: Option<SocketAddr>,
    /// Size in bytes that is requested from the system for each of the socket's two buffers, at most 1 GiB. The system
    /// may grant less. 0 keeps the system's default.
    pub socket_buffer_bytes: usize,
    /// Maximum bytes that a peer may send on one stream before this side has read them: at least bandwidth × round
    /// trip, and at least 64 KiB. Keep it a fraction of the connection's window, so that a few streams full of large
    /// values leave capacity for urgent ones.
    pub stream_window_bytes: u32,
    /// Maximum bytes that a peer may send on all streams of one connection before this side has read them, at least
    /// [`Self::stream_window_bytes`]. It is also the maximum of unacknowledged bytes that this side sends on one
    /// connection.
    pub connection_window_bytes: u32,
    /// Maximum size in bytes of a frame, header and body together. 64 KiB to 1 GiB. All nodes of a cluster must use the
    /// same value.
    pub max_frame_bytes: usize,
    /// Interval of keep-alive packets on an idle connection.
    pub keep_alive: Duration,
    /// A connection is closed after this time without received packets, or after three of QUIC's own timeouts if that
    /// is longer; the lower value of both sides applies. At least twice [`Self::keep_alive`], at most a day. A
    /// connection dialled by a link is also closed if nothing that it sent was acknowledged for this time (600 ms after
    /// the peer has moved to another address), so round trips must be shorter.
    pub idle_timeout: Duration,
    /// Congestion control for sending. Each side of a connection uses its own setting.
    pub congestion: Congestion,
    /// Largest UDP payload in bytes that path MTU discovery tries, and that is accepted from peers (1,200 to 65,527).
    pub max_udp_payload: u16,
    /// Whether the system splits large sends into packets (GSO).
    pub segmentation_offload: bool,
    /// Number of packets that a peer acknowledges at once (1 to 100). It acknowledges fewer packets after
    /// [`Self::max_ack_delay`]. With QUIC's default of 2, small messages back and forth cost as many acknowledgements
    /// as packets.
    pub packets_per_ack: u32,
    /// Maximum delay of an acknowledgement (1 ms to 25 ms). A sender with a small congestion window, on a new
    /// connection or after losses, may wait this long for it.
    pub max_ack_delay: Duration,
    /// Time limit for the handshake and the hello together.
    pub hello_timeout: Duration,
    /// First pause before a link dials again. It doubles up to [`Self::redial_max`]. Each pause is shortened at random
    /// by up to half.
    pub redial_min: Duration,
    /// Longest pause before a link dials again.
    pub redial_max: Duration,
    /// Maximum number of connections dialled by peers that have not completed their hello.
    pub max_handshakes: u32,
    /// Maximum number of connections dialled by peers, including those that have not completed their hello.
    pub max_connections: u32,
    /// Maximum number of connections accepted from one peer.
    pub max_connections_per_peer: u32,
    /// Maximum number of streams that the dialling side of a connection may have open: of unidirectional and of
    /// bidirectional ones each. The dialled side may have as many unidirectional ones open, but at most 64.
    pub max_streams_per_connection: u32,
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self {
            listen: (Ipv6Addr::UNSPECIFIED, 0).into(),
            advertise: None,
            socket_buffer_bytes: 4 << 20,
            stream_window_bytes: 8 << 20,
            connection_window_bytes: 64 << 20,
            max_frame_bytes: (64 << 20) + (512 << 10),
            keep_alive: Duration::from_millis(500),
            idle_timeout: Duration::from_secs(3),
            congestion: Congestion::default(),
            max_udp_payload: 6500,
            segmentation_offload: true,
            packets_per_ack: 10,
            max_ack_delay: Duration::from_millis(5),
            hello_timeout: Duration::from_secs(3),
            redial_min: Duration::from_millis(20),
            redial_max: Duration::from_secs(1),
            max_handshakes: 256,
            max_connections: 4096,
            max_connections_per_peer: 64,
            max_streams_per_connection: 1024,
        }
    }
}

impl TransportConfig {
    /// For a process that communicates only with others on this machine: it listens at `127.0.0.1`.
    pub fn loopback() -> Self {
        Self { listen: (Ipv4Addr::LOCALHOST, 0).into(), ..Self::default() }
    }

    /// Checks every setting.
    ///
    /// # Errors
    /// All invalid settings, each with the field's name.
    pub fn validate(&self) -> Result<(), Vec<ConfigError>> {
        let mut problems = Vec::new();
        let mut check = |fine: bool, field: &'static str, problem: &str| {
            if !fine {
                problems.push(ConfigError { field, problem: problem.to_owned() });
            }
        };
        let not_zero = "must not be zero";
        check(
            (MIN_FRAME_LIMIT_BYTES..=MAX_FRAME_LIMIT_BYTES).contains(&self.max_frame_bytes),
            "max_frame_bytes",
            "must be between 64 KiB and 1 GiB",
        );
        check(self.stream_window_bytes >= MIN_WINDOW_BYTES, "stream_window_bytes", "must be at least 64 KiB");
        check(
            self.connection_window_bytes >= self.stream_window_bytes,
            "connection_window_bytes",
            "must not be below stream_window_bytes",
        );
        check(self.socket_buffer_bytes <= MAX_FRAME_LIMIT_BYTES, "socket_buffer_bytes", "must be at most 1 GiB");
        check((1200..=65527).contains(&self.max_udp_payload), "max_udp_payload", "must be between 1200 and 65527");
        check((1..=100).contains(&self.packets_per_ack), "packets_per_ack", "must be between 1 and 100");
        check(ACK_DELAY_RANGE.contains(&self.max_ack_delay), "max_ack_delay", "must be between 1 ms and 25 ms");
        check(!self.keep_alive.is_zero(), "keep_alive", not_zero);
        check(self.idle_timeout >= self.keep_alive * 2, "idle_timeout", "must be at least twice keep_alive");
        check(self.idle_timeout <= DAY, "idle_timeout", "must be at most a day");
        check(!self.hello_timeout.is_zero(), "hello_timeout", not_zero);
        check(!self.redial_min.is_zero(), "redial_min", not_zero);
        check(self.redial_max >= self.redial_min, "redial_max", "must not be below redial_min");
        check(self.redial_max <= DAY, "redial_max", "must be at most a day");
        check(self.max_handshakes > 0, "max_handshakes", not_zero);
        check(self.max_connections > 0, "max_connections", not_zero);
        check(self.max_connections_per_peer > 0, "max_connections_per_peer", not_zero);
        check(self.max_streams_per_connection > 0, "max_streams_per_connection", not_zero);
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}

const MIN_WINDOW_BYTES: u32 = 64 << 10;
const MIN_FRAME_LIMIT_BYTES: usize = 64 << 10;
const MAX_FRAME_LIMIT_BYTES: usize = 1 << 30;
/// From the resolution of quinn's timers to the longest delay that quinn accepts at any round-trip time.
const ACK_DELAY_RANGE: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_millis(25);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid() {
        assert_eq!(TransportConfig::default().validate(), Ok(()));
    }

    #[test]
    fn every_problem_is_listed() {
        let config = TransportConfig {
            max_udp_payload: 1000,
            packets_per_ack: 0,
            max_ack_delay: Duration::from_millis(26),
            keep_alive: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(6),
            max_streams_per_connection: 0,
            ..TransportConfig::default()
        };
        let fields: Vec<_> = config.validate().unwrap_err().iter().map(|problem| problem.field).collect();
        assert_eq!(
            fields,
            ["max_udp_payload", "packets_per_ack", "max_ack_delay", "idle_timeout", "max_streams_per_connection"]
        );
    }

    #[test]
    fn congestion_control_has_names() {
        for one in [Congestion::Cubic, Congestion::Bbr, Congestion::NewReno] {
            assert_eq!(one.to_string().parse(), Ok(one));
        }
        assert_eq!("vegas".parse::<Congestion>().unwrap_err().field, "congestion");
    }
}
