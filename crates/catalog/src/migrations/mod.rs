//! Migrations, one file per step. Steps are only added, never edited.

/// Steps of SQLite, in order; the position (from 1) is the schema version.
pub const SQLITE: &[&str] = &[
    include_str!("sqlite/0001_foundation.sql"),
    include_str!("sqlite/0002_worker_runs.sql"),
    include_str!("sqlite/0003_dead_letters.sql"),
    include_str!("sqlite/0004_drafts.sql"),
    include_str!("sqlite/0005_audits.sql"),
    include_str!("sqlite/0006_lifecycle.sql"),
    include_str!("sqlite/0007_expiry.sql"),
    include_str!("sqlite/0008_generated_credentials.sql"),
    include_str!("sqlite/0009_run_ends.sql"),
    include_str!("sqlite/0010_identity.sql"),
    include_str!("sqlite/0011_generation.sql"),
    include_str!("sqlite/0012_clock_notes.sql"),
    include_str!("sqlite/0013_copies.sql"),
    include_str!("sqlite/0014_backend_views.sql"),
    include_str!("sqlite/0015_usage.sql"),
    include_str!("sqlite/0016_targets.sql"),
    include_str!("sqlite/0017_copy_epoch.sql"),
    include_str!("sqlite/0018_reconcile.sql"),
];

/// Steps of PostgreSQL, in order; the position (from 1) is the schema version.
pub const POSTGRES: &[&str] = &[
    include_str!("postgres/0001_foundation.sql"),
    include_str!("postgres/0002_worker_runs.sql"),
    include_str!("postgres/0003_dead_letters.sql"),
    include_str!("postgres/0004_drafts.sql"),
    include_str!("postgres/0005_audits.sql"),
    include_str!("postgres/0006_lifecycle.sql"),
    include_str!("postgres/0007_expiry.sql"),
    include_str!("postgres/0008_generated_credentials.sql"),
    include_str!("postgres/0009_run_ends.sql"),
    include_str!("postgres/0010_identity.sql"),
    include_str!("postgres/0011_generation.sql"),
    include_str!("postgres/0012_clock_notes.sql"),
    include_str!("postgres/0013_copies.sql"),
    include_str!("postgres/0014_backend_views.sql"),
    include_str!("postgres/0015_usage.sql"),
    include_str!("postgres/0016_targets.sql"),
    include_str!("postgres/0017_copy_epoch.sql"),
    include_str!("postgres/0018_reconcile.sql"),
];

#[cfg(test)]
pub(crate) mod tests;
