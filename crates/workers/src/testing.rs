//! What tests of workers begin with: a catalog with a clock that is moved by hand.

use std::sync::Arc;

use s3o_catalog::conformance::scene::{Scene, clock};
use s3o_catalog::{Mode, Sqlite, SqliteOptions};
use s3o_model::entropy::SeededEntropy;
use s3o_model::ids::IdSource;

use crate::Report;

/// A fresh catalog.
pub(crate) fn scene() -> Scene {
    let (folder, clock) = (tempfile::tempdir().expect("a folder"), clock());
    let path = folder.path().join("catalog.db");
    let driver = Sqlite::open(&SqliteOptions { path, mode: Mode::Inline, clock: clock.clone() }).expect("a catalog");
    Scene::over(Arc::new(driver), clock, folder)
}

/// Fresh identifiers by that clock.
pub(crate) fn ids(scene: &Scene) -> IdSource {
    IdSource::new(scene.clock.clone(), Arc::new(SeededEntropy::new(7)))
}

/// How many items came to which end.
pub(crate) fn counted(report: &Report) -> Vec<(&'static str, u64)> {
    report.items.iter().map(|(outcome, count)| (*outcome, *count)).collect()
}

/// The names of what happened.
pub(crate) fn told(report: &Report) -> Vec<&'static str> {
    report.events.iter().map(|event| event.name).collect()
}
