//! `GetObjectAttributes`.

use http::{HeaderMap, HeaderValue};
use s3o_engine::multipart::ObjectPart as StoredPart;
use s3o_engine::{GetObject, RequestedRange};
use s3o_model::checksum::Checksum as StoredChecksum;
use s3o_model::conditions::ReadConditions;
use s3s::dto::{
    Checksum, ETag, GetObjectAttributesInput, GetObjectAttributesOutput, GetObjectAttributesParts, ObjectAttributes,
    ObjectPart, StorageClass,
};
use s3s::{S3Request, S3Response};

use super::attributes::DEFAULT_STORAGE_CLASS;
use super::checksums::{self, ChecksumFields};
use super::compat::inputs;
use super::errors::refuse;
use super::refusal::Refusal;
use super::s3_handler::{S3Answer, S3Handler};
use super::{names, times};

/// The most parts on one page of the response.
const PARTS_MAX: i32 = 1000;

/// `GetObjectAttributes`.
pub async fn get(
    handler: &S3Handler,
    request: S3Request<GetObjectAttributesInput>,
) -> S3Answer<GetObjectAttributesOutput> {
    let input = request.input;
    names::version(input.version_id.as_deref())?;
    let requested = requested(&input.object_attributes)?;
    let get = GetObject {
        bucket: names::bucket(&input.bucket)?,
        key: names::key(&input.key)?,
        wanted: RequestedRange::Whole,
        conditions: ReadConditions::default(),
    };
    let object = handler.engine.head_object(&get).await.map_err(refuse)?.object;
    let has = |name: &str| requested.iter().any(|attribute| attribute == name);
    let class = object.attributes.headers.storage_class.unwrap_or_else(|| DEFAULT_STORAGE_CLASS.to_owned());
    let mut output = GetObjectAttributesOutput {
        checksum: object.checksum.as_ref().filter(|_| has(ObjectAttributes::CHECKSUM)).map(checksum),
        e_tag: has(ObjectAttributes::ETAG).then(|| ETag::Strong(object.etag.to_string())),
        last_modified: Some(times::to_s3(object.last_modified)),
        object_size: i64::try_from(object.size_bytes).ok().filter(|_| has(ObjectAttributes::OBJECT_SIZE)),
        storage_class: has(ObjectAttributes::STORAGE_CLASS).then(|| StorageClass::from(class)),
        ..GetObjectAttributesOutput::default()
    };
    if has(ObjectAttributes::OBJECT_PARTS) {
        output.object_parts = parts(handler, &get, input.part_number_marker, input.max_parts).await?;
    }
    Ok(S3Response::with_headers(output, tag_count(object.attributes.tags.len())))
}

fn tag_count(count: usize) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if count > 0 {
        headers.insert("x-amz-tagging-count", HeaderValue::from(count));
    }
    headers
}

fn requested(attributes: &[ObjectAttributes]) -> Result<Vec<String>, Refusal> {
    const KNOWN: &[&str] = &[
        ObjectAttributes::CHECKSUM,
        ObjectAttributes::ETAG,
        ObjectAttributes::OBJECT_PARTS,
        ObjectAttributes::OBJECT_SIZE,
        ObjectAttributes::STORAGE_CLASS,
    ];
    let names = inputs::attribute_names(attributes);
    if names.iter().all(|name| KNOWN.contains(&name.as_str())) {
        return Ok(names);
    }
    Err(Refusal::because("InvalidArgument", "Invalid attribute name specified"))
}

fn checksum(checksum: &StoredChecksum) -> Checksum {
    let fields = ChecksumFields::of(Some(checksum));
    Checksum {
        checksum_crc32: fields.crc32,
        checksum_crc32c: fields.crc32c,
        checksum_crc64nvme: fields.crc64nvme,
        checksum_sha1: fields.sha1,
        checksum_sha256: fields.sha256,
        checksum_type: Some(checksums::type_of(checksum.coverage)),
    }
}

async fn parts(
    handler: &S3Handler,
    get: &GetObject,
    marker: Option<i32>,
    max: Option<i32>,
) -> Result<Option<GetObjectAttributesParts>, Refusal> {
    let max_parts = max.unwrap_or(PARTS_MAX).clamp(0, PARTS_MAX);
    let after = u32::try_from(marker.unwrap_or(0)).map_err(|_| Refusal::new("InvalidArgument"))?;
    let limit = usize::try_from(max_parts).unwrap_or_default();
    let (found, total) = handler.engine.object_parts(&get.bucket, &get.key, after, limit).await.map_err(refuse)?;
    if total == 0 {
        return Ok(None);
    }
    let last = found.last().map_or(after, |part| part.number);
    let number = |value: u32| i32::try_from(value).ok();
    let page = GetObjectAttributesParts {
        // Part numbers may have gaps, so only a full page shows that there may be more.
        is_truncated: Some(found.len() == limit && limit > 0 && u64::from(total) > limit as u64),
        max_parts: Some(max_parts),
        next_part_number_marker: number(last),
        part_number_marker: number(after),
        parts: Some(found.iter().map(part).collect()),
        total_parts_count: number(total),
    };
    Ok(Some(page))
}

fn part(part: &StoredPart) -> ObjectPart {
    let fields = ChecksumFields::of(part.checksum.as_ref());
    ObjectPart {
        checksum_crc32: fields.crc32,
        checksum_crc32c: fields.crc32c,
        checksum_crc64nvme: fields.crc64nvme,
        checksum_sha1: fields.sha1,
        checksum_sha256: fields.sha256,
        part_number: i32::try_from(part.number).ok(),
        size: i64::try_from(part.length).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::requested;
    use s3s::dto::ObjectAttributes;

    #[test]
    fn attribute_names_are_split_and_validated() {
        let list = |text: &str| vec![ObjectAttributes::from(text.to_owned())];
        assert_eq!(requested(&list("ETag, ObjectSize")).unwrap(), ["ETag", "ObjectSize"]);
        assert_eq!(requested(&list("ETag,Colour")).unwrap_err().code, "InvalidArgument");
    }
}
