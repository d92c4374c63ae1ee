//! Arguments that several programs share, and the types of their values.

use std::{net::SocketAddr, str::FromStr, time::Duration};

use artillery_core::config::{Congestion, TransportConfig};
use artillery_ddata::ClusterId;
use tracing_subscriber::filter::LevelFilter;

/// Parser for an argument that is planned but not implemented: refuses every value.
pub fn not_yet(_: &str) -> Result<String, String> {
    Err("not yet".to_owned())
}

/// The flag `--log`, which every program has.
#[derive(Debug, clap::Args)]
pub struct LogArgs {
    /// Minimum level of the log on standard error: off, error, warn, info, debug or trace
    #[arg(long = "log", value_name = "LEVEL", default_value = "warn", global = true)]
    pub level: LevelFilter,
}

/// Settings of the transport for long or lossy links.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct LinkArgs {
    /// Congestion control: cubic within a datacenter, bbr over long links that lose packets, newreno for comparison
    #[arg(long, value_name = "NAME", default_value = "cubic", global = true)]
    pub congestion: Congestion,
    /// Maximum bytes in flight per stream, at least bandwidth times delay; a connection may have eight times as many
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

/// A number of bytes, such as `4096`, `64KiB`, `64MiB` or `1GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub usize);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
        let unit = units.iter().find_map(|&(unit, bits)| Some((text.strip_suffix(unit)?, bits)));
        let (number, bits) = unit.unwrap_or((text, 0));
        let number: usize =
            number.trim_end().parse().map_err(|_| "expected a number of bytes, optionally with KiB, MiB or GiB")?;
        number.checked_mul(1 << bits).map(Self).ok_or_else(|| "too many bytes for this machine".to_owned())
    }
}

/// Parses a length of time above zero, such as `250ms`, `90s`, `5m`, `12h` or `7d`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    let unit = units.iter().find_map(|&(unit, length)| Some((text.strip_suffix(unit)?, length)));
    let parsed = unit.and_then(|(number, length)| Some((number.trim_end().parse::<u64>().ok()?, length)));
    let (number, length) =
        parsed.filter(|&(number, _)| number > 0).ok_or("expected a number above 0 with ms, s, m, h or d")?;
    number.checked_mul(length).map(Duration::from_millis).ok_or_else(|| "the time is too long".to_owned())
}

/// Parses the id of a cluster: 32 hexadecimal digits.
pub fn cluster_id(text: &str) -> Result<ClusterId, String> {
    let id = u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32);
    id.map(ClusterId).ok_or_else(|| "expected 32 hexadecimal digits, as `status` shows them".to_owned())
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

    #[test]
    fn durations_have_units() {
        let ms = |text| duration(text).map(|time| time.as_millis());
        assert_eq!((ms("250ms"), ms("90s"), ms("5 m")), (Ok(250), Ok(90_000), Ok(300_000)));
        assert_eq!((ms("12h"), ms("7d")), (Ok(43_200_000), Ok(604_800_000)));
        for bad in ["", "ms", "90", "0s", "-1s", "1.5s", "1min", "9999999999999999d"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
