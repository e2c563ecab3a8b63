//! Rules about text: the length of files and lines, marks of unfinished work, names without meaning, where a dependency
//! may be used.

use crate::source::{SourceFile, Violation};

/// A longer file has more than one purpose.
const FILE_LINES_MAX: usize = 300;
/// Two files fit side by side on a screen.
const LINE_CHARACTERS_MAX: usize = 120;

/// Prefixes of names that say nothing.
const EMPTY_WORDS: [&str; 5] = ["manager", "helper", "util", "process_", "do_"];

/// Uses that are confined to some folders, so that replacing a dependency changes one place.
const BOUNDARIES: [(&str, &[&str]); 11] = [
    ("rusqlite", &["crates/catalog/"]),
    ("redis::aio", &["crates/cache/src/redis"]),
    ("quick_cache", &["crates/cache/src/memory"]),
    ("s3s::", &["crates/server/src/s3/"]),
    ("hyper_rustls", &["crates/backend/src/s3/"]),
    ("StatusCode", &["crates/server/", "crates/backend/src/s3/"]),
    ("SystemTime::now", &["crates/model/src/clock.rs"]),
    ("getrandom::", &["crates/model/src/entropy.rs"]),
    (
        "tokio::spawn",
        &[
            "crates/workers/src/runner",
            "crates/server/",
            "crates/engine/src/tasks.rs",
            "crates/s3o/src/app.rs",
            "crates/s3o/src/app/open.rs",
            "crates/backend/src/s3/",
            "crates/catalog/src/locks/postgres.rs",
        ],
    ),
    ("std::env::var(", &["crates/s3o/src/config/", "crates/s3o/src/logging.rs", "crates/backend/src/conformance"]),
    ("anyhow", &[]),
];

pub fn long_files(file: &SourceFile) -> Vec<Violation> {
    let lines = file.text.lines().count();
    if lines > FILE_LINES_MAX { vec![Violation::new(file, 0, format!("{lines} lines"))] } else { Vec::new() }
}

pub fn long_lines(file: &SourceFile) -> Vec<Violation> {
    let lines = file.text.lines().enumerate().map(|(number, line)| (number, line.chars().count()));
    let long = lines.filter(|(_, characters)| *characters > LINE_CHARACTERS_MAX);
    long.map(|(number, characters)| Violation::new(file, number + 1, format!("{characters} characters"))).collect()
}

/// Files that do not start with a description of their purpose.
pub fn missing_file_docs(file: &SourceFile) -> Vec<Violation> {
    if file.text.starts_with("//!") { Vec::new() } else { vec![Violation::new(file, 1, "starts without //!")] }
}

/// Code that uses a dependency or a source of side effects outside of its folder.
pub fn crossed_boundaries(file: &SourceFile) -> Vec<Violation> {
    let path = &file.path;
    if path.starts_with("tests/") || path.contains("/facts") || path.contains("/tests") {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (used, allowed) in BOUNDARIES.iter().filter(|(_, allowed)| !allowed.iter().any(|ok| path.starts_with(ok))) {
        let code = file.text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
        let lines = code.filter(|(_, line)| line.contains(used));
        found.extend(lines.map(|(at, _)| Violation::new(file, at + 1, format!("{used} belongs to {allowed:?}"))));
    }
    found
}

pub fn unfinished_marks(file: &SourceFile) -> Vec<Violation> {
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("#[ig", "nore"),
    ];
    let found = marks.iter().filter(|mark| file.text.contains(*mark));
    found.map(|mark| Violation::new(file, 0, *mark)).collect()
}

pub fn empty_names(file: &SourceFile) -> Vec<Violation> {
    let keywords = ["fn ", "struct ", "mod ", "enum ", "trait "];
    let mut found = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        let line = line.trim_start();
        let line = line.strip_prefix("pub ").unwrap_or(line);
        let Some(rest) = keywords.iter().find_map(|keyword| line.strip_prefix(keyword)) else { continue };
        let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
        if EMPTY_WORDS.iter().any(|word| name.to_lowercase().starts_with(word)) {
            found.push(Violation::new(file, number + 1, name));
        }
    }
    found
}

/// Results of awaited calls that are assigned to nothing: an error would be lost.
pub fn discarded_results(file: &SourceFile) -> Vec<Violation> {
    let discarded = concat!("let _", " = ");
    let lines = file.text.lines().enumerate();
    let found = lines.filter(|(_, line)| line.contains(discarded) && line.contains(".await"));
    found.map(|(number, line)| Violation::new(file, number + 1, line.trim())).collect()
}

#[cfg(test)]
mod tests {
    use super::{
        SourceFile, crossed_boundaries, discarded_results, empty_names, long_files, long_lines, missing_file_docs,
        unfinished_marks,
    };

    fn file(text: &str) -> SourceFile {
        SourceFile::new("crates/engine/src/a.rs", text)
    }

    #[test]
    fn file_of_301_lines_is_found_and_of_300_is_not() {
        assert_eq!(long_files(&file(&"\n".repeat(300))), []);
        assert_eq!(long_files(&file(&"\n".repeat(301))).len(), 1);
    }

    #[test]
    fn line_of_121_characters_is_found_and_of_120_is_not() {
        assert_eq!(long_lines(&file(&"é".repeat(120))), []);
        assert_eq!(long_lines(&file(&format!("\n{}", "é".repeat(121))))[0].line, 2);
    }

    #[test]
    fn file_without_description_is_found() {
        assert_eq!(missing_file_docs(&file("//! A.\n")), []);
        assert_eq!(missing_file_docs(&file("use a;\n")).len(), 1);
    }

    #[test]
    fn dependency_outside_its_folder_is_found_but_not_in_comments() {
        assert_eq!(crossed_boundaries(&file("// rusqlite\n")), []);
        assert_eq!(crossed_boundaries(&file("use rusqlite::Connection;\n")).len(), 1);
    }

    #[test]
    fn unfinished_mark_is_found() {
        assert_eq!(unfinished_marks(&file(concat!("// TO", "DO later\n"))).len(), 1);
    }

    #[test]
    fn name_without_meaning_is_found() {
        assert_eq!(empty_names(&file("pub struct HelperThing;\nfn settle() {}\n")).len(), 1);
    }

    #[test]
    fn discarded_result_is_found() {
        assert_eq!(discarded_results(&file(concat!("let _", " = delete().await;\n"))).len(), 1);
    }
}
