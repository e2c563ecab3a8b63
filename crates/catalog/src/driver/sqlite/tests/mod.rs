//! The conformance suite on SQLite in both modes, threaded and inline, and tests of this driver alone.

mod damage;
mod groups;
mod killed;
mod migrations;
mod opening;
mod plans;
mod tables;

use std::future::{Ready, ready};
use std::path::Path;
use std::sync::Arc;

use s3o_model::clock::Clock;

use super::{Mode, Sqlite, SqliteOptions};
use crate::conformance::fixture::{Fixture, clock};

fn options(folder: &Path, mode: Mode, clock: Arc<dyn Clock>) -> SqliteOptions {
    SqliteOptions { path: folder.join("catalog.db"), mode, clock }
}

fn fixture(mode: Mode) -> Fixture {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = clock();
    let driver = Sqlite::open(&options(folder.path(), mode, clock.clone())).expect("a catalog");
    Fixture::over(Arc::new(driver), clock, folder)
}

fn threaded_fixture() -> Ready<Fixture> {
    ready(fixture(Mode::Threaded))
}

pub(crate) fn inline_fixture() -> Ready<Fixture> {
    ready(fixture(Mode::Inline))
}

mod threaded {
    crate::conformance!(crate::driver::sqlite::tests::threaded_fixture);
}

mod inline {
    crate::conformance!(crate::driver::sqlite::tests::inline_fixture);
}
