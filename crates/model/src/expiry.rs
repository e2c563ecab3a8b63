//! Expiration of objects.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::clock::Timestamp;
use crate::duration::{self, DURATION_MAX};

/// Expiration of an object as its writer requests it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expiry {
    /// This long after the commit, by the catalog's clock.
    After(Duration),
    /// At this time.
    At(Timestamp),
}

/// Why a requested expiration is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ExpiryRefused {
    /// The text is neither seconds nor a duration.
    #[error("the time to live is not a number of seconds or a duration such as 90s or 24h")]
    Duration,
    /// The text is not an RFC 3339 time.
    #[error("the expiration time is not an RFC 3339 date and time such as 2030-01-31T12:00:00Z")]
    Moment,
    /// The time to live is zero.
    #[error("the time to live must be greater than zero")]
    Zero,
    /// The time is in the past.
    #[error("the expiration time is in the past")]
    Past,
    /// The time is too far in the future.
    #[error("the expiration time is more than a hundred years in the future")]
    TooFar,
}

impl Expiry {
    /// Parses a time to live: a number of seconds, or a duration with a unit.
    pub fn after(text: &str) -> Result<Self, ExpiryRefused> {
        let seconds = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty();
        let live = if seconds {
            // A number too large for u64 is refused as too far, not as malformed.
            Duration::from_secs(text.parse().unwrap_or(u64::MAX))
        } else {
            duration::parse(text).map_err(|_| ExpiryRefused::Duration)?
        };
        match live {
            Duration::ZERO => Err(ExpiryRefused::Zero),
            live if live > DURATION_MAX => Err(ExpiryRefused::TooFar),
            live => Ok(Self::After(live)),
        }
    }

    /// Parses an RFC 3339 time.
    pub fn at(text: &str) -> Result<Self, ExpiryRefused> {
        let moment = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| ExpiryRefused::Moment)?;
        let millis = i64::try_from(moment.unix_timestamp_nanos().div_euclid(1_000_000));
        millis.map(|millis| Self::At(Timestamp::from_millis(millis))).map_err(|_| ExpiryRefused::Moment)
    }

    /// Refuses an expiration time that is in the past or too far in the future.
    pub fn check(self, now: Timestamp) -> Result<(), ExpiryRefused> {
        match self {
            Self::At(moment) if moment <= now => Err(ExpiryRefused::Past),
            Self::At(moment) if moment > now.after(DURATION_MAX) => Err(ExpiryRefused::TooFar),
            Self::After(_) | Self::At(_) => Ok(()),
        }
    }

    /// The expiration time; `None` for a time to live.
    #[must_use]
    pub const fn moment(self) -> Option<Timestamp> {
        match self {
            Self::After(_) => None,
            Self::At(moment) => Some(moment),
        }
    }

    /// The time to live; `None` for an expiration time.
    #[must_use]
    pub const fn live(self) -> Option<Duration> {
        match self {
            Self::After(live) => Some(live),
            Self::At(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Expiry, ExpiryRefused};
    use crate::clock::Timestamp;

    #[test]
    fn time_to_live_is_seconds_or_a_duration() {
        for (text, seconds) in [("1", 1), ("3600", 3600), ("90s", 90), ("24h", 86_400), ("2d", 172_800)] {
            assert_eq!(Expiry::after(text), Ok(Expiry::After(Duration::from_secs(seconds))), "{text}");
        }
        assert_eq!(Expiry::after("500ms"), Ok(Expiry::After(Duration::from_millis(500))));
    }

    #[test]
    fn invalid_times_to_live_are_refused() {
        for text in ["0", "00", "0s", "0ms"] {
            assert_eq!(Expiry::after(text), Err(ExpiryRefused::Zero), "{text}");
        }
        for text in ["", "-1", "+1", "1.5", "1e3", "soon", "5 parsecs", "-1s", " 60", "٣"] {
            assert_eq!(Expiry::after(text), Err(ExpiryRefused::Duration), "{text}");
        }
        for text in ["3153600001", "99999999999999999999999999"] {
            assert_eq!(Expiry::after(text), Err(ExpiryRefused::TooFar), "{text}");
        }
        assert_eq!(Expiry::after("36501d"), Err(ExpiryRefused::Duration));
    }

    #[test]
    fn expiration_time_is_rfc_3339_in_any_time_zone() {
        let noon = Ok(Expiry::At(Timestamp::from_millis(1_893_499_200_250)));
        for text in ["2030-01-01T12:00:00.25Z", "2030-01-01T13:00:00.250+01:00"] {
            assert_eq!(Expiry::at(text), noon, "{text}");
        }
        for text in ["", "2030-01-01", "2030-13-01T00:00:00Z", "2030-01-01T12:00:00", "tomorrow", "1893499200"] {
            assert_eq!(Expiry::at(text), Err(ExpiryRefused::Moment), "{text}");
        }
    }

    #[test]
    fn expiration_time_must_be_in_the_future_and_within_a_hundred_years() {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let at = |millis| Expiry::At(Timestamp::from_millis(now.millis() + millis)).check(now);
        assert_eq!((at(-1), at(0), at(1)), (Err(ExpiryRefused::Past), Err(ExpiryRefused::Past), Ok(())));
        let century = 36_500 * 86_400_000;
        assert_eq!((at(century), at(century + 1)), (Ok(()), Err(ExpiryRefused::TooFar)));
        assert_eq!(Expiry::After(Duration::from_millis(1)).check(now), Ok(()));
    }
}
