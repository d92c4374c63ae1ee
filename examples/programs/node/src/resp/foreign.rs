//! Detects other protocols on the Redis port. A web page can make a browser send a request with arbitrary content to a
//! node on the same machine: the body may hold commands.

use std::sync::Mutex;

use tokio::time::Instant;

use crate::seldom::Seldom;

/// Whether this name of a command is in fact the beginning of a line of HTTP or of a TLS handshake. Any request of a
/// browser contains one of these names before its body; no command has one.
pub(super) fn is_foreign(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") || name.starts_with(b"\x16\x03")
}

/// Warns of such connections at most once a minute, since a web page can send any number of requests.
#[derive(Debug, Default)]
pub(super) struct Warnings(Mutex<Seldom>);

impl Warnings {
    pub(super) fn warn(&self, id: u64) {
        if self.0.lock().is_ok_and(|mut lines| lines.is_due(Instant::now())) {
            tracing::warn!(
                id,
                "HTTP or TLS on the Redis port: connection closed, no command in its body was executed; a web page may have sent it"
            );
        }
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
}
