//! YAML text becomes a tree of values. `${VAR}` expands in parsed strings, never in raw text, so a
//! secret that contains YAML's own signs stays what it is.

use serde_json::Value;

use super::faults::Faults;

pub(super) fn parse(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Value, Faults> {
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    let mut tree: Value =
        serde_saphyr::from_str(text).map_err(|error| Faults::one("", format!("not valid YAML: {error}")))?;
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

/// The path of a field.
pub(super) fn below(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

fn expand_text(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, behind) = after.split_once('}').ok_or("a \"${\" lacks its \"}\"")?;
        out.push_str(before);
        out.push_str(&variable(name).ok_or_else(|| format!("the variable {name} is not set"))?);
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::{expand_text, parse};

    fn variable(name: &str) -> Option<String> {
        (name == "SECRET").then(|| "a: {b} ${SECRET} #".to_owned())
    }

    #[test]
    fn variables_expand_once_and_are_never_parsed() {
        assert_eq!(expand_text("x${SECRET}y", &variable), Ok("xa: {b} ${SECRET} #y".to_owned()));
        assert_eq!(expand_text("cost: $5", &variable), Ok("cost: $5".to_owned()));
        assert!(expand_text("${NOPE}", &variable).is_err());
        assert!(expand_text("${SECRET", &variable).is_err());
    }

    #[test]
    fn an_unset_variable_is_a_fault_with_its_path() {
        let faults = parse("a:\n  - b: \"${NOPE}\"\n", &variable).expect_err("unset");
        assert_eq!(faults.to_string(), "a[0].b: the variable NOPE is not set");
    }
}
