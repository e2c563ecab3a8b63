//! For how long a body may be kept at hand.

use std::time::Duration;

use crate::clock::Timestamp;

/// For how long a body may be kept: as long as is allowed, and no longer than its object exists.
/// `None`: not at all.
#[must_use]
pub fn time_to_keep(longest: Duration, expires_at: Option<Timestamp>, now: Timestamp) -> Option<Duration> {
    let time = expires_at.map_or(longest, |end| end.since(now).min(longest));
    (time >= Duration::from_millis(1)).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::time_to_keep;
    use crate::clock::Timestamp;
    use std::time::Duration;

    const LONGEST: Duration = Duration::from_mins(5);

    fn kept(expires_at: Option<i64>) -> Option<Duration> {
        time_to_keep(LONGEST, expires_at.map(Timestamp::from_millis), Timestamp::from_millis(1_000))
    }

    #[test]
    fn a_body_is_kept_no_longer_than_its_object_exists() {
        assert_eq!(kept(None), Some(LONGEST));
        assert_eq!(kept(Some(i64::MAX)), Some(LONGEST));
        assert_eq!(kept(Some(3_000)), Some(Duration::from_secs(2)));
    }

    #[test]
    fn what_has_expired_is_not_kept() {
        assert_eq!(kept(Some(1_000)), None);
        assert_eq!(kept(Some(0)), None);
    }
}
