//! Documents refer to files, functions and tests by name: what they name exists, and every guarantee and failure mode
//! names a test.

#[path = "doc_references/links.rs"]
mod links;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Documents whose entries name their tests.
const LISTS: [&str; 2] = ["docs/failure-modes.md", "docs/guarantees.md"];
/// Extensions of names that are files.
const FILES: [&str; 5] = [".rs", ".py", ".sql", ".md", ".sh"];
/// Marks an entry without a test.
const OPEN: &str = "*open*";
/// Maximum number of lines between the attribute of a test and its function.
const ATTRIBUTE_LINES_MAX: usize = 3;

/// The heading of the table of hops in `ARCHITECTURE.md`.
const PUT_HEADING: &str = "## A PUT, step by step";
/// A reader who follows a PUT from the socket to the commit opens no more files.
const PUT_FILES_MAX: usize = 25;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the workspace").to_owned()
}

fn text_of(document: &str) -> String {
    fs::read_to_string(root().join(document)).unwrap_or_else(|error| panic!("{document}: {error}"))
}

/// The path of every file that a document may name.
fn files() -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = ["crates", "tests", "docs", "scripts"].map(|name| root().join(name)).to_vec();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("read a folder") {
            let path = entry.expect("read an entry").path();
            let name = path.strip_prefix(root()).expect("below the root").display().to_string();
            if path.is_dir() {
                folders.push(path);
            } else if FILES.iter().any(|ending| name.ends_with(ending)) {
                found.push(name);
            }
        }
    }
    found
}

/// The one file whose path ends with this name.
fn named<'a>(files: &'a [String], name: &str) -> Result<&'a str, String> {
    let ending = format!("/{name}");
    let mut found = files.iter().filter(|path| *path == name || path.ends_with(&ending));
    match (found.next(), found.next()) {
        (Some(path), None) => Ok(path),
        (None, _) => Err(format!("there is no file {name}")),
        (Some(one), Some(other)) => Err(format!("{name} is ambiguous: {one} and {other}")),
    }
}

fn is_rust(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "rs")
}

/// Whether a file has a test function of this name.
fn has_test(path: &str, name: &str) -> bool {
    let text = fs::read_to_string(root().join(path)).expect("text");
    if Path::new(path).extension().is_some_and(|extension| extension == "py") {
        return text.contains(&format!("def {name}("));
    }
    let lines: Vec<&str> = text.lines().collect();
    let function = format!("fn {name}(");
    // Tests of a conformance suite get their attribute from the macro that runs the suite on a driver.
    let has_attribute = |at: usize| {
        path.contains("/conformance/")
            || lines[at.saturating_sub(ATTRIBUTE_LINES_MAX)..at]
                .iter()
                .any(|line| line.contains("#[test]") || line.contains("#[tokio::test"))
    };
    lines.iter().enumerate().any(|(at, line)| line.contains(&function) && has_attribute(at))
}

/// Every name in backticks.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Why a name is wrong; None if it is right, or neither a file nor a test.
fn error_in(files: &[String], name: &str) -> Option<String> {
    if let Some((file, test)) = name.split_once("::") {
        return match named(files, file) {
            Ok(path) if has_test(path, test) => None,
            Ok(path) => Some(format!("{path} has no test {test}")),
            Err(error) => Some(error),
        };
    }
    let is_file = FILES.iter().any(|ending| name.ends_with(ending));
    if is_file { named(files, name).err() } else { None }
}

/// The entries of a list: rows whose first cell is a letter with a number.
fn entries(text: &str) -> Vec<(&str, &str)> {
    text.lines()
        .filter_map(|line| {
            let (id, rest) = line.strip_prefix("| ")?.split_once(" | ")?;
            let (letter, number) = id.split_at_checked(1)?;
            let is_entry = letter.chars().all(char::is_uppercase) && number.parse::<u32>().is_ok();
            is_entry.then_some((id, rest))
        })
        .collect()
}

#[test]
fn every_test_and_file_in_the_lists_exists() {
    let files = files();
    let mut errors = Vec::new();
    let mut tests = 0;
    for list in LISTS {
        let text = text_of(list);
        errors.extend(names(&text).filter_map(|name| error_in(&files, name)).map(|error| format!("{list}: {error}")));
        tests += names(&text).filter(|name| name.contains("::")).count();
    }
    assert!(errors.is_empty(), "\n{}", errors.join("\n"));
    assert!(tests > 200, "the lists name only {tests} tests");
}

#[test]
fn every_entry_names_a_test_or_is_open() {
    let files = files();
    for list in LISTS {
        let text = text_of(list);
        let mut seen = BTreeSet::new();
        for (id, entry) in entries(&text) {
            assert!(seen.insert(id), "{list}: {id} occurs twice");
            let reason = entry.rsplit_once(" | ").map_or(entry, |(_, reason)| reason);
            // The name of a file is not enough: the entry names a test in it.
            let is_tested = names(reason).any(|name| name.contains("::") && error_in(&files, name).is_none());
            assert!(is_tested || reason.contains(OPEN), "{list}: {id} names no test: {reason}");
        }
        assert!(seen.len() > 30, "{list} has only {} entries", seen.len());
    }
}

#[test]
fn missing_names_are_found() {
    let files = files();
    for name in
        ["faults/late.rs::no_such_test", "no/such/file.rs::test", "crates/nowhere.rs", "tests/doc_references.rs::root"]
    {
        assert!(error_in(&files, name).is_some(), "{name}");
    }
    for name in ["doc_references.rs::missing_names_are_found", "s3o_quota_orphan_bytes", "tests/tidy.rs"] {
        assert_eq!(error_in(&files, name), None, "{name}");
    }
}

/// The rows of the table below the heading.
fn hop_rows(text: &str) -> impl Iterator<Item = &str> {
    let section = text.split_once(PUT_HEADING).map_or("", |(_, rest)| rest);
    let section = section.split("\n## ").next().unwrap_or_default();
    section.lines().filter(|line| line.starts_with('|'))
}

/// The hops of a table: backticked file and backticked function of each row below the heading.
fn hops(text: &str) -> Vec<(&str, &str)> {
    hop_rows(text)
        .filter_map(|row| {
            let mut names = names(row);
            let file = names.find(|name| is_rust(name))?;
            Some((file, names.next().unwrap_or_default()))
        })
        .collect()
}

/// Whether a file declares this function; `Type::function` and `function()` name the function.
fn has_function(text: &str, name: &str) -> bool {
    let name = name.trim_end_matches("()").rsplit("::").next().unwrap_or_default();
    let declaration = format!("fn {name}");
    let ends_there = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    !name.is_empty() && text.match_indices(&declaration).any(|(at, _)| ends_there(&text[at + declaration.len()..]))
}

/// What is wrong with the table of hops in a document.
fn hop_errors(text: &str, files: &[String]) -> Vec<String> {
    let hops = hops(text);
    if hops.is_empty() {
        return vec![format!("no table of hops (file, function) below \"{PUT_HEADING}\"")];
    }
    let mut errors = Vec::new();
    let mut distinct = BTreeSet::new();
    for (file, function) in hops {
        match named(files, file) {
            Ok(path) if has_function(&text_of(path), function) => drop(distinct.insert(path)),
            Ok(path) => errors.push(format!("{path} has no function {function:?}")),
            Err(error) => errors.push(error),
        }
    }
    let folders = hop_rows(text).flat_map(names).filter(|name| name.ends_with('/'));
    errors.extend(folders.filter(|name| !root().join(name).is_dir()).map(|name| format!("there is no folder {name}")));
    if distinct.len() > PUT_FILES_MAX {
        errors.push(format!("a PUT passes {} files, at most {PUT_FILES_MAX} are allowed", distinct.len()));
    }
    errors
}

#[test]
fn put_walkthrough_names_existing_functions_in_at_most_25_files() {
    let errors = hop_errors(&text_of("ARCHITECTURE.md"), &files());
    assert!(errors.is_empty(), "ARCHITECTURE.md, \"{PUT_HEADING}\":\n{}", errors.join("\n"));
}

#[test]
fn wrong_hops_are_found() {
    let files = files();
    let table = |row: &str| format!("{PUT_HEADING}\n\n| file | function |\n|---|---|\n{row}\n\n## Next\n");
    let right = "| 1 | `tests/doc_references.rs` | `hop_errors` | reads the table |";
    assert_eq!(hop_errors(&table(right), &files), [] as [String; 0]);
    for wrong in [
        "",
        "| `tests/nowhere.rs` | `run` |",
        "| `tests/doc_references.rs` | `hop_errors` | `no/folder/` |",
        "| `tests/doc_references.rs` | `hop_error` |",
        "| `tests/tidy.rs` |",
    ] {
        assert_eq!(hop_errors(&table(wrong), &files).len(), 1, "{wrong}");
    }
    let many: Vec<String> = files
        .iter()
        .filter(|path| path.ends_with("/lib.rs") || path.starts_with("crates/") && is_rust(path))
        .filter_map(|path| {
            let text = text_of(path);
            let function = text.split_once("fn ")?.1.split(['(', '<']).next()?.to_owned();
            has_function(&text, &function).then(|| format!("| `{path}` | `{function}` |"))
        })
        .take(PUT_FILES_MAX + 1)
        .collect();
    let errors = hop_errors(&table(&many.join("\n")), &files);
    assert_eq!(errors, [format!("a PUT passes {} files, at most {PUT_FILES_MAX} are allowed", PUT_FILES_MAX + 1)]);
}
