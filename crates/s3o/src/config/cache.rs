//! The sections `cache` and `redis`.

use std::fmt;
use std::time::Duration;

use super::read::Section;
use super::sections::flag;
use super::units;

const MEBIBYTE: u64 = 1 << 20;
/// A body is in memory as a whole while it is fetched.
const OBJECT_BYTES_MAX: u64 = 64 * MEBIBYTE;
const TTL_MIN: Duration = Duration::from_millis(1);

/// Settings of the body cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheConfig {
    /// False: every read goes to a backend.
    pub enabled: bool,
    /// Bound of the cached bodies in memory.
    pub max_bytes: u64,
    /// Larger bodies are not cached.
    pub object_bytes_max: u64,
    /// Lifetime of an entry.
    pub ttl: Duration,
    /// Cache that instances share.
    pub shared: SharedCache,
    /// The Redis for usage totals, and for the shared cache if that is enabled.
    pub redis: Option<RedisUrl>,
}

/// URL of a Redis with its password.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(pub String);

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("redis")
    }
}

/// Cache that instances share.
#[derive(Clone, PartialEq, Eq)]
pub enum SharedCache {
    /// Each instance has only its own memory.
    None,
    /// Bodies are also kept in Redis.
    Redis {
        /// URL with its password.
        url: String,
    },
}

impl fmt::Debug for SharedCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            // The URL may hold a password.
            Self::Redis { .. } => f.write_str("redis"),
        }
    }
}

pub(super) fn cache(section: Section<'_>, redis: Section<'_>) -> CacheConfig {
    let url = redis.read("url", |url| match s3o_cache::check_url(url) {
        Ok(()) => Ok(url.to_owned()),
        // The value may hold a password.
        Err(error) => Err(error.to_string()),
    });
    let is_shared = section.read("shared", |text| match text {
        "none" => Ok(false),
        "redis" => Ok(true),
        other => Err(format!("{other:?} is not one of none, redis")),
    });
    let shared = match (is_shared, url.clone()) {
        (Some(true), Some(url)) => SharedCache::Redis { url },
        (Some(true), None) => {
            redis.fault("url", "is required by cache.shared: redis");
            SharedCache::None
        }
        (Some(false) | None, _) => SharedCache::None,
    };
    let cache = CacheConfig {
        enabled: section.read("enabled", flag).unwrap_or(false),
        max_bytes: section.read("max_size", units::size).unwrap_or(256 * MEBIBYTE),
        object_bytes_max: section.read("max_object_size", units::size).unwrap_or(MEBIBYTE),
        ttl: section.duration_within("ttl", Duration::from_mins(5), TTL_MIN.., "1ms or more"),
        shared,
        redis: url.map(RedisUrl),
    };
    check(&section, &cache);
    section.finish();
    redis.finish();
    cache
}

fn check(section: &Section<'_>, cache: &CacheConfig) {
    let size = units::format_exact(cache.object_bytes_max);
    if !(1..=OBJECT_BYTES_MAX).contains(&cache.object_bytes_max) {
        section.fault("max_object_size", format!("{size} is not allowed, use 1B to 64MiB"));
    } else if cache.object_bytes_max > cache.max_bytes {
        section.fault(
            "max_object_size",
            format!("{size} is larger than max_size, use at most {}", units::format_exact(cache.max_bytes)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::SharedCache;
    use std::time::Duration;

    fn parse(text: &str) -> Result<Config, String> {
        let text = format!("backends: [{{name: disk, kind: fs, root: /tmp/x}}]\n{text}");
        Config::parse(&text, |_| None).map_err(|faults| faults.to_string())
    }

    #[test]
    fn cache_is_disabled_by_default() {
        let cache = parse("").expect("valid").cache;
        assert!(!cache.enabled);
        assert_eq!((cache.max_bytes, cache.object_bytes_max), (256 << 20, 1 << 20));
        assert_eq!((cache.ttl, cache.shared), (Duration::from_mins(5), SharedCache::None));
    }

    #[test]
    fn shared_cache_needs_a_redis_url_and_hides_its_password() {
        let config = parse("cache: {enabled: true, shared: redis}\nredis: {url: 'redis://:secret@h:6379/1'}\n");
        let config = config.expect("valid");
        assert!(matches!(&config.cache.shared, SharedCache::Redis { url } if url.contains("secret")));
        assert!(!format!("{config:?}").contains("secret"));
        let faults = parse("cache: {shared: redis}\n").expect_err("no url");
        assert!(faults.contains("redis.url: is required by cache.shared: redis"), "{faults}");
        assert_eq!(parse("redis: {url: 'redis://h'}\n").expect("valid").cache.shared, SharedCache::None);
    }

    #[test]
    fn invalid_cache_settings_are_refused_with_their_path() {
        for (settings, path) in [
            ("cache: {shared: memcached}\n", "cache.shared: "),
            ("cache: {max_size: 1KiB}\n", "cache.max_object_size: 1MiB is larger than max_size, use at most 1KiB"),
            ("cache: {max_object_size: 0}\n", "cache.max_object_size: 0B is not allowed, use 1B to 64MiB"),
            ("cache: {max_size: 1TiB, max_object_size: 1GiB}\n", "cache.max_object_size: 1GiB is not allowed"),
            ("cache: {ttl: 0ms}\n", "cache.ttl: 0ms is not allowed, use 1ms or more"),
            ("cache: {enabled: perhaps}\n", "cache.enabled: "),
            ("cache: {colour: red}\n", "cache.colour: is not a known setting"),
            ("redis: {url: 'http://secret@h'}\n", "redis.url: is not a URL"),
            ("redis: {host: h}\n", "redis.host: is not a known setting"),
        ] {
            let faults = parse(settings).expect_err(settings);
            assert!(faults.contains(path) && !faults.contains("secret"), "{settings}: {faults}");
        }
    }
}
