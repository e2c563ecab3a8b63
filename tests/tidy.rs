//! The source judged by a test: style that a machine checks needs no reviewer.

use std::fs;
use std::path::{Path, PathBuf};

/// No source file is longer.
const LINES_MAX: usize = 400;
/// No line is longer.
const LINE_CHARACTERS_MAX: usize = 130;

/// Words that say nothing, in names of items.
const EMPTY_WORDS: [&str; 5] = ["manager", "helper", "util", "process_", "do_"];

/// What may appear only below certain folders.
const ROOMS: [(&str, &[&str]); 11] = [
    ("rusqlite", &["crates/catalog/"]),
    ("redis::aio", &["crates/cache/src/redis"]),
    ("quick_cache", &["crates/cache/src/memory"]),
    ("s3s::", &["crates/server/src/s3/"]),
    ("hyper_rustls", &["crates/backend/src/s3/"]),
    ("StatusCode", &["crates/server/", "crates/backend/src/s3/", "crates/s3o/src/bench"]),
    ("SystemTime::now", &["crates/model/src/clock.rs"]),
    ("getrandom::", &["crates/model/src/entropy.rs"]),
    (
        "tokio::spawn",
        &[
            "crates/workers/src/runner",
            "crates/server/",
            "crates/engine/src/tasks.rs",
            "crates/s3o/src/serve.rs",
            "crates/s3o/src/serve/catalog.rs",
            "crates/s3o/src/tally/counted.rs",
            "crates/s3o/src/bench",
            "crates/backend/src/s3/",
            "crates/catalog/src/locks/postgres.rs",
        ],
    ),
    ("std::env::var(", &["crates/s3o/src/config/", "crates/s3o/src/logging.rs", "crates/backend/src/conformance"]),
    ("anyhow", &[]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace").to_owned()
}

/// Every source file of the workspace with its path from the root.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("crates"), root().join("tests")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root()).expect("below the root").display().to_string();
                found.push((name, fs::read_to_string(&path).expect("text")));
            }
        }
    }
    assert!(found.len() > 50, "found only {} files", found.len());
    found
}

fn complain(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn files_are_short_enough_to_have_one_purpose() {
    let too_long = |(name, text): &(String, String)| {
        let lines = text.lines().count();
        (lines > LINES_MAX).then(|| format!("{name}: {lines} lines"))
    };
    complain(&sources().iter().filter_map(too_long).collect::<Vec<_>>());
}

#[test]
fn every_file_says_what_it_is_for() {
    let silent = sources().into_iter().filter(|(_, text)| !text.starts_with("//!"));
    complain(&silent.map(|(name, _)| format!("{name}: starts without //!")).collect::<Vec<_>>());
}

#[test]
fn lines_fit_a_screen() {
    let mut faults = Vec::new();
    for (name, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            if line.chars().count() > LINE_CHARACTERS_MAX {
                faults.push(format!("{name}:{}: too long", number + 1));
            }
        }
    }
    complain(&faults);
}

#[test]
fn every_line_knows_its_room() {
    let mut faults = Vec::new();
    for (name, text) in sources() {
        for (thing, allowed) in ROOMS {
            let is_test = name.starts_with("tests/") || name.contains("/facts") || name.contains("/tests");
            let at_home = is_test || allowed.iter().any(|room| name.starts_with(room));
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            if !at_home && code.clone().any(|line| line.contains(thing)) {
                faults.push(format!("{name}: {thing} belongs to {allowed:?}"));
            }
        }
    }
    complain(&faults);
}

#[test]
fn nothing_is_left_for_later() {
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("#[ig", "nore"),
    ];
    let mut faults = Vec::new();
    for (name, text) in sources() {
        for mark in marks {
            if text.contains(mark) {
                faults.push(format!("{name}: {mark}"));
            }
        }
    }
    complain(&faults);
}

#[test]
fn names_say_something() {
    let mut faults = Vec::new();
    for (name, text) in sources() {
        for line in text.lines().map(str::trim_start) {
            let item =
                ["pub fn ", "fn ", "pub struct ", "struct ", "pub mod ", "mod ", "pub enum ", "enum ", "pub trait "]
                    .iter()
                    .find_map(|start| line.strip_prefix(start));
            let item =
                item.unwrap_or_default().split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
            if EMPTY_WORDS.iter().any(|word| item.to_lowercase().starts_with(word)) {
                faults.push(format!("{name}: {item}"));
            }
        }
    }
    complain(&faults);
}

#[test]
fn results_are_not_thrown_away() {
    let thrown = concat!("let _", " = ");
    let mut faults = Vec::new();
    for (name, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            if line.contains(thrown) && line.contains(".await") {
                faults.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    complain(&faults);
}

/// A cascade would forget rows that name bytes, and nobody would ever delete those.
#[test]
fn no_row_goes_because_another_went() {
    let mut folders = vec![root().join("crates/catalog/src/migrations")];
    let mut read = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "sql") {
                let text = fs::read_to_string(&path).expect("text").to_uppercase();
                for word in ["CASCADE", "DEFERRABLE", "CREATE TRIGGER"] {
                    assert!(!text.contains(word), "{}: {word}", path.display());
                }
                read += 1;
            }
        }
    }
    assert!(read >= 10, "found only {read} migrations");
}
