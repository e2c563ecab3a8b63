//! Test fixture: a catalog with a manual clock.

use std::sync::Arc;

use s3o_catalog::conformance::fixture::{Fixture, clock};
use s3o_catalog::{Mode, Sqlite, SqliteOptions};
use s3o_model::entropy::SeededEntropy;
use s3o_model::ids::IdSource;

use crate::Report;

/// An empty SQLite catalog in a temporary folder.
pub(crate) fn fixture() -> Fixture {
    let (folder, clock) = (tempfile::tempdir().expect("a folder"), clock());
    let path = folder.path().join("catalog.db");
    let driver = Sqlite::open(&SqliteOptions { path, mode: Mode::Inline, clock: clock.clone() }).expect("a catalog");
    Fixture::over(Arc::new(driver), clock, folder)
}

/// Identifiers from the fixture's clock and a fixed seed.
pub(crate) fn ids(fixture: &Fixture) -> IdSource {
    IdSource::new(fixture.clock.clone(), Arc::new(SeededEntropy::new(7)))
}

/// Number of items by outcome.
pub(crate) fn counted(report: &Report) -> Vec<(&'static str, u64)> {
    report.items.iter().map(|(outcome, count)| (*outcome, *count)).collect()
}

/// Names of the report's audit events.
pub(crate) fn event_names(report: &Report) -> Vec<&'static str> {
    report.events.iter().map(|event| event.name).collect()
}
