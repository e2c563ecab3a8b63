//! The schema, one file per step. Steps are only added, never edited.

/// What SQLite runs, in order; the position (from 1) is the schema's version.
pub const SQLITE: &[&str] = &[include_str!("sqlite/0001_foundation.sql")];
