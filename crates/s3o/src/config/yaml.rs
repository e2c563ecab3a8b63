//! Parses YAML into a tree of values. `${VAR}` is expanded in parsed strings, never in raw text, so a secret may
//! contain characters that have a meaning in YAML.

use serde_json::Value;
use serde_saphyr::Error;
use serde_saphyr::granit_parser::ErrorKind;
use serde_saphyr::localizer::ExternalMessageSource;

use super::faults::Faults;

/// Names of settings are shorter. The rest of a longer name is not shown, because it may be a misplaced secret.
const FIELD_CHARACTERS_MAX: usize = 40;

/// Parses the text of the file `source`. A syntax error names file, line and column; it never quotes the text, which
/// may hold secrets.
pub(super) fn parse(source: &str, text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Value, Faults> {
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    let options = serde_saphyr::options! { with_snippet: false };
    let parsed = serde_saphyr::from_str_with_options(text, options);
    let mut tree: Value = parsed.map_err(|error| syntax_fault(source, &error))?;
    let mut faults = Faults::default();
    expand(&mut tree, "", variable, &mut faults);
    if faults.is_empty() { Ok(tree) } else { Err(faults) }
}

fn expand(value: &mut Value, path: &str, variable: &dyn Fn(&str) -> Option<String>, faults: &mut Faults) {
    match value {
        Value::String(text) => match expand_text(text, variable) {
            Ok(expanded) => *text = expanded,
            Err(message) => faults.add(path, message),
        },
        Value::Array(items) => {
            for (position, item) in items.iter_mut().enumerate() {
                expand(item, &format!("{path}[{position}]"), variable, faults);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                expand(field, &below(path, name), variable, faults);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn syntax_fault(source: &str, error: &Error) -> Faults {
    let place = match error.location() {
        Some(location) => format!("{source}, line {}, column {}", location.line(), location.column()),
        None => source.to_owned(),
    };
    Faults::one(place, format!("not valid YAML: {}", syntax_problem(error)))
}

/// Names the kind of a syntax error in fixed words, because the parser's own messages quote the text.
fn syntax_problem(error: &Error) -> &'static str {
    match error.without_snippet() {
        Error::DuplicateMappingKey { .. } => "a key appears twice in one mapping",
        Error::MultipleDocuments { .. } => "the file holds more than one document",
        Error::UnknownAnchor { .. } => "an alias names an unknown anchor",
        Error::Eof { .. } => "the file ends too early",
        Error::ExternalMessage { source, .. } => match source.as_ref() {
            ExternalMessageSource::Parser(error) => scan_problem(error.kind()),
            _ => "the syntax is wrong here",
        },
        _ => "the syntax is wrong here",
    }
}

fn scan_problem(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::UnclosedQuotedScalar => "a quoted value is not closed",
        ErrorKind::UnclosedFlowCollection { .. } => "a bracket is not closed",
        ErrorKind::InvalidIndentation => "the indentation is wrong",
        ErrorKind::TabNotAllowed | ErrorKind::TabInBlockIndentation | ErrorKind::TabInIndentation => {
            "a tab is used where spaces are needed"
        }
        _ => "the syntax is wrong here",
    }
}

/// The path of a field. A name that cannot be a setting is cut at its first invalid character, because a forgotten
/// space turns a value into a part of the name: `{secret_access_key:value}`.
pub(super) fn below(path: &str, field: &str) -> String {
    let is_shown = |character: &char| character.is_ascii_lowercase() || *character == '_';
    let mut shown: String = field.chars().take_while(is_shown).take(FIELD_CHARACTERS_MAX).collect();
    if shown.len() < field.len() {
        shown.push_str("...");
    }
    if path.is_empty() { shown } else { format!("{path}.{shown}") }
}

fn is_variable_name(name: &str) -> bool {
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    name.starts_with(|character: char| !character.is_ascii_digit()) && name.chars().all(is_part)
}

fn expand_text(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, behind) = after.split_once('}').ok_or("a \"${\" is not closed by \"}\"")?;
        if !is_variable_name(name) {
            return Err("a \"${\" is not followed by the name of a variable".to_owned());
        }
        out.push_str(before);
        out.push_str(&variable(name).ok_or_else(|| format!("the variable {name} is not set"))?);
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::{below, expand_text};
    use serde_json::Value;

    fn parse(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Value, super::Faults> {
        super::parse("s3o.yaml", text, variable)
    }

    fn variable(name: &str) -> Option<String> {
        (name == "SECRET").then(|| "a: {b} ${SECRET} #".to_owned())
    }

    #[test]
    fn expanded_values_are_neither_expanded_again_nor_parsed() {
        assert_eq!(expand_text("x${SECRET}y", &variable), Ok("xa: {b} ${SECRET} #y".to_owned()));
        assert_eq!(expand_text("cost: $5", &variable), Ok("cost: $5".to_owned()));
        assert!(expand_text("${NOPE}", &variable).is_err());
        assert!(expand_text("${SECRET", &variable).is_err());
    }

    #[test]
    fn unset_variable_is_refused_with_its_path() {
        let faults = parse("a:\n  - b: \"${NOPE}\"\n", &variable).expect_err("unset");
        assert_eq!(faults.to_string(), "a[0].b: the variable NOPE is not set");
    }

    #[test]
    fn syntax_errors_name_line_and_column_and_quote_nothing() {
        let broken = [
            ("admin:\n  token: 'hunter2\n", "not valid YAML"),
            ("admin: {token: hunter2\n", "not closed"),
            ("admin:\n  token: hunter2\n token: hunter2\n", "not valid YAML"),
            ("admin:\n  token: \"hunter2\\q\"\n", "not valid YAML"),
            ("hunter2: 1\nhunter2: 2\n", "a key appears twice"),
            ("admin:\n\ttoken: hunter2\n", "not valid YAML"),
            ("admin: {token: @hunter2}\n", "not valid YAML"),
            ("admin: {token: *hunter2}\n", "an alias names an unknown anchor"),
            ("admin: {token: !hunter2 x}\n", ""),
            ("a: 1\n---\nadmin: {token: hunter2}\n", "more than one document"),
            ("admin: {token: hunter2}}\n", "not valid YAML"),
            ("admin: {token: .nan}\nb: {hunter2: .inf}\n", ""),
        ];
        for (text, problem) in broken {
            let Err(faults) = parse(text, &variable) else {
                assert!(problem.is_empty(), "{text:?} is accepted");
                continue;
            };
            let shown = faults.to_string();
            assert!(shown.starts_with("s3o.yaml, line ") && shown.contains(", column "), "{text:?}: {shown}");
            assert!(shown.contains(problem) && !shown.contains("hunter2"), "{text:?}: {shown}");
        }
    }

    #[test]
    fn field_names_that_contain_values_are_truncated() {
        assert_eq!(below("admin", "token"), "admin.token");
        assert_eq!(below("access_keys[0]", "secret_access_key:hunter2"), "access_keys[0].secret_access_key...");
        assert_eq!(below("", &"x".repeat(41)), format!("{}...", "x".repeat(40)));
        assert_eq!(below("admin", "4fK9mixed"), "admin....");
        let faults = parse("admin: {token: 'abc${hunter2 and more}'}\n", &variable).expect_err("no variable");
        assert_eq!(faults.to_string(), "admin.token: a \"${\" is not followed by the name of a variable");
    }
}
