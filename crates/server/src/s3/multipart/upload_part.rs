//! UploadPart and UploadPartCopy.

use s3o_engine::multipart::{UploadPart, UploadPartCopy};
use s3o_model::range::RangeSpec;
use s3s::dto::{
    CopyPartResult, ETag, Range, UploadPartCopyInput, UploadPartCopyOutput, UploadPartInput, UploadPartOutput,
};
use s3s::{S3Request, S3Response};

use super::{part_number, upload_ref};
use crate::s3::body::{self, DeclaredChecksums};
use crate::s3::checksums::{ChecksumFields, fields};
use crate::s3::copy_object::{source, source_conditions};
use crate::s3::errors::refuse;
use crate::s3::refusal::Refusal;
use crate::s3::s3_handler::{S3Answer, S3Handler};
use crate::s3::times;

/// `UploadPart`.
pub async fn upload(handler: &S3Handler, request: S3Request<UploadPartInput>) -> S3Answer<UploadPartOutput> {
    let S3Request { mut input, headers, trailing_headers, credentials, .. } = request;
    let declared = DeclaredChecksums {
        content_md5: input.content_md5.take(),
        checksum: fields!(input),
        headers: &headers,
        trailing: trailing_headers,
    };
    let part = UploadPart {
        number: part_number(input.part_number)?,
        size_bytes: body::length(input.content_length, &headers)?,
        target: upload_ref(&input.bucket, &input.key, &input.upload_id)?,
        declared: body::declared(declared)?,
        body: body::stream(input.body),
    };
    let _reserved = handler.reserved_share.reserve(&handler.engine, credentials.as_ref(), part.size_bytes).await?;
    let stored = handler.engine.upload_part(part).await.map_err(refuse)?;
    let checksum = ChecksumFields::of(stored.checksum.as_ref());
    Ok(S3Response::new(UploadPartOutput {
        e_tag: Some(ETag::Strong(stored.etag.to_string())),
        checksum_crc32: checksum.crc32,
        checksum_crc32c: checksum.crc32c,
        checksum_crc64nvme: checksum.crc64nvme,
        checksum_sha1: checksum.sha1,
        checksum_sha256: checksum.sha256,
        ..UploadPartOutput::default()
    }))
}

/// `UploadPartCopy`.
pub async fn copy(handler: &S3Handler, request: S3Request<UploadPartCopyInput>) -> S3Answer<UploadPartCopyOutput> {
    let mut input = request.input;
    let conditions = source_conditions!(input);
    let copy = UploadPartCopy {
        target: upload_ref(&input.bucket, &input.key, &input.upload_id)?,
        number: part_number(input.part_number)?,
        source: source(&input.copy_source, conditions)?,
        range: input.copy_source_range.as_deref().map(copy_range).transpose()?,
    };
    let copied = handler.engine.upload_part_copy(copy).await.map_err(refuse)?;
    let checksum = ChecksumFields::of(copied.checksum.as_ref());
    let result = CopyPartResult {
        e_tag: Some(ETag::Strong(copied.etag.to_string())),
        last_modified: Some(times::to_s3(copied.last_modified)),
        checksum_crc32: checksum.crc32,
        checksum_crc32c: checksum.crc32c,
        checksum_crc64nvme: checksum.crc64nvme,
        checksum_sha1: checksum.sha1,
        checksum_sha256: checksum.sha256,
    };
    let output = UploadPartCopyOutput { copy_part_result: Some(result), ..UploadPartCopyOutput::default() };
    Ok(S3Response::new(output))
}

/// Unlike in a read, both ends of the range are required.
fn copy_range(text: &str) -> Result<RangeSpec, Refusal> {
    match Range::parse(text) {
        Ok(Range::Int { first, last: Some(last) }) => Ok(RangeSpec::From { first, last: Some(last) }),
        Ok(Range::Int { last: None, .. } | Range::Suffix { .. }) | Err(_) => {
            let message = "The x-amz-copy-source-range value must be of the form bytes=first-last";
            Err(Refusal::because("InvalidArgument", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{copy_range, part_number};
    use s3o_model::range::RangeSpec;

    #[test]
    fn copy_range_needs_both_ends() {
        assert_eq!(copy_range("bytes=0-9").unwrap(), RangeSpec::From { first: 0, last: Some(9) });
        for range in ["bytes=0-", "bytes=-5", "0-9", "bytes=9-0", "bytes=0-1,2-3", ""] {
            assert_eq!(copy_range(range).unwrap_err().code, "InvalidArgument", "{range}");
        }
    }

    #[test]
    fn part_numbers_are_bounded() {
        assert_eq!(part_number(10_000).unwrap(), 10_000);
        for number in [0, -1, 10_001] {
            assert_eq!(part_number(number).unwrap_err().code, "InvalidArgument");
        }
    }
}
