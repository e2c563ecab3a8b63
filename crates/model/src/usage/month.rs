//! Months in UTC.

use std::fmt;
use std::str::FromStr;

use time::{Date, OffsetDateTime};

use crate::clock::Timestamp;

/// A month in UTC, as `2026-11`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Month(i32);

/// The text is not of the form `2026-11`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a month, use a form like 2026-11")]
pub struct InvalidMonth;

impl Month {
    /// The month of a moment.
    #[must_use]
    pub fn of(moment: Timestamp) -> Self {
        let date = OffsetDateTime::from_unix_timestamp(moment.seconds()).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        Self(date.year() * 12 + i32::from(u8::from(date.month())) - 1)
    }

    /// The first moment of the month; the next month starts when this one ends.
    #[must_use]
    pub fn start(self) -> Timestamp {
        let (year, month) = self.year_and_month();
        let month = time::Month::try_from(month).unwrap_or(time::Month::January);
        let seconds =
            Date::from_calendar_date(year, month, 1).map_or(0, |day| day.midnight().assume_utc().unix_timestamp());
        Timestamp::from_millis(seconds.saturating_mul(1000))
    }

    /// The month this many months later, or earlier if negative.
    #[must_use]
    pub const fn plus(self, months: i32) -> Self {
        Self(self.0.saturating_add(months))
    }

    /// The month with its number from 1.
    fn year_and_month(self) -> (i32, u8) {
        (self.0.div_euclid(12), u8::try_from(self.0.rem_euclid(12) + 1).unwrap_or(1))
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month) = self.year_and_month();
        write!(f, "{year:04}-{month:02}")
    }
}

impl FromStr for Month {
    type Err = InvalidMonth;

    fn from_str(text: &str) -> Result<Self, InvalidMonth> {
        let (year, month) = text.split_once('-').ok_or(InvalidMonth)?;
        let (year, month) = (year.parse::<u16>(), month.parse::<u8>());
        match (year, month) {
            (Ok(year), Ok(month @ 1..=12)) => Ok(Self(i32::from(year) * 12 + i32::from(month) - 1)),
            _ => Err(InvalidMonth),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Month;
    use crate::clock::Timestamp;

    /// 2026-12-01T00:00:00Z.
    const DECEMBER: i64 = 1_796_083_200_000;

    #[test]
    fn every_moment_is_in_exactly_one_month() {
        let month = |millis| Month::of(Timestamp::from_millis(millis)).to_string();
        assert_eq!((month(DECEMBER - 1).as_str(), month(DECEMBER).as_str()), ("2026-11", "2026-12"));
        assert_eq!(Month::of(Timestamp::from_millis(DECEMBER)).start(), Timestamp::from_millis(DECEMBER));
        for days in 0..1000 {
            let moment = Timestamp::from_millis(DECEMBER + days * 86_400_000);
            let month = Month::of(moment);
            assert!(month.start() <= moment && moment < month.plus(1).start());
        }
    }

    #[test]
    fn months_sort_as_their_text_and_parse() {
        let november: Month = "2026-11".parse().expect("valid");
        assert_eq!(
            (november.plus(2).to_string().as_str(), november.plus(-11).to_string().as_str()),
            ("2027-01", "2025-12")
        );
        assert!(november < november.plus(1) && november.to_string() < november.plus(2).to_string());
        for text in ["", "2026", "2026-13", "2026-0", "x-1"] {
            assert!(text.parse::<Month>().is_err(), "{text}");
        }
    }
}
