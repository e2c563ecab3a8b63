//! Audit events of workers.

use std::collections::BTreeMap;

use s3o_model::names::BackendName;
use serde::Serialize;
use serde_json::Value;

/// One audit event: what a worker did to one object, upload or physical copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Audit event name, such as `expiry.deleted`.
    #[serde(skip)]
    pub name: &'static str,
    /// The physical copy concerned, if any.
    #[serde(flatten)]
    pub bytes: Option<BytesAt>,
    /// Bucket name, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket: Option<String>,
    /// Object key, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Further fields of the event.
    #[serde(flatten)]
    pub details: BTreeMap<&'static str, Value>,
}

/// One physical copy: where it is stored and its size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BytesAt {
    /// Backend that stores the copy.
    pub backend: BackendName,
    /// Key of the copy on that backend.
    pub physical_key: String,
    /// Length of the copy.
    pub size_bytes: u64,
}

impl Event {
    /// An event without any fields.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, bytes: None, bucket: None, key: None, details: BTreeMap::new() }
    }

    /// Sets the physical copy that the event concerns.
    #[must_use]
    pub fn at(mut self, backend: &BackendName, physical_key: &str, size_bytes: u64) -> Self {
        self.bytes = Some(BytesAt { backend: backend.clone(), physical_key: physical_key.to_owned(), size_bytes });
        self
    }

    /// Sets the object that the event concerns.
    #[must_use]
    pub fn of(mut self, bucket: Option<String>, key: &str) -> Self {
        self.bucket = bucket;
        self.key = Some(key.to_owned());
        self
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.details.insert(name, value.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::Event;

    #[test]
    fn event_serializes_as_one_flat_object() {
        let backend = "disk".parse().expect("valid");
        let event =
            Event::new("dlq.retried").at(&backend, "b/k~1", 7).of(Some("b".into()), "k").with("reason", "delete");
        let expected = serde_json::json!({"backend": "disk", "physical_key": "b/k~1", "size_bytes": 7,
            "bucket": "b", "key": "k", "reason": "delete"});
        assert_eq!(serde_json::to_value(event).expect("serialises"), expected);
        assert_eq!(serde_json::to_value(Event::new("x")).expect("serialises"), serde_json::json!({}));
    }
}
