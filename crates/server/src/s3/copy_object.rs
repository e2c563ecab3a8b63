//! CopyObject, and copy sources.

use http::HeaderMap;
use s3o_engine::{CopyObject, CopySource};
use s3o_model::conditions::ReadConditions;
use s3s::dto::{
    CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopySource as CopySourceHeader, ETag, MetadataDirective,
    TaggingDirective,
};
use s3s::{S3Request, S3Response};

use super::attributes::{AttributeHeaders, given, storage_class};
use super::checksums::{self, ChecksumFields};
use super::conditions;
use super::errors::refuse;
use super::refusal::Refusal;
use super::s3_handler::{S3Answer, S3Handler};
use super::{expiration, names, times};

/// The source conditions of CopyObject and UploadPartCopy.
macro_rules! source_conditions {
    ($input:expr) => {
        $crate::s3::conditions::of_read($crate::s3::conditions::ConditionHeaders {
            if_match: $input.copy_source_if_match.take(),
            if_none_match: $input.copy_source_if_none_match.take(),
            if_modified_since: $input.copy_source_if_modified_since.take(),
            if_unmodified_since: $input.copy_source_if_unmodified_since.take(),
        })
    };
}
pub(super) use source_conditions;

/// `CopyObject`.
pub async fn copy(handler: &S3Handler, request: S3Request<CopyObjectInput>) -> S3Answer<CopyObjectOutput> {
    let copied = handler.engine.copy_object(translate(request.input, &request.headers)?).await.map_err(refuse)?;
    let checksum = ChecksumFields::of(copied.checksum.as_ref());
    let result = CopyObjectResult {
        e_tag: Some(ETag::Strong(copied.etag.to_string())),
        last_modified: Some(times::to_s3(copied.last_modified)),
        checksum_crc32: checksum.crc32,
        checksum_crc32c: checksum.crc32c,
        checksum_crc64nvme: checksum.crc64nvme,
        checksum_sha1: checksum.sha1,
        checksum_sha256: checksum.sha256,
        checksum_type: copied.checksum.map(|checksum| checksums::type_of(checksum.coverage)),
    };
    Ok(S3Response::new(CopyObjectOutput {
        copy_object_result: Some(result),
        expiration: expiration::shown(copied.expiration.as_ref()),
        ..CopyObjectOutput::default()
    }))
}

fn translate(mut input: CopyObjectInput, headers: &HeaderMap) -> Result<CopyObject, Refusal> {
    let replace_metadata = replaces(input.metadata_directive.as_ref().map(MetadataDirective::as_str))?;
    let replace_tags = replaces(input.tagging_directive.as_ref().map(TaggingDirective::as_str))?;
    let class = storage_class(input.storage_class.as_ref())?;
    let conditions = source_conditions!(input);
    let source = source(&input.copy_source, conditions)?;
    let (bucket, key) = (names::bucket(&input.bucket)?, names::key(&input.key)?);
    let onto_itself = source.bucket == bucket && source.key == key;
    if onto_itself && !replace_metadata && !replace_tags && class.is_none() {
        return Err(Refusal::because("InvalidRequest", UNCHANGED_COPY));
    }
    let checksum = input.checksum_algorithm.take().map(|name| checksums::algorithm(name.as_str())).transpose()?;
    let mut given: AttributeHeaders = given!(input);
    if !replace_tags {
        given.tagging = None;
    }
    let attributes = given.attributes(headers)?;
    Ok(CopyObject {
        source,
        bucket,
        key,
        replace_metadata: replace_metadata.then_some((attributes.headers, attributes.metadata)),
        storage_class: class,
        replace_tags: replace_tags.then_some(attributes.tags),
        condition: conditions::of_write_headers(headers)?,
        checksum,
        expiry: expiration::requested(headers)?,
    })
}

const UNCHANGED_COPY: &str = "This copy request is illegal because it is trying to copy an object to itself without \
    changing the object's metadata, storage class, website redirect location or encryption attributes.";

fn replaces(directive: Option<&str>) -> Result<bool, Refusal> {
    match directive {
        None | Some("COPY") => Ok(false),
        Some("REPLACE") => Ok(true),
        Some(_) => Err(Refusal::because("InvalidArgument", "Unknown metadata directive.")),
    }
}

/// The copy source of `x-amz-copy-source`.
pub fn source(header: &CopySourceHeader, conditions: ReadConditions) -> Result<CopySource, Refusal> {
    match header {
        CopySourceHeader::Bucket { bucket, key, version_id } => {
            names::version(version_id.as_deref())?;
            Ok(CopySource { bucket: names::bucket(bucket)?, key: names::key(key)?, conditions })
        }
        CopySourceHeader::AccessPoint { .. } | CopySourceHeader::Outpost { .. } => Err(Refusal::new("NotImplemented")),
    }
}

#[cfg(test)]
mod tests {
    use super::{replaces, source, translate};
    use http::HeaderMap;
    use s3o_model::conditions::ReadConditions;
    use s3s::dto::{CopyObjectInput, CopySource, MetadataDirective, StorageClass};

    fn copy(from: &str, change: impl FnOnce(&mut CopyObjectInput)) -> Result<s3o_engine::CopyObject, super::Refusal> {
        let mut builder = CopyObjectInput::builder();
        builder.set_bucket("photos".into());
        builder.set_key("a".into());
        builder.set_copy_source(CopySource::parse(from).unwrap());
        let mut input = builder.build().unwrap();
        change(&mut input);
        translate(input, &HeaderMap::new())
    }

    #[test]
    fn copy_onto_itself_must_change_something() {
        assert_eq!(copy("photos/a", |_| {}).unwrap_err().code, "InvalidRequest");
        assert!(copy("photos/b", |_| {}).is_ok());
        let replace = MetadataDirective::from_static(MetadataDirective::REPLACE);
        assert!(copy("photos/a", |input| input.metadata_directive = Some(replace)).is_ok());
        let class = StorageClass::from_static(StorageClass::STANDARD);
        assert!(copy("photos/a", |input| input.storage_class = Some(class)).is_ok());
    }

    #[test]
    fn directives_are_copy_or_replace() {
        assert!(!replaces(None).unwrap());
        assert!(replaces(Some("REPLACE")).unwrap());
        assert_eq!(replaces(Some("MOVE")).unwrap_err().code, "InvalidArgument");
    }

    #[test]
    fn copy_source_is_decoded_and_has_no_version() {
        let plain = source(&CopySource::parse("/photos/a%20b%2Bc").unwrap(), ReadConditions::default()).unwrap();
        assert_eq!(plain.key.as_str(), "a b+c");
        let versioned = CopySource::parse("photos/a?versionId=v1").unwrap();
        assert_eq!(source(&versioned, ReadConditions::default()).unwrap_err().code, "NoSuchVersion");
        let null = CopySource::parse("photos/a?versionId=null").unwrap();
        assert!(source(&null, ReadConditions::default()).is_ok());
    }
}
