//! Attributes that a client sets on an object: system headers, user metadata, tags, storage class.

use http::HeaderMap;
use s3o_model::object::{Attributes, Headers, UserMetadata};
use s3s::dto::{Metadata, StorageClass};

use super::refusal::Refusal;
use super::tags;

/// Limit for the names and values of user metadata together.
const METADATA_BYTES_MAX: usize = 2048;
/// Content type of objects that were stored without one.
pub const DEFAULT_CONTENT_TYPE: &str = "binary/octet-stream";
/// Responses omit this storage class.
pub const DEFAULT_STORAGE_CLASS: &str = StorageClass::STANDARD;

/// Attributes as a request states them.
#[derive(Debug, Default)]
pub struct AttributeHeaders {
    pub content_type: Option<String>,
    pub cache_control: Option<String>,
    pub content_disposition: Option<String>,
    pub content_encoding: Option<String>,
    pub content_language: Option<String>,
    pub storage_class: Option<StorageClass>,
    /// `x-amz-meta-*`.
    pub metadata: Option<Metadata>,
    pub tagging: Option<String>,
}

/// Takes the attributes from the input of any operation that stores an object.
macro_rules! given {
    ($input:expr) => {
        $crate::s3::attributes::AttributeHeaders {
            content_type: $input.content_type.take(),
            cache_control: $input.cache_control.take(),
            content_disposition: $input.content_disposition.take(),
            content_encoding: $input.content_encoding.take(),
            content_language: $input.content_language.take(),
            storage_class: $input.storage_class.take(),
            metadata: $input.metadata.take(),
            tagging: $input.tagging.take(),
        }
    };
}
pub(super) use given;

impl AttributeHeaders {
    /// The validated attributes. `Expires` is kept as the client wrote it.
    pub fn attributes(self, request: &HeaderMap) -> Result<Attributes, Refusal> {
        let tags = self.tagging.as_deref().map(tags::from_header).transpose()?.unwrap_or_default();
        let metadata = checked_metadata(self.metadata)?;
        let headers = Headers {
            content_type: self.content_type,
            cache_control: self.cache_control,
            content_disposition: self.content_disposition,
            content_encoding: self.content_encoding.as_deref().and_then(stored_encoding),
            content_language: self.content_language,
            expires: request.get("expires").and_then(|value| value.to_str().ok()).map(str::to_owned),
            storage_class: storage_class(self.storage_class.as_ref())?.filter(|class| class != DEFAULT_STORAGE_CLASS),
        };
        Ok(Attributes { headers, metadata, tags })
    }
}

/// The storage class. Every class but STANDARD is refused, because it stands for a price, location or delay that does
/// not exist here. Objects that were stored with another class keep it.
pub fn storage_class(given: Option<&StorageClass>) -> Result<Option<String>, Refusal> {
    let Some(class) = given else { return Ok(None) };
    if class.as_str() == DEFAULT_STORAGE_CLASS {
        return Ok(Some(class.as_str().to_owned()));
    }
    let message = format!("The storage class {} is not supported, use {DEFAULT_STORAGE_CLASS}", class.as_str());
    Err(Refusal::because("InvalidStorageClass", message))
}

/// The storage class for a response, which omits the default.
pub fn named_storage_class(stored: Option<&String>) -> Option<StorageClass> {
    stored.filter(|class| *class != DEFAULT_STORAGE_CLASS).map(|class| StorageClass::from(class.clone()))
}

/// The content encoding without `aws-chunked`, which describes the transfer; the rest is unchanged.
fn stored_encoding(content_encoding: &str) -> Option<String> {
    let is_stored = |coding: &&str| !coding.trim().eq_ignore_ascii_case("aws-chunked");
    let stored = content_encoding.split(',').filter(is_stored).collect::<Vec<_>>().join(",");
    let stored = stored.trim();
    (!stored.is_empty()).then(|| stored.to_owned())
}

fn checked_metadata(metadata: Option<Metadata>) -> Result<UserMetadata, Refusal> {
    let metadata: UserMetadata = metadata.into_iter().flatten().collect();
    let bytes: usize = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > METADATA_BYTES_MAX { Err(Refusal::new("MetadataTooLarge")) } else { Ok(metadata) }
}

#[cfg(test)]
mod tests {
    use super::{AttributeHeaders, storage_class, stored_encoding};
    use http::HeaderMap;
    use s3s::dto::{Metadata, StorageClass};

    #[test]
    fn aws_chunked_is_not_stored() {
        assert_eq!(stored_encoding("aws-chunked"), None);
        assert_eq!(stored_encoding("gzip, aws-chunked").as_deref(), Some("gzip"));
        for (sent, stored) in [
            ("gzip,br", "gzip,br"),
            ("deflate, gzip", "deflate, gzip"),
            ("AWS-Chunked, deflate, gzip", "deflate, gzip"),
            ("deflate,aws-chunked, gzip", "deflate, gzip"),
            ("x-aws-chunked", "x-aws-chunked"),
        ] {
            assert_eq!(stored_encoding(sent).as_deref(), Some(stored), "{sent}");
        }
    }

    #[test]
    fn only_the_standard_storage_class_is_accepted() {
        let class = |name: &str| storage_class(Some(&StorageClass::from(name.to_owned())));
        assert_eq!(class("STANDARD").unwrap().as_deref(), Some("STANDARD"));
        for name in ["STANDARD_IA", "GLACIER", "REDUCED_REDUNDANCY", "COLD", ""] {
            assert_eq!(class(name).unwrap_err().code, "InvalidStorageClass", "{name}");
        }
    }

    #[test]
    fn metadata_is_bounded() {
        let with = |length| AttributeHeaders {
            metadata: Some(Metadata::from_iter([("k".to_owned(), "v".repeat(length))])),
            ..AttributeHeaders::default()
        };
        assert!(with(2047).attributes(&HeaderMap::new()).is_ok());
        assert_eq!(with(2048).attributes(&HeaderMap::new()).unwrap_err().code, "MetadataTooLarge");
    }
}
