//! Moving average of the time to the first byte of reads, by which equally good copies are ordered.

use std::time::Duration;

/// Weight of a new measurement, as a divisor.
const WEIGHT: u32 = 8;
/// Averages below this are equal: such differences are noise.
const RESOLUTION: Duration = Duration::from_millis(8);
/// After this time the backend is measured again, as if it were fast.
const VALID_FOR: Duration = Duration::from_mins(1);

/// The average of one backend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FirstByteLatency {
    average: Duration,
    /// Class that is shown; it changes only when the average is well within another one.
    class: u32,
    /// When it was last measured, since boot; `None` before the first measurement.
    measured: Option<Duration>,
}

impl FirstByteLatency {
    /// Adds a measurement.
    pub fn record(&mut self, took: Duration, now: Duration) {
        self.average = match self.measured {
            Some(at) if now.saturating_sub(at) < VALID_FOR => (self.average * (WEIGHT - 1) + took) / WEIGHT,
            Some(_) | None => took,
        };
        self.measured = Some(now);
        let (low, high) = (class_of(self.average.mul_f64(0.75)), class_of(self.average.mul_f64(1.25)));
        if self.class < low {
            self.class = low;
        } else if self.class > high {
            self.class = high;
        }
    }

    /// Class of the average: 0 for the fastest backends and those that were not measured lately. Each further class is
    /// twice as slow. Backends of one class are equal.
    #[must_use]
    pub fn class(&self, now: Duration) -> u32 {
        match self.measured {
            Some(at) if now.saturating_sub(at) < VALID_FOR => self.class,
            Some(_) | None => 0,
        }
    }
}

/// Number of doublings above the resolution.
fn class_of(average: Duration) -> u32 {
    let units = average.as_micros() / RESOLUTION.as_micros();
    units.checked_ilog2().map_or(0, |doublings| doublings + 1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{FirstByteLatency, VALID_FOR};

    const NOW: Duration = Duration::from_secs(1);

    fn measured(millis: &[u64]) -> FirstByteLatency {
        let mut latency = FirstByteLatency::default();
        for took in millis {
            latency.record(Duration::from_millis(*took), NOW);
        }
        latency
    }

    #[test]
    fn similar_backends_are_of_one_class() {
        assert_eq!(measured(&[1]).class(NOW), measured(&[5]).class(NOW));
        assert_eq!(FirstByteLatency::default().class(NOW), 0);
        assert!(measured(&[100]).class(NOW) > measured(&[20]).class(NOW));
    }

    #[test]
    fn one_slow_read_changes_no_class() {
        assert_eq!(measured(&[2, 2, 2, 60, 2]).class(NOW), 0);
        assert!(measured(&[[2; 9], [60; 9]].concat()).class(NOW) > 0);
    }

    #[test]
    fn average_at_the_border_of_two_classes_does_not_flap() {
        let mut latency = measured(&[40]);
        let class = latency.class(NOW);
        for took in [28, 36, 28, 36, 30, 34] {
            latency.record(Duration::from_millis(took), NOW);
            assert_eq!(latency.class(NOW), class);
        }
    }

    #[test]
    fn old_measurement_counts_as_fast() {
        let slow = measured(&[500]);
        assert!(slow.class(NOW) > 0);
        assert_eq!(slow.class(NOW + VALID_FOR), 0);
    }
}
