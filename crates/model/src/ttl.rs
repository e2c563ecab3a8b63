//! Time to live of cached bodies.

use std::time::Duration;

use crate::clock::Timestamp;

/// How long a body may be cached: at most `longest`, and not beyond the expiration of its object.
/// `None` if the object has expired.
#[must_use]
pub fn cache_ttl(longest: Duration, expires_at: Option<Timestamp>, now: Timestamp) -> Option<Duration> {
    let time = expires_at.map_or(longest, |end| end.since(now).min(longest));
    (time >= Duration::from_millis(1)).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::cache_ttl;
    use crate::clock::Timestamp;
    use std::time::Duration;

    const LONGEST: Duration = Duration::from_mins(5);

    fn ttl(expires_at: Option<i64>) -> Option<Duration> {
        cache_ttl(LONGEST, expires_at.map(Timestamp::from_millis), Timestamp::from_millis(1_000))
    }

    #[test]
    fn ttl_ends_with_the_object() {
        assert_eq!(ttl(None), Some(LONGEST));
        assert_eq!(ttl(Some(i64::MAX)), Some(LONGEST));
        assert_eq!(ttl(Some(3_000)), Some(Duration::from_secs(2)));
    }

    #[test]
    fn expired_object_is_not_cached() {
        assert_eq!(ttl(Some(1_000)), None);
        assert_eq!(ttl(Some(0)), None);
    }
}
