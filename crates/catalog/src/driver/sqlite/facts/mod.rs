//! The conformance suite on both ways to run SQLite, and facts that are SQLite's own.

mod damage;
mod groups;
mod killed;
mod opening;
mod plans;
mod tables;

use std::future::{Ready, ready};
use std::path::Path;
use std::sync::Arc;

use s3o_model::clock::Clock;

use super::{Mode, Sqlite, SqliteOptions};
use crate::conformance::scene::{Scene, clock};

fn options(folder: &Path, mode: Mode, clock: Arc<dyn Clock>) -> SqliteOptions {
    SqliteOptions { path: folder.join("catalog.db"), mode, clock }
}

fn scene(mode: Mode) -> Scene {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = clock();
    let driver = Sqlite::open(&options(folder.path(), mode, clock.clone())).expect("a catalog");
    Scene::over(Arc::new(driver), clock, folder)
}

fn threaded_scene() -> Ready<Scene> {
    ready(scene(Mode::Threaded))
}

pub(crate) fn inline_scene() -> Ready<Scene> {
    ready(scene(Mode::Inline))
}

mod threaded {
    crate::conformance!(crate::driver::sqlite::facts::threaded_scene);
}

mod inline {
    crate::conformance!(crate::driver::sqlite::facts::inline_scene);
}
