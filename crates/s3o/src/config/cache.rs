//! The settings of the cache, and of the Redis that instances may share it in.

use std::fmt;
use std::time::Duration;

use super::read::Section;
use super::sections::flag;
use super::units;

const MEBIBYTE: u64 = 1 << 20;
/// Bodies are held whole while they are read.
const OBJECT_BYTES_MAX: u64 = 64 * MEBIBYTE;
/// A shorter time keeps nothing that anybody asks for again.
const TTL_MIN: Duration = Duration::from_millis(1);

/// How bodies are kept at hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// Whether they are.
    pub enabled: bool,
    /// What they may take in memory.
    pub max_bytes: u64,
    /// The largest one.
    pub object_bytes_max: u64,
    /// For how long.
    pub ttl: Duration,
    /// Where instances share them.
    pub shared: Shared,
}

/// Where instances share bodies.
#[derive(Clone, PartialEq, Eq)]
pub enum Shared {
    /// Nowhere.
    None,
    /// In Redis.
    Redis {
        /// Where it is, with its password.
        url: String,
    },
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            // The URL may hold a password.
            Self::Redis { .. } => f.write_str("redis"),
        }
    }
}

pub(super) fn cache(section: Section<'_>, redis: Section<'_>) -> Cache {
    let url = redis.read("url", |url| match s3o_cache::check_url(url) {
        Ok(()) => Ok(url.to_owned()),
        // What was written may hold a password.
        Err(error) => Err(error.to_string()),
    });
    let is_shared = section.read("shared", |text| match text {
        "none" => Ok(false),
        "redis" => Ok(true),
        other => Err(format!("{other:?} is not one of none, redis")),
    });
    let shared = match (is_shared, url) {
        (Some(true), Some(url)) => Shared::Redis { url },
        (Some(true), None) => {
            redis.fault("url", "is required by cache.shared: redis");
            Shared::None
        }
        (Some(false) | None, _) => Shared::None,
    };
    let cache = Cache {
        enabled: section.read("enabled", flag).unwrap_or(false),
        max_bytes: section.read("max_size", units::size).unwrap_or(256 * MEBIBYTE),
        object_bytes_max: section.read("max_object_size", units::size).unwrap_or(MEBIBYTE),
        ttl: section.duration("ttl", Duration::from_mins(5)),
        shared,
    };
    check(&section, &cache);
    section.finish();
    redis.finish();
    cache
}

fn check(section: &Section<'_>, cache: &Cache) {
    if !(1..=OBJECT_BYTES_MAX).contains(&cache.object_bytes_max) {
        section.fault("max_object_size", "must be between 1B and 64MiB");
    } else if cache.object_bytes_max > cache.max_bytes {
        section.fault("max_object_size", "must not be larger than max_size");
    }
    if cache.ttl < TTL_MIN {
        section.fault("ttl", "must be at least 1ms");
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::Shared;
    use std::time::Duration;

    fn parse(text: &str) -> Result<Config, String> {
        let text = format!("backends: [{{name: disk, kind: fs, root: /tmp/x}}]\n{text}");
        Config::parse(&text, |_| None).map_err(|faults| faults.to_string())
    }

    #[test]
    fn without_a_word_there_is_no_cache() {
        let cache = parse("").expect("valid").cache;
        assert!(!cache.enabled);
        assert_eq!((cache.max_bytes, cache.object_bytes_max), (256 << 20, 1 << 20));
        assert_eq!((cache.ttl, cache.shared), (Duration::from_mins(5), Shared::None));
    }

    #[test]
    fn sharing_needs_a_redis_and_its_password_stays_hidden() {
        let config = parse("cache: {enabled: true, shared: redis}\nredis: {url: 'redis://:secret@h:6379/1'}\n");
        let config = config.expect("valid");
        assert!(matches!(&config.cache.shared, Shared::Redis { url } if url.contains("secret")));
        assert!(!format!("{config:?}").contains("secret"));
        let faults = parse("cache: {shared: redis}\n").expect_err("no url");
        assert!(faults.contains("redis.url: is required by cache.shared: redis"), "{faults}");
        assert_eq!(parse("redis: {url: 'redis://h'}\n").expect("valid").cache.shared, Shared::None);
    }

    #[test]
    fn values_that_nobody_means_are_faults() {
        for (settings, path) in [
            ("cache: {shared: memcached}\n", "cache.shared: "),
            ("cache: {max_size: 1KiB}\n", "cache.max_object_size: must not be larger"),
            ("cache: {max_object_size: 0}\n", "cache.max_object_size: must be between"),
            ("cache: {max_size: 1TiB, max_object_size: 1GiB}\n", "cache.max_object_size: must be between"),
            ("cache: {ttl: 0ms}\n", "cache.ttl: "),
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
