use std::time::Duration;

/// Pauses that double between two bounds. Each is shortened at random by up to half, so that nodes do not dial
/// simultaneously.
#[derive(Debug)]
pub(super) struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, next: min }
    }

    /// The next pause. `chance` is a random number in `[0, 1)`.
    pub(super) fn pause(&mut self, chance: f64) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        pause.mul_f64(1.0 - chance.clamp(0.0, 1.0) / 2.0)
    }

    pub(super) fn reset(&mut self) {
        self.next = self.min;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_bound_and_begin_anew() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(10), ms(35));
        let pauses: Vec<_> = (0..4).map(|_| backoff.pause(0.0)).collect();
        assert_eq!(pauses, [ms(10), ms(20), ms(35), ms(35)]);
        backoff.reset();
        assert_eq!(backoff.pause(1.0), ms(5));
    }
}
