//! The lists of hazards and promises judged by a test: whatever they name exists, and nothing is listed without a reason.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The lists.
const LISTS: [&str; 2] = ["docs/hazards.md", "docs/promises.md"];
/// Endings of names that are files.
const FILES: [&str; 5] = [".rs", ".py", ".sql", ".md", ".sh"];
/// What an entry says that nothing shows yet.
const OPEN: &str = "*open*";
/// How far above a function the mark of a test may stand.
const MARK_LINES_MAX: usize = 3;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace").to_owned()
}

fn text_of(list: &str) -> String {
    fs::read_to_string(root().join(list)).expect("a list")
}

/// The path of every file that an entry may name.
fn files() -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = ["crates", "tests", "docs", "scripts"].map(|name| root().join(name)).to_vec();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
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

/// The one file whose path ends like this.
fn named<'a>(files: &'a [String], name: &str) -> Result<&'a str, String> {
    let ending = format!("/{name}");
    let mut found = files.iter().filter(|path| *path == name || path.ends_with(&ending));
    match (found.next(), found.next()) {
        (Some(path), None) => Ok(path),
        (None, _) => Err(format!("there is no file {name}")),
        (Some(one), Some(other)) => Err(format!("{name} is {one} and {other}")),
    }
}

/// Whether a file has a test of this name.
fn has_test(path: &str, fact: &str) -> bool {
    let text = fs::read_to_string(root().join(path)).expect("text");
    if Path::new(path).extension().is_some_and(|extension| extension == "py") {
        return text.contains(&format!("def {fact}("));
    }
    let lines: Vec<&str> = text.lines().collect();
    let function = format!("fn {fact}(");
    // Facts of a conformance suite are stamped elsewhere, and that is tested there.
    let is_marked = |at: usize| {
        path.contains("/conformance/")
            || lines[at.saturating_sub(MARK_LINES_MAX)..at]
                .iter()
                .any(|line| line.contains("#[test]") || line.contains("#[tokio::test"))
    };
    lines.iter().enumerate().any(|(at, line)| line.contains(&function) && is_marked(at))
}

/// Every name in backticks.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// What is wrong with a name; nothing if it is neither a file nor a test.
fn fault(files: &[String], name: &str) -> Option<String> {
    if let Some((file, fact)) = name.split_once("::") {
        return match named(files, file) {
            Ok(path) if has_test(path, fact) => None,
            Ok(path) => Some(format!("{path} has no test {fact}")),
            Err(fault) => Some(fault),
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
fn every_test_and_file_that_a_list_names_exists() {
    let files = files();
    let mut faults = Vec::new();
    let mut tests = 0;
    for list in LISTS {
        let text = text_of(list);
        faults.extend(names(&text).filter_map(|name| fault(&files, name)).map(|fault| format!("{list}: {fault}")));
        tests += names(&text).filter(|name| name.contains("::")).count();
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert!(tests > 200, "the lists name only {tests} tests");
}

#[test]
fn every_entry_names_a_test_or_is_open() {
    let files = files();
    for list in LISTS {
        let text = text_of(list);
        let mut seen = BTreeSet::new();
        for (id, entry) in entries(&text) {
            assert!(seen.insert(id), "{list}: {id} stands twice");
            let reason = entry.rsplit_once(" | ").map_or(entry, |(_, reason)| reason);
            // A file shows nothing by itself: the entry names the test in it.
            let is_tested = names(reason).any(|name| name.contains("::") && fault(&files, name).is_none());
            assert!(is_tested || reason.contains(OPEN), "{list}: {id} names no test: {reason}");
        }
        assert!(seen.len() > 30, "{list} has only {} entries", seen.len());
    }
}

#[test]
fn names_that_do_not_exist_are_noticed() {
    let files = files();
    for name in
        ["faults/late.rs::nobody_wrote_this", "no/such/file.rs::fact", "crates/nowhere.rs", "tests/promised.rs::root"]
    {
        assert!(fault(&files, name).is_some(), "{name}");
    }
    for name in ["promised.rs::names_that_do_not_exist_are_noticed", "s3o_quota_orphan_bytes", "tests/tidy.rs"] {
        assert_eq!(fault(&files, name), None, "{name}");
    }
}
