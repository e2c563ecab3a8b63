//! Removes the files and folders that a failed start created.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use s3o_catalog::Catalog;

use crate::config::{Config, Database};
use crate::credentials::Credentials;

/// The paths that did not exist before the start. Dropping it removes them, unless it was disarmed.
///
/// Files of a SQLite catalog and the credentials beside it are removed only while this process holds the catalog: they
/// could belong to another process. The audit file and folders are removed only if they are empty.
pub(super) struct StartRollback {
    database: Option<DatabaseFiles>,
    credentials: Option<PathBuf>,
    audit: Option<PathBuf>,
    folders: BTreeSet<PathBuf>,
    catalog: Option<Arc<Catalog>>,
    is_disarmed: bool,
}

impl StartRollback {
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
            is_disarmed: false,
        }
    }

    /// Records that this process holds the catalog from now on, and returns the catalog.
    pub fn hold(&mut self, catalog: Arc<Catalog>) -> Arc<Catalog> {
        self.catalog = Some(Arc::clone(&catalog));
        catalog
    }

    /// Keeps everything, because the start succeeded.
    pub fn disarm(&mut self) {
        self.is_disarmed = true;
    }

    fn remove(&self) {
        if self.catalog.is_some() {
            self.database.iter().for_each(DatabaseFiles::remove);
            self.credentials.iter().for_each(|path| remove_file(path));
        }
        let is_empty = |path: &&PathBuf| std::fs::metadata(path).is_ok_and(|found| found.len() == 0);
        self.audit.iter().filter(is_empty).for_each(|path| remove_file(path));
        // A folder sorts before its subfolders.
        for folder in self.folders.iter().rev() {
            // Fails for a folder that is missing or not empty, as it should.
            std::fs::remove_dir(folder).unwrap_or_default();
        }
    }
}

impl Drop for StartRollback {
    fn drop(&mut self) {
        if !self.is_disarmed {
            self.remove();
        }
    }
}

/// The files of a new SQLite database: the database and new files beside it whose names start with its name.
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
        Err(error) => tracing::warn!(path = %path.display(), %error, "cannot remove file of failed start"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{DatabaseFiles, StartRollback};
    use crate::config::Config;

    fn touch(path: &Path) {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, "").expect("written");
    }

    #[test]
    fn failed_start_removes_empty_audit_file_and_new_folders() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("a/b");
        let config = Config::embedded(&data);
        let rollback = StartRollback::new(&config, &data);
        touch(&config.audit);
        drop(rollback);
        assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0);
    }

    #[test]
    fn failed_start_keeps_files_of_other_processes() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data");
        let config = Config::embedded(&data);
        let rollback = StartRollback::new(&config, &data);
        touch(&config.audit);
        std::fs::write(&config.audit, "{}\n").expect("written");
        touch(&data.join("catalog.db"));
        drop(rollback);
        assert!(config.audit.exists() && data.join("catalog.db").exists(), "this process never held the catalog");
    }

    #[test]
    fn disarmed_rollback_removes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data");
        let config = Config::embedded(&data);
        let mut rollback = StartRollback::new(&config, &data);
        touch(&config.audit);
        rollback.disarm();
        drop(rollback);
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
