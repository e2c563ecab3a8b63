//! `GetObjectAttributes`.

use http::{HeaderMap, HeaderValue};
use s3o_engine::multipart::ObjectPart as StoredPart;
use s3o_engine::{GetObject, Wanted};
use s3o_model::checksum::Checksum as StoredChecksum;
use s3o_model::conditions::ReadConditions;
use s3s::dto::{
    Checksum, ETag, GetObjectAttributesInput, GetObjectAttributesOutput, GetObjectAttributesParts, ObjectAttributes,
    ObjectPart, StorageClass,
};
use s3s::{S3Request, S3Response};

use super::attributes::DEFAULT_STORAGE_CLASS;
use super::checksums::{self, Fields};
use super::door::{Answer, Door};
use super::errors::refuse;
use super::refusal::Refusal;
use super::{names, times};

/// The most parts on one page.
const PARTS_MAX: i32 = 1000;

/// Answers the attributes that were asked for.
pub async fn get(door: &Door, request: S3Request<GetObjectAttributesInput>) -> Answer<GetObjectAttributesOutput> {
    let input = request.input;
    names::version(input.version_id.as_deref())?;
    let asked = asked(&input.object_attributes)?;
    let get = GetObject {
        bucket: names::bucket(&input.bucket)?,
        key: names::key(&input.key)?,
        wanted: Wanted::Whole,
        conditions: ReadConditions::default(),
    };
    let object = door.engine.head_object(&get).await.map_err(refuse)?.object;
    let has = |name: &str| asked.iter().any(|attribute| attribute == name);
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
        output.object_parts = parts(door, &get, input.part_number_marker, input.max_parts).await?;
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

/// The library hands the header over unsplit.
fn asked(attributes: &[ObjectAttributes]) -> Result<Vec<String>, Refusal> {
    const KNOWN: &[&str] = &[
        ObjectAttributes::CHECKSUM,
        ObjectAttributes::ETAG,
        ObjectAttributes::OBJECT_PARTS,
        ObjectAttributes::OBJECT_SIZE,
        ObjectAttributes::STORAGE_CLASS,
    ];
    let names: Vec<String> =
        attributes.iter().flat_map(|list| list.as_str().split(',')).map(|name| name.trim().to_owned()).collect();
    if names.iter().all(|name| KNOWN.contains(&name.as_str())) {
        return Ok(names);
    }
    Err(Refusal::because("InvalidArgument", "Invalid attribute name specified"))
}

fn checksum(checksum: &StoredChecksum) -> Checksum {
    let fields = Fields::of(Some(checksum));
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
    door: &Door,
    get: &GetObject,
    marker: Option<i32>,
    max: Option<i32>,
) -> Result<Option<GetObjectAttributesParts>, Refusal> {
    let max_parts = max.unwrap_or(PARTS_MAX).clamp(0, PARTS_MAX);
    let after = u32::try_from(marker.unwrap_or(0)).map_err(|_| Refusal::new("InvalidArgument"))?;
    let limit = usize::try_from(max_parts).unwrap_or_default();
    let (found, total) = door.engine.object_parts(&get.bucket, &get.key, after, limit).await.map_err(refuse)?;
    if total == 0 {
        return Ok(None);
    }
    let last = found.last().map_or(after, |part| part.number);
    let number = |value: u32| i32::try_from(value).ok();
    let page = GetObjectAttributesParts {
        // Part numbers may have gaps, so a full page is the only sign of more that is always right.
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
    let fields = Fields::of(part.checksum.as_ref());
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
    use super::asked;
    use s3s::dto::ObjectAttributes;

    #[test]
    fn attributes_are_split_and_known() {
        let list = |text: &str| vec![ObjectAttributes::from(text.to_owned())];
        assert_eq!(asked(&list("ETag, ObjectSize")).unwrap(), ["ETag", "ObjectSize"]);
        assert_eq!(asked(&list("ETag,Colour")).unwrap_err().code, "InvalidArgument");
    }
}
