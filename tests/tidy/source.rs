//! The files of the repository that the rules read.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders that hold no text of ours.
const SKIPPED: [&str; 4] = ["target", "node_modules", "__pycache__", "corpus"];

/// A text file.
pub struct SourceFile {
    /// Relative to the root of the repository.
    pub path: String,
    pub text: String,
}

impl SourceFile {
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    pub fn has_extension(&self, extensions: &[&str]) -> bool {
        Path::new(&self.path).extension().is_some_and(|found| extensions.iter().any(|one| found == *one))
    }
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the workspace").to_owned()
}

/// Every file with one of these extensions or names.
pub fn files(extensions: &[&str]) -> Vec<SourceFile> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("read a folder") {
            let path = entry.expect("read an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if path.is_dir() {
                if !SKIPPED.contains(&name.as_str()) && !name.starts_with('.') {
                    folders.push(path);
                }
                continue;
            }
            let is_wanted = |found: &std::ffi::OsStr| extensions.iter().any(|one| found == *one);
            if path.extension().or_else(|| path.file_name()).is_some_and(is_wanted) {
                let path = path.strip_prefix(root()).expect("below the root").display().to_string();
                let text = fs::read_to_string(root().join(&path)).expect("UTF-8");
                found.push(SourceFile { path, text });
            }
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found
}

pub fn rust_files() -> Vec<SourceFile> {
    let found = files(&["rs"]);
    assert!(found.len() > 50, "found only {} files", found.len());
    found
}

/// A place that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Violation {
    pub path: String,
    /// Starts at 1; 0 for the whole file.
    pub line: usize,
    pub what: String,
}

impl Violation {
    pub fn new(file: &SourceFile, line: usize, what: impl Into<String>) -> Self {
        Self { path: file.path.clone(), line, what: what.into() }
    }
}

/// Fails if there is a violation, and prints all of them.
pub fn assert_none(rule: &str, violations: &[Violation]) {
    let lines: Vec<String> =
        violations.iter().map(|found| format!("{}:{}: {}", found.path, found.line, found.what)).collect();
    assert!(lines.is_empty(), "{rule}, {}:\n{}", lines.len(), lines.join("\n"));
}
