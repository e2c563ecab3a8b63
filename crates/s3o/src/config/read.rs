//! Reading a section of the configuration field by field. Every fault is noted and reading goes
//! on; a field that nobody asked for is a fault, too.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value};

use super::faults::Faults;
use super::units;
use super::yaml::below;

/// One mapping of the configuration.
pub(super) struct Section<'a> {
    path: String,
    fields: Option<&'a Map<String, Value>>,
    asked: RefCell<BTreeSet<&'static str>>,
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
        Self { path, fields, asked: RefCell::default(), faults }
    }

    fn value(&self, field: &'static str) -> Option<&'a Value> {
        self.asked.borrow_mut().insert(field);
        self.fields?.get(field).filter(|value| !value.is_null())
    }

    pub(super) fn fault(&self, field: &str, message: impl Into<String>) {
        self.faults.borrow_mut().add(below(&self.path, field), message);
    }

    /// A section within this one.
    pub(super) fn section(&self, field: &'static str) -> Section<'a> {
        Section::new(below(&self.path, field), self.value(field), self.faults)
    }

    /// The sections of a list.
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

    /// True if the field is there, also without a value.
    pub(super) fn has(&self, field: &'static str) -> bool {
        self.fields.is_some_and(|fields| fields.contains_key(field))
    }

    /// A list of texts.
    pub(super) fn texts(&self, field: &'static str) -> Vec<String> {
        let items = self.items(field).iter().enumerate();
        let text = |(position, item): (usize, &Value)| {
            let text = text_of(item);
            if text.is_none() {
                let path = format!("{}[{position}]", below(&self.path, field));
                self.faults.borrow_mut().add(path, "must be text");
            }
            text
        };
        items.filter_map(text).collect()
    }

    /// A field that is read by `parse`.
    pub(super) fn read<T>(&self, field: &'static str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let Some(text) = text_of(self.value(field)?) else {
            self.fault(field, "must be a single value");
            return None;
        };
        parse(&text).map_err(|message| self.fault(field, message)).ok()
    }

    /// A field that must be there.
    pub(super) fn required<T>(&self, field: &'static str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        if self.value(field).is_none() {
            self.fault(field, "is required");
            return None;
        }
        self.read(field, parse)
    }

    /// Text.
    pub(super) fn text(&self, field: &'static str) -> Option<String> {
        self.read(field, |text| Ok(text.to_owned()))
    }

    /// A duration.
    pub(super) fn duration(&self, field: &'static str, default: Duration) -> Duration {
        self.read(field, units::duration).unwrap_or(default)
    }

    /// A number of at least one.
    pub(super) fn count(&self, field: &'static str, default: usize) -> usize {
        let parse =
            |text: &str| text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "must be a number above 0".to_owned());
        self.read(field, parse).unwrap_or(default)
    }

    /// A number of at least one and at most `max`.
    pub(super) fn count_up_to(&self, field: &'static str, default: usize, max: usize) -> usize {
        let count = self.count(field, default);
        if count > max {
            self.fault(field, format!("{count} is not allowed, use at most {max}"));
        }
        count
    }

    /// A field that may only have the one value that is built.
    pub(super) fn only(&self, field: &'static str, built: &str) {
        if let Some(text) = self.text(field)
            && text != built
        {
            self.fault(field, format!("{text:?} is not built yet; only {built:?} is"));
        }
    }

    /// Fields of parts that are not built yet.
    pub(super) fn not_built(&self, fields: &[&'static str]) {
        for field in fields {
            if self.value(field).is_some() {
                self.fault(field, "is a setting of a part that is not built yet");
            }
        }
    }

    /// Notes the fields that nobody asked for.
    pub(super) fn finish(self) {
        let asked = self.asked.borrow();
        for field in self.fields.into_iter().flat_map(Map::keys) {
            if !asked.contains(field.as_str()) {
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
