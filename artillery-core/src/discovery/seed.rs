use std::{convert::Infallible, fmt, net::SocketAddr, str::FromStr};

use super::{ResolveError, lookup};

/// The address or host name of a node, with a port: `10.0.0.5:7400`, `[::1]:7400`, `db-1.example:7400`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seed(SeedAddr);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum SeedAddr {
    Addr(SocketAddr),
    /// Host name in lower case, and port.
    Host(String, u16),
}

/// Why a text is not a seed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SeedError {
    /// `:PORT` is missing at the end.
    #[error("seed `{0}` has no port: write HOST:PORT")]
    NoPort(String),
    /// The text after the colon is not a port from 1 to 65535.
    #[error("seed `{0}`: the port must be a number from 1 to 65535")]
    BadPort(String),
    /// The text before the colon is neither an address nor a host name.
    #[error("seed `{0}`: neither an address nor a host name (IPv6 addresses need brackets: [::1]:7400)")]
    BadHost(String),
}

impl FromStr for Seed {
    type Err = SeedError;

    fn from_str(text: &str) -> Result<Self, SeedError> {
        if let Ok(addr) = text.parse::<SocketAddr>() {
            return if addr.port() == 0 {
                Err(SeedError::BadPort(text.into()))
            } else {
                Ok(Self(SeedAddr::Addr(addr)))
            };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(|| SeedError::NoPort(text.into()))?;
        if !is_host_name(host) {
            return Err(SeedError::BadHost(text.into()));
        }
        match port.parse() {
            Ok(port) if port > 0 => Ok(Self(SeedAddr::Host(host.to_ascii_lowercase(), port))),
            _ => Err(SeedError::BadPort(text.into())),
        }
    }
}

impl From<SocketAddr> for Seed {
    fn from(addr: SocketAddr) -> Self {
        Self(SeedAddr::Addr(addr))
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            SeedAddr::Addr(addr) => write!(f, "{addr}"),
            SeedAddr::Host(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

impl TryFrom<&str> for Seed {
    type Error = SeedError;

    fn try_from(text: &str) -> Result<Self, SeedError> {
        text.parse()
    }
}

impl TryFrom<String> for Seed {
    type Error = SeedError;

    fn try_from(text: String) -> Result<Self, SeedError> {
        text.parse()
    }
}

impl TryFrom<&String> for Seed {
    type Error = SeedError;

    fn try_from(text: &String) -> Result<Self, SeedError> {
        text.parse()
    }
}

/// Converting a `SocketAddr` never fails. With this impl, one bound accepts both addresses and texts.
impl From<Infallible> for SeedError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl Seed {
    /// The address, unless the seed is a host name.
    pub fn addr(&self) -> Option<SocketAddr> {
        match &self.0 {
            SeedAddr::Addr(addr) => Some(*addr),
            SeedAddr::Host(..) => None,
        }
    }

    /// The host name in lower case and the port, unless the seed is an address.
    pub fn host(&self) -> Option<(&str, u16)> {
        match &self.0 {
            SeedAddr::Addr(_) => None,
            SeedAddr::Host(host, port) => Some((host, *port)),
        }
    }

    /// The addresses to dial now, at most 16 (a random selection if the host name has more). Each call resolves a host
    /// name again, within 5 s.
    ///
    /// # Errors
    /// [`ResolveError`]: try again later.
    pub async fn resolve(&self) -> Result<Vec<SocketAddr>, ResolveError> {
        match (self.addr(), self.host()) {
            (Some(addr), _) => Ok(vec![addr]),
            (None, Some((host, port))) => lookup::look_up(host, port).await,
            (None, None) => Err(ResolveError::Nothing { host: self.to_string() }),
        }
    }
}

/// Accepts labels of letters, digits, `-` and `_`. A name of only digits and dots is a mistyped address.
fn is_host_name(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    let name = host.strip_suffix('.').unwrap_or(host);
    (1..=253).contains(&name.len())
        && name.split('.').all(label)
        && !name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}
