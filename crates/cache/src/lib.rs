//! Small hot bodies at hand: in memory, and shared between instances in Redis.
//!
//! A body is kept under the identifier of its content, which never changes and is never used
//! again. Who reads an object has asked the catalog which content that is, so an entry of content
//! that is gone is out of reach: it costs room until its time is over and can never be served.

mod cache;
#[cfg(test)]
mod conformance;
mod errands;
mod memory;
mod metrics;
mod redis;
mod single_flight;
mod tier;

pub use cache::{Cache, Parts as CacheParts, Settings as CacheSettings, Standing, Wanted};
pub use memory::Memory;
pub use redis::{InvalidUrl, Redis, check_url, ping};
pub use tier::{Entry, FORGET_MAX, Tier, TierError};
