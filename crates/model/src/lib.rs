//! The words of s3o: names, records and pure decisions.
//!
//! Nothing here waits, reads a database or speaks a protocol, so every decision can be tested
//! by calling it.

pub mod backoff;
pub mod bucket;
pub mod checksum;
pub mod claim;
pub mod cleanup;
pub mod clock;
pub mod clock_hold;
pub mod conditions;
pub mod content;
pub mod dead_letter;
pub mod duration;
pub mod entropy;
pub mod escape;
pub mod etag;
pub mod expiry;
pub mod ids;
pub mod intent;
pub mod keeping;
pub mod lifecycle;
pub mod listing;
pub mod multipart;
pub mod names;
pub mod object;
pub mod physical_key;
pub mod placement;
pub mod proof;
pub mod quota;
pub mod range;
pub mod recovery;
pub mod shared;
pub mod verify;
