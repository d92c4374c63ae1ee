//! Other protocols on the Redis port. A web page can have a browser send a request of its own making to a node of the
//! same machine: the body may hold commands.

use std::sync::Mutex;

use tokio::time::{Duration, Instant};

/// Between two warnings: a web page can send requests without end.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Whether a line of HTTP or the beginning of TLS was taken for a command with this name. Every request of a browser has
/// one of them before its body. No command begins so.
pub(super) fn is_foreign(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") || name.starts_with(b"\x16\x03")
}

/// Warns of such connections, once in a while.
#[derive(Debug, Default)]
pub(super) struct Warnings(Mutex<Option<Instant>>);

impl Warnings {
    pub(super) fn warn(&self, id: u64) {
        if self.is_due(Instant::now()) {
            tracing::warn!(
                id,
                "HTTP or TLS on the Redis port: closed, nothing of its body was done; a web page may have sent it"
            );
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        let Ok(mut last) = self.0.lock() else { return false };
        let is_due = last.is_none_or(|last| now.duration_since(last) >= WARNING_INTERVAL);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_http_are_no_commands() {
        for name in [b"POST".as_slice(), b"post", b"Host:", b"HOST:", b"\x16\x03\x01\x02"] {
            assert!(is_foreign(name), "{}", name.escape_ascii());
        }
        for name in [b"GET".as_slice(), b"posts", b"host", b"", b"\x16"] {
            assert!(!is_foreign(name), "{}", name.escape_ascii());
        }
    }

    #[test]
    fn one_warning_a_minute_is_enough() {
        let (warnings, now) = (Warnings::default(), Instant::now());
        assert!(warnings.is_due(now));
        assert!(!warnings.is_due(now + WARNING_INTERVAL / 2));
        assert!(warnings.is_due(now + WARNING_INTERVAL));
    }
}
