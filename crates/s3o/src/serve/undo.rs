//! A start that fails removes what it created.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use s3o_catalog::Catalog;

use crate::config::{Config, Database};
use crate::credentials::Credentials;

/// What did not exist before the start. Dropping it removes that again, unless the start succeeded.
///
/// Files of a SQLite catalog and the credentials beside it are removed only while this process holds the catalog, so that
/// no file of another process is removed. The audit file is removed only if it is empty, folders only if they are.
pub(super) struct StartUndo {
    database: Option<DatabaseFiles>,
    credentials: Option<PathBuf>,
    audit: Option<PathBuf>,
    folders: BTreeSet<PathBuf>,
    catalog: Option<Arc<Catalog>>,
    is_kept: bool,
}

impl StartUndo {
    pub fn new(config: &Config, data: &Path) -> Self {
        let database = match &config.database {
            Database::Sqlite(path) => Some(path.clone()),
            Database::Postgres { .. } => None,
        };
        let credentials = Credentials::path(data);
        let paths = [&credentials, &config.audit].into_iter().chain(&database);
        let folders = paths.flat_map(|path| missing_folders(path)).collect();
        let absent = |path: PathBuf| (!path.exists()).then_some(path);
        Self {
            database: database.and_then(absent).map(DatabaseFiles::new),
            credentials: absent(credentials),
            audit: absent(config.audit.clone()),
            folders,
            catalog: None,
            is_kept: false,
        }
    }

    /// From now on this process holds the catalog.
    pub fn hold(&mut self, catalog: &Arc<Catalog>) {
        self.catalog = Some(Arc::clone(catalog));
    }

    /// The start succeeded: everything stays.
    pub fn keep(mut self) {
        self.is_kept = true;
    }

    fn remove(&self) {
        if self.catalog.is_some() {
            self.database.iter().for_each(DatabaseFiles::remove);
            self.credentials.iter().for_each(|path| remove_file(path));
        }
        let is_empty = |path: &&PathBuf| std::fs::metadata(path).is_ok_and(|found| found.len() == 0);
        self.audit.iter().filter(is_empty).for_each(|path| remove_file(path));
        // A path sorts before the paths below it.
        for folder in self.folders.iter().rev() {
            // One that is missing or holds something else stays as it is.
            std::fs::remove_dir(folder).unwrap_or_default();
        }
    }
}

impl Drop for StartUndo {
    fn drop(&mut self) {
        if !self.is_kept {
            self.remove();
        }
    }
}

/// The files of a SQLite database that did not exist: the database and what lies beside it under names that begin alike.
pub(super) struct DatabaseFiles {
    path: PathBuf,
    existing: BTreeSet<OsString>,
}

impl DatabaseFiles {
    pub fn new(path: PathBuf) -> Self {
        let existing = names_beside(&path).collect();
        Self { path, existing }
    }

    pub fn remove(&self) {
        let folder = folder_of(&self.path);
        for name in names_beside(&self.path).filter(|name| !self.existing.contains(name)) {
            remove_file(&folder.join(name));
        }
    }
}

fn names_beside(path: &Path) -> impl Iterator<Item = OsString> {
    let start = path.file_name().unwrap_or_default().to_owned();
    let entries = std::fs::read_dir(folder_of(path)).into_iter().flatten().flatten().map(|entry| entry.file_name());
    entries.filter(move |name| name.as_encoded_bytes().starts_with(start.as_encoded_bytes()))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The folders above a path that do not exist.
fn missing_folders(path: &Path) -> impl Iterator<Item = PathBuf> {
    let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    path.ancestors().skip(1).take_while(is_missing).map(Path::to_owned)
}

fn remove_file(path: &Path) {
    match std::fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(path = %path.display(), %error, "file of a failed start not removed"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{DatabaseFiles, StartUndo};
    use crate::config::Config;

    fn touch(path: &Path) {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, "").expect("written");
    }

    #[test]
    fn an_empty_audit_file_and_new_folders_are_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("a/b");
        let config = Config::embedded(&data);
        let undo = StartUndo::new(&config, &data);
        touch(&config.audit);
        drop(undo);
        assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0);
    }

    #[test]
    fn what_others_wrote_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data");
        let config = Config::embedded(&data);
        let undo = StartUndo::new(&config, &data);
        touch(&config.audit);
        std::fs::write(&config.audit, "{}\n").expect("written");
        touch(&data.join("catalog.db"));
        drop(undo);
        assert!(config.audit.exists() && data.join("catalog.db").exists(), "the catalog was never held");
    }

    #[test]
    fn a_start_that_succeeded_keeps_everything() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data");
        let config = Config::embedded(&data);
        let undo = StartUndo::new(&config, &data);
        touch(&config.audit);
        undo.keep();
        assert!(config.audit.exists());
    }

    #[test]
    fn files_beside_a_new_database_are_removed_with_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        touch(&path("catalog.db.old"));
        touch(&path("other"));
        let files = DatabaseFiles::new(path("catalog.db"));
        for name in ["catalog.db", "catalog.db-wal", "catalog.db-shm"] {
            touch(&path(name));
        }
        files.remove();
        let mut left: Vec<_> = std::fs::read_dir(folder.path()).expect("readable").flatten().collect();
        left.sort_by_key(std::fs::DirEntry::file_name);
        let left: Vec<_> = left.iter().map(std::fs::DirEntry::file_name).collect();
        assert_eq!(left, ["catalog.db.old", "other"]);
    }
}
