//! The catalog's clock as this process knows it: time since boot plus an offset, which answers of the catalog correct.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use s3o_model::clock::{Clock, Timestamp, millis_of};
use s3o_model::usage::Month;

/// An answer that took longer says little about the time.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// The catalog's clock. The wall clock of this machine counts only until the first answer of the catalog.
pub struct CatalogTime {
    clock: Arc<dyn Clock>,
    /// Catalog time minus time since boot, in milliseconds.
    offset_ms: AtomicI64,
    is_known: AtomicBool,
}

impl CatalogTime {
    /// Starts with the wall clock.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let reading = clock.reading();
        let offset_ms = AtomicI64::new(reading.wall.millis() - millis_of(reading.boot));
        Self { clock, offset_ms, is_known: AtomicBool::new(false) }
    }

    /// Monotonic: setting the wall clock does not change it.
    #[must_use]
    pub fn since_boot(&self) -> Duration {
        self.clock.since_boot()
    }

    /// Time by the catalog's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let offset = self.offset_ms.load(Ordering::Relaxed);
        Timestamp::from_millis(millis_of(self.since_boot()).saturating_add(offset))
    }

    /// Month by the catalog's clock.
    #[must_use]
    pub fn month(&self) -> Month {
        Month::of(self.now())
    }

    /// Corrects the clock by a time that the catalog returned; `asked` is the time since boot before the query.
    pub fn correct(&self, read_at: Timestamp, asked: Duration) {
        let answered = self.since_boot();
        let took = answered.saturating_sub(asked);
        if took > ANSWER_MAX && self.is_known.load(Ordering::Relaxed) {
            return;
        }
        let offset = read_at.millis().saturating_sub(millis_of(asked + took / 2));
        self.offset_ms.store(offset, Ordering::Relaxed);
        self.is_known.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::CatalogTime;
    use s3o_model::clock::{ManualClock, Timestamp};
    use std::sync::Arc;
    use std::time::Duration;

    /// 2026-12-01T00:00:00Z.
    const DECEMBER: i64 = 1_796_083_200_000;

    #[test]
    fn the_wall_clock_does_not_matter_once_the_catalog_has_answered() {
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(0)));
        let time = CatalogTime::new(clock.clone());
        assert_eq!(time.month().to_string(), "1970-01");
        let asked = time.since_boot();
        clock.advance(Duration::from_millis(10));
        time.correct(Timestamp::from_millis(DECEMBER - 1000), asked);
        assert_eq!(time.now(), Timestamp::from_millis(DECEMBER - 995));
        clock.set(Timestamp::from_millis(5));
        assert_eq!(time.month().to_string(), "2026-11");
        clock.advance(Duration::from_millis(995));
        assert_eq!(time.month().to_string(), "2026-12");
    }

    #[test]
    fn slow_answers_correct_nothing_after_the_first() {
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(0)));
        let time = CatalogTime::new(clock.clone());
        clock.advance(Duration::from_secs(4));
        time.correct(Timestamp::from_millis(DECEMBER), Duration::ZERO);
        assert_eq!(time.now(), Timestamp::from_millis(DECEMBER + 2000));
        clock.advance(Duration::from_secs(2));
        time.correct(Timestamp::from_millis(0), Duration::from_secs(4));
        assert_eq!(time.now(), Timestamp::from_millis(DECEMBER + 4000));
    }
}
