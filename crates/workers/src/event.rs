//! What a worker did to one thing, for the audit trail.

use std::collections::BTreeMap;

use s3o_model::names::BackendName;
use serde::Serialize;
use serde_json::Value;

/// What a worker did to one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Its name, as the outside world knows it.
    #[serde(skip)]
    pub name: &'static str,
    /// The bytes it is about.
    #[serde(flatten)]
    pub bytes: Option<BytesAt>,
    /// The bucket, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket: Option<String>,
    /// The key, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What else there is to say.
    #[serde(flatten)]
    pub details: BTreeMap<&'static str, Value>,
}

/// Where bytes lie and how many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BytesAt {
    /// The backend.
    pub backend: BackendName,
    /// The physical key.
    pub physical_key: String,
    /// How many.
    pub size_bytes: u64,
}

impl Event {
    /// An event about nothing yet.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, bytes: None, bucket: None, key: None, details: BTreeMap::new() }
    }

    /// It is about these bytes.
    #[must_use]
    pub fn at(mut self, backend: &BackendName, physical_key: &str, size_bytes: u64) -> Self {
        self.bytes = Some(BytesAt { backend: backend.clone(), physical_key: physical_key.to_owned(), size_bytes });
        self
    }

    /// It is about this object.
    #[must_use]
    pub fn of(mut self, bucket: Option<String>, key: &str) -> Self {
        self.bucket = bucket;
        self.key = Some(key.to_owned());
        self
    }

    /// Something else there is to say.
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
    fn an_event_is_one_flat_object() {
        let backend = "disk".parse().expect("valid");
        let event =
            Event::new("dlq.retried").at(&backend, "b/k~1", 7).of(Some("b".into()), "k").with("reason", "delete");
        let expected = serde_json::json!({"backend": "disk", "physical_key": "b/k~1", "size_bytes": 7,
            "bucket": "b", "key": "k", "reason": "delete"});
        assert_eq!(serde_json::to_value(event).expect("serialises"), expected);
        assert_eq!(serde_json::to_value(Event::new("x")).expect("serialises"), serde_json::json!({}));
    }
}
