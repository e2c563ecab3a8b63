//! Sizes and durations in configuration files.

/// Parses `90s`, `5m`, `24h`, `500ms`.
pub use s3o_model::duration::parse as duration;
/// Parses `10GiB`, `500MB`, or a number of bytes.
pub use s3o_model::size::{format_exact, parse as size};
