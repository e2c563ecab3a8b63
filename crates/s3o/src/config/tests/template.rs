//! The template of `s3o init` and the reference in `docs/operations.md` have every setting that the parser accepts.

use std::collections::BTreeSet;

use super::super::read::tests::paths_read;
use super::parse;

const TEMPLATE: &str = include_str!("../../template.yaml");
const OPERATIONS: &str = include_str!("../../../../../docs/operations.md");

/// The template with every setting that it shows as a comment. Prose stays a comment.
fn with_all_settings() -> String {
    let mut text = String::new();
    for line in TEMPLATE.lines() {
        let setting = line.trim_start().strip_prefix("# ").filter(|rest| {
            let rest = rest.trim_start();
            let name = rest.strip_prefix("- ").unwrap_or(rest).split(':').next().unwrap_or_default();
            rest.contains(':') && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        });
        let indent = &line[..line.len() - line.trim_start().len()];
        text.push_str(&setting.map_or_else(|| line.to_owned(), |setting| format!("{indent}{setting}")));
        text.push('\n');
    }
    text.replace("\"${", "\"").replace("}\"", "-of-at-least-16-characters\"")
}

/// The path of a setting without the positions in lists.
fn without_positions(path: &str) -> String {
    let mut plain = String::new();
    for part in path.split_inclusive(['[', ']']) {
        plain.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    plain
}

/// Every setting that the parser reads from a configuration with all sections and both kinds of backends.
fn accepted_settings() -> BTreeSet<String> {
    parse(&with_all_settings()).expect("the template with all settings is valid");
    let read: BTreeSet<_> = paths_read().iter().map(|path| without_positions(path)).collect();
    // A section has settings below it; the reference and the template show those.
    let is_section = |path: &String| {
        read.iter().any(|other| other.strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with(['.', '['])))
    };
    read.iter().filter(|path| !is_section(path)).cloned().collect()
}

/// The settings of a YAML document, as paths.
fn settings_in(value: &serde_json::Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                found.insert(below.clone());
                settings_in(value, &below, found);
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| settings_in(item, &format!("{path}[]"), found)),
        _ => {}
    }
}

/// The first cells of the tables below `### Settings`: later names in a cell lack the path of the first one.
fn documented_settings() -> BTreeSet<String> {
    let section = OPERATIONS.split_once("\n### Settings\n").expect("a reference of settings").1;
    let section = section.split("\n### ").next().unwrap_or_default();
    let mut found = BTreeSet::new();
    for row in section.lines().filter_map(|line| line.strip_prefix("| `")) {
        let cell = row.split(" | ").next().unwrap_or_default();
        let names: Vec<&str> = cell.split('`').step_by(2).filter(|name| !name.is_empty()).collect();
        let parent = names[0].rsplit_once('.').map_or("", |(parent, _)| parent);
        for name in names {
            found.insert(if name.contains('.') { name.to_owned() } else { format!("{parent}.{name}") });
        }
    }
    found
}

#[test]
fn template_has_every_setting() {
    let accepted = accepted_settings();
    let tree = serde_saphyr::from_str(&with_all_settings()).expect("YAML");
    let mut shown = BTreeSet::new();
    settings_in(&tree, "", &mut shown);
    let missing: Vec<_> = accepted.difference(&shown).collect();
    assert!(missing.is_empty(), "template.yaml lacks {missing:?}");
    assert!(accepted.len() > 90, "the parser reads only {} settings", accepted.len());
}

#[test]
fn reference_has_every_setting() {
    let accepted = accepted_settings();
    let documented = documented_settings();
    let missing: Vec<_> = accepted.difference(&documented).collect();
    assert!(missing.is_empty(), "docs/operations.md, Settings, lacks {missing:?}");
    let unknown: Vec<_> = documented.difference(&accepted).collect();
    assert!(unknown.is_empty(), "docs/operations.md, Settings, has unknown settings {unknown:?}");
}
