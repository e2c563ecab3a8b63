//! Types and pure decisions of s3o.
//!
//! This crate has no async code, no database and no protocol, so every decision can be tested by
//! calling it.

pub mod backoff;
pub mod bucket;
pub mod checksum;
pub mod circuit;
pub mod claim;
pub mod cleanup;
pub mod clock;
pub mod clock_hold;
pub mod conditions;
pub mod content;
pub mod copy_check;
pub mod dead_letter;
pub mod duration;
pub mod entropy;
pub mod escape;
pub mod etag;
pub mod expiry;
pub mod ids;
pub mod intent;
pub mod latency;
pub mod lifecycle;
pub mod listing;
pub mod multipart;
pub mod names;
pub mod object;
pub mod outage;
pub mod physical_key;
pub mod placement;
pub mod quota;
pub mod range;
pub mod rebalance;
pub mod reconcile;
pub mod recovery;
pub mod shared;
pub mod size;
pub mod target;
pub mod ttl;
pub mod usage;
pub mod verify;
pub mod write_outcome;
