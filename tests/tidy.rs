//! Style that a machine can check: every rule is a function over text, with a unit test that plants a violation. A
//! failing rule prints its violations.

#[path = "tidy/items.rs"]
mod items;
#[path = "tidy/layout.rs"]
mod layout;
#[path = "tidy/sentences.rs"]
mod sentences;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/words.rs"]
mod words;

use std::fs;

use crate::source::{SourceFile, Violation, assert_none, files, root, rust_files};

fn in_rust_files(rule: impl Fn(&SourceFile) -> Vec<Violation>) -> Vec<Violation> {
    rust_files().iter().flat_map(rule).collect()
}

/// The established name of a thing needs no explanation; a private one has to be learned.
#[test]
fn words_are_established_terms() {
    assert_none("banned words", &files(&words::EXTENSIONS).iter().flat_map(words::violations).collect::<Vec<_>>());
}

#[test]
fn sentences_of_documents_have_at_most_30_words() {
    let documents = files(&["md"]);
    assert!(documents.len() > 10, "found only {} documents", documents.len());
    let found: Vec<_> = documents.iter().flat_map(sentences::long_sentences).collect();
    assert_none("long sentences", &found);
}

#[test]
fn type_names_are_unique() {
    assert_none("type names", &items::repeated_types(&rust_files()));
}

#[test]
fn doc_comments_say_more_than_the_name() {
    assert_none("doc comments that repeat the name", &in_rust_files(items::empty_docs));
}

#[test]
fn functions_have_at_most_40_lines() {
    assert_none("long functions", &in_rust_files(items::long_functions));
}

#[test]
fn files_have_at_most_300_lines() {
    assert_none("long files", &in_rust_files(layout::long_files));
}

#[test]
fn lines_have_at_most_120_characters() {
    assert_none("long lines", &in_rust_files(layout::long_lines));
}

#[test]
fn every_file_describes_its_purpose() {
    assert_none("files without //!", &in_rust_files(layout::missing_file_docs));
}

#[test]
fn dependencies_are_used_in_their_folder_only() {
    assert_none("crossed boundaries", &in_rust_files(layout::crossed_boundaries));
}

#[test]
fn nothing_is_unfinished() {
    assert_none("unfinished marks", &in_rust_files(layout::unfinished_marks));
}

#[test]
fn names_have_a_meaning() {
    assert_none("names without meaning", &in_rust_files(layout::empty_names));
}

#[test]
fn results_are_not_discarded() {
    assert_none("discarded results", &in_rust_files(layout::discarded_results));
}

/// A cascade deletes rows that name bytes, and no worker would ever delete those bytes.
#[test]
fn migrations_have_no_cascade() {
    let mut folders = vec![root().join("crates/catalog/src/migrations")];
    let mut read = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("read a folder") {
            let path = entry.expect("read an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "sql") {
                let text = fs::read_to_string(&path).expect("UTF-8").to_uppercase();
                for word in ["CASCADE", "DEFERRABLE", "CREATE TRIGGER"] {
                    assert!(!text.contains(word), "{}: {word}", path.display());
                }
                read += 1;
            }
        }
    }
    assert!(read >= 10, "found only {read} migrations");
}
