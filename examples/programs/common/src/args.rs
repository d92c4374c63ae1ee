//! Arguments that several programs share, and the kinds of values that they take.

use std::{net::SocketAddr, str::FromStr};

use artillery_core::config::{Congestion, TransportConfig};
use artillery_ddata::ClusterId;
use tracing_subscriber::filter::LevelFilter;

/// Refuses the value of an argument that is planned and not implemented.
pub fn not_yet(_: &str) -> Result<String, String> {
    Err("not yet".to_owned())
}

/// `--log`, as every program has it.
#[derive(Debug, clap::Args)]
pub struct LogArgs {
    /// What is written to standard error: off, error, warn, info, debug or trace
    #[arg(long = "log", value_name = "LEVEL", default_value = "warn", global = true)]
    pub level: LevelFilter,
}

/// Settings of the transport that a long or a lossy link needs changed.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct LinkArgs {
    /// Congestion control of what is sent: cubic within a datacenter, bbr over long links that lose packets; newreno to compare
    #[arg(long, value_name = "NAME", default_value = "cubic", global = true)]
    pub congestion: Congestion,
    /// Bytes that may be in flight on one stream: bandwidth times delay at least; a connection has eight times as many
    #[arg(long, value_name = "BYTES", default_value = "8MiB", global = true)]
    pub stream_window_bytes: Bytes,
}

impl LinkArgs {
    /// The transport settings of a program that listens at `listen`.
    pub fn transport(self, listen: SocketAddr) -> TransportConfig {
        let mut transport = TransportConfig::default();
        (transport.listen, transport.congestion) = (listen, self.congestion);
        transport.stream_window_bytes = u32::try_from(self.stream_window_bytes.0).unwrap_or(u32::MAX);
        transport.connection_window_bytes = transport.stream_window_bytes.saturating_mul(8);
        transport
    }
}

/// A number of bytes: `4096`, `64KiB`, `64MiB`, `1GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub usize);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
        let unit = units.iter().find_map(|&(unit, bits)| Some((text.strip_suffix(unit)?, bits)));
        let (number, bits) = unit.unwrap_or((text, 0));
        let number: usize = number.trim_end().parse().map_err(|_| "a number of bytes, or one with KiB, MiB or GiB")?;
        number.checked_mul(1 << bits).map(Self).ok_or_else(|| "more than this machine can count".to_owned())
    }
}

/// The id of a cluster.
pub fn cluster_id(text: &str) -> Result<ClusterId, String> {
    let id = u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32);
    id.map(ClusterId).ok_or_else(|| "32 hexadecimal digits, as `status` shows them".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        assert_eq!("4096".parse(), Ok(Bytes(4096)));
        assert_eq!("64 MiB".parse(), Ok(Bytes(64 << 20)));
        assert_eq!("1GiB".parse(), Ok(Bytes(1 << 30)));
        for bad in ["", "MiB", "1kb", "-1", "99999999999GiB"] {
            assert!(bad.parse::<Bytes>().is_err(), "{bad}");
        }
    }
}
