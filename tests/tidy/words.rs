//! Words that are metaphors for something with an established name. The reader of this code knows S3, SQL and Linux and
//! has never seen it: the established name needs no explanation. This file is the only one that may contain the words.

use crate::source::{SourceFile, Violation};

/// Extensions, or whole names, of the files that the rule reads. Migrations are frozen and are not read.
pub const EXTENSIONS: [&str; 11] = ["rs", "py", "sh", "md", "toml", "sql", "yaml", "yml", "js", "mjs", "Makefile"];

/// Not allowed in identifiers, comments, strings and documents, with what to write instead. The first word of a phrase
/// also stands for its regular inflections.
const ANYWHERE: [(&str, &str); 62] = [
    ("hang up", "SIGHUP, reload; a client disconnects"),
    ("hung up", "SIGHUP, reload; a client disconnects"),
    ("go by itself", "expires, is deleted"),
    ("go by themselves", "expire, are deleted"),
    ("cease to exist", "expires, is deleted"),
    ("time has passed", "has expired"),
    ("departure", "expiration"),
    ("depart", "expires"),
    ("let go of", "release"),
    ("came to nothing", "abandoned"),
    ("books", "quota accounting, quotas"),
    ("room", "capacity, free space; crate"),
    ("at hand", "cached"),
    ("ask again", "re-checked, repeated"),
    ("look at", "re-checked, probed"),
    ("a look", "a query, a probe"),
    ("told", "reported, logged, notified"),
    ("hear", "is notified"),
    ("heard", "was notified of"),
    ("nobody", "name the actor"),
    ("somebody", "name the actor"),
    ("anybody", "name the actor"),
    ("everybody", "name the actors"),
    ("whoever", "name the actor"),
    ("house", "harness"),
    ("sky", "clock"),
    ("storm", "fault schedule"),
    ("town", "context"),
    ("scene", "fixture"),
    ("surrounding", "context, shared state"),
    ("door", "S3Handler, listener, API"),
    ("leniency", "header_compat"),
    ("vouch", "verify, report as synchronised"),
    ("landed", "stored"),
    ("landing", "name the event"),
    ("resettle", "apply_settings"),
    ("errand", "write_behind"),
    ("tally", "stats"),
    ("canary", "probe_object"),
    ("safeties", "guard_tests"),
    ("sabotage", "sql_mutations"),
    ("belts", "redundant_guards"),
    ("promise", "guarantee"),
    ("dead letter office", "dead letters"),
    ("poison", "panicking row"),
    ("stranger", "unexpected identity, untrusted input"),
    ("bury", "move to the dead-letter queue"),
    ("buried", "moved to the dead-letter queue"),
    ("under its hands", "concurrently"),
    ("under their hands", "concurrently"),
    ("set out", "start"),
    ("on a good day", "without faults"),
    ("be rid of", "delete"),
    ("in peace", "without faults"),
    ("witness", "confirmation, second source"),
    ("spoil", "damage, break"),
    ("churn", "write and delete"),
    ("rot", "become corrupt"),
    ("newcomer", "new upload, new request"),
    ("dice", "random"),
    ("misled", "name the wrong row or index"),
    ("upkeep", "maintenance"),
];

/// Inflections of banned words that are technical terms: a lock whose holder panicked is poisoned.
const TECHNICAL: [&str; 1] = ["poisoned"];

/// Allowed in sentences, but not as a part of the name of an item or a file.
const IN_NAMES: [(&str, &str); 13] = [
    ("becomes", "name the result"),
    ("goes", "is deleted, expires"),
    ("gone", "deleted, missing, expired"),
    ("gate", "precheck"),
    ("ground", "environment"),
    ("aside", "blocking_with_timeout"),
    ("eyes", "name the check"),
    ("looks", "probes, queries"),
    ("look", "probe, query"),
    ("keeping", "ttl"),
    ("proof", "copy_checker"),
    ("facts", "tests"),
    ("tells", "reports, returns"),
];

/// Keywords before the name of an item, in Rust and in Python.
const ITEM_KEYWORDS: [&str; 10] = ["fn", "struct", "enum", "trait", "mod", "type", "const", "static", "def", "class"];

/// Words with their lines: identifiers are split at underscores and at capital letters.
fn words(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut word = String::new();
        let mut previous_is_lower = false;
        for character in line.chars().chain([' ']) {
            let starts_word = character.is_uppercase() && previous_is_lower;
            if (starts_word || !character.is_alphanumeric()) && !word.is_empty() {
                found.push((number + 1, std::mem::take(&mut word)));
            }
            if character.is_alphanumeric() {
                word.extend(character.to_lowercase());
            }
            previous_is_lower = character.is_lowercase();
        }
    }
    found
}

/// Whether a word is a banned one or a regular inflection of it.
fn is_form_of(word: &str, banned: &str) -> bool {
    if word == banned {
        return true;
    }
    let plain = banned.strip_suffix(['e', 'y']).unwrap_or(banned);
    let Some(ending) = word.strip_prefix(plain) else { return false };
    let doubled = banned.chars().last().is_some_and(|last| ending.strip_prefix(last).is_some_and(is_verb_ending));
    let is_ending = matches!(ending, "s" | "es" | "ies" | "ied") || is_verb_ending(ending) || doubled;
    let is_plural = word.strip_prefix(banned).is_some_and(|ending| matches!(ending, "s" | "d" | "ing"));
    (is_ending || is_plural) && !TECHNICAL.contains(&word)
}

fn is_verb_ending(ending: &str) -> bool {
    matches!(ending, "ed" | "ing")
}

fn phrases_in(text: &str, banned: &[(&str, &str)]) -> Vec<(usize, String)> {
    let words = words(text);
    let mut found = Vec::new();
    for (phrase, instead) in banned {
        let parts: Vec<&str> = phrase.split(' ').collect();
        for window in words.windows(parts.len()) {
            let is_first = is_form_of(&window[0].1, parts[0]);
            if is_first && window.iter().zip(&parts).skip(1).all(|((_, word), part)| word == part) {
                found.push((window[0].0, format!("\"{phrase}\": write {instead}")));
            }
        }
    }
    found.sort();
    found
}

/// The names of the items that a line declares.
fn declared_names(line: &str) -> Vec<&str> {
    let code = line.split("//").next().unwrap_or_default();
    let words: Vec<&str> = code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty()).collect();
    words.windows(2).filter(|pair| ITEM_KEYWORDS.contains(&pair[0])).map(|pair| pair[1]).collect()
}

/// Every banned word of a file, and of its name.
pub fn violations(file: &SourceFile) -> Vec<Violation> {
    let is_migration = file.path.contains("/migrations/") && file.has_extension(&["sql"]);
    if is_migration || file.path == "tests/tidy/words.rs" {
        return Vec::new();
    }
    let mut found: Vec<Violation> =
        phrases_in(&file.text, &ANYWHERE).into_iter().map(|(line, what)| Violation::new(file, line, what)).collect();
    let both: Vec<(&str, &str)> = ANYWHERE.into_iter().chain(IN_NAMES).collect();
    found.extend(phrases_in(&file.path, &both).into_iter().map(|(_, what)| Violation::new(file, 0, what)));
    if file.has_extension(&["rs", "py"]) {
        for (number, line) in file.text.lines().enumerate() {
            for name in declared_names(line) {
                let wrong = phrases_in(name, &IN_NAMES);
                let wrong = wrong.into_iter().map(|(_, what)| format!("{name} has {what}"));
                found.extend(wrong.map(|what| Violation::new(file, number + 1, what)));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{SourceFile, violations};

    fn lines(path: &str, text: &str) -> Vec<usize> {
        violations(&SourceFile::new(path, text)).iter().map(|found| found.line).collect()
    }

    #[test]
    fn banned_words_are_found_in_comments_strings_and_identifiers() {
        let text =
            "// Nobody reads this.\nlet why = \"no room left\";\nstruct DeadLetterOffice;\nfn keep_at_hand() {}\n";
        assert_eq!(lines("crates/a.rs", text), [1, 2, 3, 4]);
    }

    #[test]
    fn inflections_of_banned_words_are_found() {
        let text = "vouches\ntallies\nhears\nlooks at\npromising\nspoiled\nrotted\nhousing\n";
        assert_eq!(lines("crates/a.yaml", text), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(lines("Makefile", "rooms: doors"), [1, 1]);
    }

    #[test]
    fn banned_phrases_are_found_across_lines() {
        assert_eq!(lines("docs/a.md", "Bodies are kept at\nhand."), [1]);
    }

    #[test]
    fn banned_names_are_found_in_items_and_files_only() {
        assert_eq!(lines("crates/gate.rs", "// A row becomes visible.\nfn what_becomes_of_it() {}\n"), [0, 2]);
        assert_eq!(lines("tests/a.py", "def test_object_goes():\n    goes = 1\n"), [1]);
    }

    #[test]
    fn longer_words_and_technical_terms_are_allowed() {
        let text =
            "// background, lookup, headroom, aggregate, poisoned lock, playbooks, a lookup\nlet delegate = 1;\n";
        assert_eq!(lines("crates/a.rs", text), []);
    }
}
