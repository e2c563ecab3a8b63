//! When an object ceases to exist.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::clock::Timestamp;
use crate::duration::{self, DURATION_MAX};

/// When an object is to cease to exist, as its writer says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expiry {
    /// So long after it appeared, by the catalog's clock.
    After(Duration),
    /// At this moment.
    At(Timestamp),
}

/// Why an object cannot cease to exist then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ExpiryRefused {
    /// Neither seconds nor a duration.
    #[error("the time to live is not a number of seconds or a duration such as 90s or 24h")]
    Duration,
    /// No moment.
    #[error("the moment of expiry is not an RFC 3339 date and time such as 2030-01-31T12:00:00Z")]
    Moment,
    /// No time at all.
    #[error("the time to live must be longer than nothing")]
    Zero,
    /// The moment is not ahead.
    #[error("the moment of expiry has passed")]
    Past,
    /// The moment is further ahead than anybody means.
    #[error("the moment of expiry is more than a hundred years ahead")]
    TooFar,
}

impl Expiry {
    /// A time to live: a number of seconds, or a duration with its unit.
    pub fn after(text: &str) -> Result<Self, ExpiryRefused> {
        let seconds = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty();
        let live = if seconds {
            // A number that does not fit is a number all the same.
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

    /// A moment, in RFC 3339.
    pub fn at(text: &str) -> Result<Self, ExpiryRefused> {
        let moment = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| ExpiryRefused::Moment)?;
        let millis = i64::try_from(moment.unix_timestamp_nanos().div_euclid(1_000_000));
        millis.map(|millis| Self::At(Timestamp::from_millis(millis))).map_err(|_| ExpiryRefused::Moment)
    }

    /// Whether something that appears now can be meant to cease then.
    pub fn check(self, now: Timestamp) -> Result<(), ExpiryRefused> {
        match self {
            Self::At(moment) if moment <= now => Err(ExpiryRefused::Past),
            Self::At(moment) if moment > now.after(DURATION_MAX) => Err(ExpiryRefused::TooFar),
            Self::After(_) | Self::At(_) => Ok(()),
        }
    }

    /// The moment, where it is said outright.
    #[must_use]
    pub const fn moment(self) -> Option<Timestamp> {
        match self {
            Self::After(_) => None,
            Self::At(moment) => Some(moment),
        }
    }

    /// The time to live, where that is what was said.
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
    fn a_time_to_live_is_seconds_or_a_duration() {
        for (text, seconds) in [("1", 1), ("3600", 3600), ("90s", 90), ("24h", 86_400), ("2d", 172_800)] {
            assert_eq!(Expiry::after(text), Ok(Expiry::After(Duration::from_secs(seconds))), "{text}");
        }
        assert_eq!(Expiry::after("500ms"), Ok(Expiry::After(Duration::from_millis(500))));
    }

    #[test]
    fn a_time_to_live_that_nobody_means_is_refused() {
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
    fn a_moment_is_rfc_3339_of_any_zone() {
        let noon = Ok(Expiry::At(Timestamp::from_millis(1_893_499_200_250)));
        for text in ["2030-01-01T12:00:00.25Z", "2030-01-01T13:00:00.250+01:00"] {
            assert_eq!(Expiry::at(text), noon, "{text}");
        }
        for text in ["", "2030-01-01", "2030-13-01T00:00:00Z", "2030-01-01T12:00:00", "tomorrow", "1893499200"] {
            assert_eq!(Expiry::at(text), Err(ExpiryRefused::Moment), "{text}");
        }
    }

    #[test]
    fn a_moment_must_be_ahead_and_within_reach() {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let at = |millis| Expiry::At(Timestamp::from_millis(now.millis() + millis)).check(now);
        assert_eq!((at(-1), at(0), at(1)), (Err(ExpiryRefused::Past), Err(ExpiryRefused::Past), Ok(())));
        let century = 36_500 * 86_400_000;
        assert_eq!((at(century), at(century + 1)), (Ok(()), Err(ExpiryRefused::TooFar)));
        assert_eq!(Expiry::After(Duration::from_millis(1)).check(now), Ok(()));
    }
}
