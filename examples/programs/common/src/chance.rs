//! Unique names, and cheap random choices.

/// 128 bits from the system's generator, in hexadecimal.
#[allow(clippy::disallowed_methods, reason = "only the library must get its randomness as an argument")]
pub fn token() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// A generator for choices that needn't be unpredictable (SplitMix64).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Equal seeds yield equal sequences.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `end - 1`; `end` must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dice_reach_every_side_and_no_other() {
        let mut dice = Dice::new(7);
        let mut seen = [0; 6];
        (0..600).for_each(|_| seen[dice.below(6) as usize] += 1);
        assert!(seen.iter().all(|&count| count > 50), "{seen:?}");
    }

    #[test]
    fn tokens_differ() {
        assert_ne!(token(), token());
        assert_eq!(token().len(), 32);
    }
}
