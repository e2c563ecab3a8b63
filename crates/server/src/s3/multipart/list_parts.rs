//! `ListParts`.

use s3o_model::multipart::Part as StoredPart;
use s3s::dto::{ETag, ListPartsInput, ListPartsOutput, Part, StorageClass};
use s3s::{S3Request, S3Response};

use super::upload_ref;
use crate::s3::attributes::DEFAULT_STORAGE_CLASS;
use crate::s3::checksums::{self, ChecksumFields};
use crate::s3::errors::refuse;
use crate::s3::list_objects::page_size;
use crate::s3::owner::{initiator, owner};
use crate::s3::refusal::Refusal;
use crate::s3::s3_handler::{S3Answer, S3Handler};
use crate::s3::{expiration, times};

/// Lists the parts of an upload by part number.
pub async fn list(handler: &S3Handler, request: S3Request<ListPartsInput>) -> S3Answer<ListPartsOutput> {
    let input = request.input;
    let target = upload_ref(&input.bucket, &input.key, &input.upload_id)?;
    let max_parts = page_size(input.max_parts, "max-parts")?;
    let marker = input.part_number_marker.unwrap_or(0);
    let after = u32::try_from(marker).map_err(|_| {
        Refusal::because("InvalidArgument", "Argument part-number-marker must be an integer between 0 and 2147483647")
    })?;
    let limit = usize::try_from(max_parts).unwrap_or_default();
    let page = handler.engine.list_parts(&target, after, limit).await.map_err(refuse)?;
    let class = page.upload.attributes.headers.storage_class.unwrap_or_else(|| DEFAULT_STORAGE_CLASS.to_owned());
    let checksum = page.upload.checksum;
    let (abort_date, abort_rule_id) = expiration::aborted(page.expiration.as_ref()).unzip();
    Ok(S3Response::new(ListPartsOutput {
        abort_date,
        abort_rule_id,
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(input.upload_id),
        part_number_marker: Some(marker),
        next_part_number_marker: page.next_after.and_then(|number| i32::try_from(number).ok()),
        max_parts: Some(max_parts),
        is_truncated: Some(page.next_after.is_some()),
        parts: Some(page.parts.iter().map(part).collect()),
        initiator: Some(initiator()),
        owner: Some(owner()),
        storage_class: Some(StorageClass::from(class)),
        checksum_algorithm: checksum.map(|checksum| checksums::algorithm_name(checksum.algorithm)),
        checksum_type: checksum.map(|checksum| checksums::type_of(checksum.coverage)),
        ..ListPartsOutput::default()
    }))
}

fn part(part: &StoredPart) -> Part {
    let checksum = ChecksumFields::of(part.checksum.as_ref());
    Part {
        checksum_crc32: checksum.crc32,
        checksum_crc32c: checksum.crc32c,
        checksum_crc64nvme: checksum.crc64nvme,
        checksum_sha1: checksum.sha1,
        checksum_sha256: checksum.sha256,
        e_tag: Some(ETag::Strong(part.etag().to_string())),
        last_modified: Some(times::to_s3(part.last_modified)),
        part_number: i32::try_from(part.number).ok(),
        size: i64::try_from(part.length).ok(),
    }
}
