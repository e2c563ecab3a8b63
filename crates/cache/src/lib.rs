//! Cache for small bodies: in memory, and shared between instances in Redis; usage totals in Redis.
//!
//! Entries are keyed by content ID, which is immutable and never reused. Every read resolves the key in
//! the catalog first, so the entry of a deleted content is never served; it only takes space until it
//! expires.

mod cache;
#[cfg(test)]
mod conformance;
mod memory;
mod metrics;
mod redis;
mod single_flight;
mod tier;
mod write_behind;

pub use cache::{BodyRequest, Cache, CacheParts, CacheSettings, CacheStats};
pub use memory::MemoryTier;
pub use redis::{InvalidRedisUrl, Redis, RedisUsage, check_url, ping};
pub use tier::{CacheEntry, REMOVE_MAX, Tier, TierError};
