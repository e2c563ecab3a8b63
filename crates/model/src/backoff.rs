//! Exponential backoff.

use std::time::Duration;

/// The bounds of an exponential backoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Delay after the first failure.
    pub min: Duration,
    /// Longest delay.
    pub max: Duration,
}

impl Backoff {
    /// The delay after `failures` consecutive failures: doubling from `min` to `max`, spread over its
    /// upper half by `jitter` in `0.0..1.0`, so that rows that failed together are not retried together.
    #[must_use]
    pub fn delay(&self, failures: u32, jitter: f64) -> Duration {
        let doublings = failures.saturating_sub(1).min(63);
        let full = self.min.saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX)).min(self.max);
        full.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Backoff;
    use std::time::Duration;

    const DEFAULT: Backoff = Backoff { min: Duration::from_mins(1), max: Duration::from_hours(24) };

    #[test]
    fn delay_doubles_up_to_the_maximum() {
        let minutes: Vec<u64> = (1..=12).map(|n| DEFAULT.delay(n, 1.0).as_secs() / 60).collect();
        assert_eq!(minutes, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1440]);
        assert_eq!(DEFAULT.delay(u32::MAX, 1.0), DEFAULT.max);
    }

    #[test]
    fn jitter_spreads_the_upper_half() {
        assert_eq!(DEFAULT.delay(1, 0.0), Duration::from_secs(30));
        assert_eq!(DEFAULT.delay(1, 0.5), Duration::from_secs(45));
    }
}
