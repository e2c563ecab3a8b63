//! Randomness, injected so that tests can replay a run from its seed.

use parking_lot::Mutex;

/// Source of random bits.
pub trait Entropy: Send + Sync {
    /// 64 random bits.
    fn next_u64(&self) -> u64;

    /// A number in `0.0..1.0`, for jitter.
    fn next_unit(&self) -> f64 {
        // The top 53 bits fill a double's mantissa exactly.
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double without loss")]
        let fraction = (self.next_u64() >> 11) as f64;
        fraction / 9_007_199_254_740_992.0
    }
}

/// The operating system's generator, cryptographically secure.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn next_u64(&self) -> u64 {
        getrandom::u64().expect("the operating system's generator does not fail once the system is up")
    }
}

/// A deterministic generator for tests.
#[derive(Debug)]
pub struct SeededEntropy(Mutex<fastrand::Rng>);

impl SeededEntropy {
    /// Generates the same sequence for the same seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(fastrand::Rng::with_seed(seed)))
    }
}

impl Entropy for SeededEntropy {
    fn next_u64(&self) -> u64 {
        self.0.lock().u64(..)
    }
}

#[cfg(test)]
mod tests {
    use super::{Entropy, SeededEntropy};

    #[test]
    fn one_seed_gives_one_sequence() {
        let (a, b) = (SeededEntropy::new(7), SeededEntropy::new(7));
        for _ in 0..10 {
            assert_eq!(a.next_u64(), b.next_u64());
        }
    }

    #[test]
    fn units_stay_below_one() {
        let entropy = SeededEntropy::new(1);
        assert!((0..1000).all(|_| (0.0..1.0).contains(&entropy.next_unit())));
    }
}
