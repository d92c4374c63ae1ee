//! Rate limit for log lines that remote parties can trigger any number of times.

use tokio::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(60);

/// Permits one line per minute.
#[derive(Debug, Default)]
pub(super) struct Seldom {
    last: Option<Instant>,
}

impl Seldom {
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.last.is_none_or(|last| now.duration_since(last) >= INTERVAL);
        if is_due {
            self.last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_minute_passes() {
        let (mut lines, now) = (Seldom::default(), Instant::now());
        assert!(lines.is_due(now));
        assert!(!lines.is_due(now + INTERVAL / 2));
        assert!(lines.is_due(now + INTERVAL));
        assert!(!lines.is_due(now + INTERVAL * 3 / 2));
    }
}
