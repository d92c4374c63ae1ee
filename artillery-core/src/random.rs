//! Random numbers for ids, names and pauses.

/// A random number. In a test, while a `Seeded` value exists in this thread, it follows from the seed.
#[allow(clippy::disallowed_methods, reason = "ids and pauses of nodes must differ from all others")]
pub fn number() -> u64 {
    #[cfg(feature = "testing")]
    if let Some(number) = seeded::number() {
        return number;
    }
    rand::random()
}

/// A random number of 128 bits.
pub fn wide() -> u128 {
    (u128::from(number()) << 64) | u128::from(number())
}

/// A random number in `[0, 1)`.
pub fn fraction() -> f64 {
    (number() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(feature = "testing")]
pub use seeded::Seeded;

/// Random numbers that follow from a seed, for tests.
#[cfg(feature = "testing")]
mod seeded {
    use std::cell::RefCell;

    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    thread_local! {
        /// The source, and the number of [`Seeded`] values.
        static SOURCE: RefCell<Option<(ChaCha8Rng, usize)>> = const { RefCell::new(None) };
    }

    /// While a value exists, the random numbers of this thread follow from the latest seed.
    #[derive(Debug)]
    pub struct Seeded(());

    impl Seeded {
        /// Starts a new sequence.
        pub fn new(seed: u64) -> Self {
            SOURCE.with_borrow_mut(|source| {
                let values = source.as_ref().map_or(0, |(_, values)| *values);
                *source = Some((ChaCha8Rng::seed_from_u64(seed), values + 1));
            });
            Self(())
        }
    }

    impl Drop for Seeded {
        fn drop(&mut self) {
            // Ignore errors: while a thread ends, its thread-local may already be destroyed.
            let _ = SOURCE.try_with(|source| {
                let mut source = source.borrow_mut();
                let left = source.take().filter(|(_, values)| *values > 1);
                *source = left.map(|(random, values)| (random, values - 1));
            });
        }
    }

    pub(super) fn number() -> Option<u64> {
        SOURCE.try_with(|source| source.borrow_mut().as_mut().map(|(random, _)| random.random())).ok()?
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_numbers() {
        let numbers = |seed| {
            let _seeded = Seeded::new(seed);
            (number(), wide(), fraction().to_bits())
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        assert_ne!(number(), number());
    }
}
