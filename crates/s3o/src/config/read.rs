//! Reads a section of the configuration field by field. An error does not stop the reading; all errors are reported
//! together. A field that is never read is an error, too.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::RangeBounds;
use std::time::Duration;

use serde_json::{Map, Value};

use super::faults::Faults;
use super::units;
use super::yaml::below;

/// One mapping of the configuration, with the path for its error messages.
pub(super) struct Section<'a> {
    path: String,
    fields: Option<&'a Map<String, Value>>,
    read: RefCell<BTreeSet<&'static str>>,
    faults: &'a RefCell<Faults>,
}

impl<'a> Section<'a> {
    pub(super) fn new(path: String, value: Option<&'a Value>, faults: &'a RefCell<Faults>) -> Self {
        let fields = match value {
            None | Some(Value::Null) => None,
            Some(Value::Object(fields)) => Some(fields),
            Some(_) => {
                faults.borrow_mut().add(path.clone(), "must be a mapping of fields");
                None
            }
        };
        Self { path, fields, read: RefCell::default(), faults }
    }

    fn value(&self, field: &'static str) -> Option<&'a Value> {
        #[cfg(test)]
        tests::record(below(&self.path, field));
        self.read.borrow_mut().insert(field);
        self.fields?.get(field).filter(|value| !value.is_null())
    }

    pub(super) fn fault(&self, field: &str, message: impl Into<String>) {
        self.faults.borrow_mut().add(below(&self.path, field), message);
    }

    /// A section nested in this one; empty if the field is missing.
    pub(super) fn section(&self, field: &'static str) -> Section<'a> {
        Section::new(below(&self.path, field), self.value(field), self.faults)
    }

    /// The entries of a list of mappings.
    pub(super) fn list(&self, field: &'static str) -> Vec<Section<'a>> {
        let path = below(&self.path, field);
        let items = self.items(field).iter().enumerate();
        items.map(|(position, item)| Section::new(format!("{path}[{position}]"), Some(item), self.faults)).collect()
    }

    fn items(&self, field: &'static str) -> &'a [Value] {
        match self.value(field) {
            None => &[],
            Some(Value::Array(items)) => items,
            Some(_) => {
                self.fault(field, "must be a list");
                &[]
            }
        }
    }

    /// True if the field exists, also if its value is null.
    pub(super) fn has(&self, field: &'static str) -> bool {
        self.fields.is_some_and(|fields| fields.contains_key(field))
    }

    /// The entries of a list of strings; entries that are not strings are reported.
    pub(super) fn texts(&self, field: &'static str) -> Vec<String> {
        let items = self.items(field).iter().enumerate();
        let text = |(position, item): (usize, &Value)| {
            let text = text_of(item);
            if text.is_none() {
                let path = format!("{}[{position}]", below(&self.path, field));
                self.faults.borrow_mut().add(path, "must be a string");
            }
            text
        };
        items.filter_map(text).collect()
    }

    /// An optional field; `None` also if `parse` refuses it, which is reported.
    pub(super) fn read<T>(&self, field: &'static str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let Some(text) = text_of(self.value(field)?) else {
            self.fault(field, "must be a single value");
            return None;
        };
        parse(&text).map_err(|message| self.fault(field, message)).ok()
    }

    /// Like `read`, but a missing field is reported.
    pub(super) fn required<T>(&self, field: &'static str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        if self.value(field).is_none() {
            self.fault(field, "is required");
            return None;
        }
        self.read(field, parse)
    }

    pub(super) fn text(&self, field: &'static str) -> Option<String> {
        self.read(field, |text| Ok(text.to_owned()))
    }

    pub(super) fn duration(&self, field: &'static str, default: Duration) -> Duration {
        self.read(field, units::duration).unwrap_or(default)
    }

    /// A duration within `range`; `allowed` describes the range in the error message.
    pub(super) fn duration_within(
        &self,
        field: &'static str,
        default: Duration,
        range: impl RangeBounds<Duration>,
        allowed: &str,
    ) -> Duration {
        let parse = |text: &str| match units::duration(text)? {
            duration if range.contains(&duration) => Ok(duration),
            _ => Err(format!("{text} is not allowed, use {allowed}")),
        };
        self.read(field, parse).unwrap_or(default)
    }

    /// A whole number of 1 or more.
    pub(super) fn count(&self, field: &'static str, default: usize) -> usize {
        let parse = |text: &str| {
            let count = text.parse().ok().filter(|count| *count > 0);
            count.ok_or_else(|| format!("{text:?} is not allowed, use a whole number of 1 or more"))
        };
        self.read(field, parse).unwrap_or(default)
    }

    /// A whole number from 1 to `max`.
    pub(super) fn count_up_to(&self, field: &'static str, default: usize, max: usize) -> usize {
        let count = self.count(field, default);
        if count > max {
            self.fault(field, format!("{count} is not allowed, use at most {max}"));
        }
        count
    }

    /// Reports fields of parts that are not built yet.
    pub(super) fn not_built(&self, fields: &[&'static str]) {
        for field in fields {
            self.read.borrow_mut().insert(field);
            if self.fields.and_then(|found| found.get(*field)).is_some_and(|value| !value.is_null()) {
                self.fault(field, "is not supported, because its feature is not built yet; remove it");
            }
        }
    }

    /// Reports the fields that were never read.
    pub(super) fn finish(self) {
        let read = self.read.borrow();
        for field in self.fields.into_iter().flat_map(Map::keys) {
            if !read.contains(field.as_str()) {
                self.fault(field, "is not a known setting");
            }
        }
    }
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    thread_local! {
        static READ: RefCell<BTreeSet<String>> = RefCell::default();
    }

    pub(super) fn record(path: String) {
        READ.with_borrow_mut(|read| read.insert(path));
    }

    /// Paths of all settings that this thread has read so far, such as `backends[0].quota`.
    pub(in crate::config) fn paths_read() -> BTreeSet<String> {
        READ.with_borrow(BTreeSet::clone)
    }
}
