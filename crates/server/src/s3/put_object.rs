//! PutObject.

use s3o_engine::PutObject;
use s3s::dto::{ETag, PutObjectInput, PutObjectOutput};
use s3s::{S3Request, S3Response};

use super::attributes::given;
use super::body::{self, DeclaredChecksums};
use super::checksums::{self, ChecksumFields, fields};
use super::errors::refuse;
use super::s3_handler::{S3Answer, S3Handler};
use super::{conditions, expiration, names};

/// `PutObject`.
pub async fn put(handler: &S3Handler, request: S3Request<PutObjectInput>) -> S3Answer<PutObjectOutput> {
    let S3Request { mut input, headers, trailing_headers, credentials, .. } = request;
    let size_bytes = body::length(input.content_length, &headers)?;
    let attributes = given!(input).attributes(&headers)?;
    let declared = DeclaredChecksums {
        content_md5: input.content_md5.take(),
        checksum: fields!(input),
        headers: &headers,
        trailing: trailing_headers,
    };
    let put = PutObject {
        bucket: names::bucket(&input.bucket)?,
        key: names::key(&input.key)?,
        size_bytes,
        declared: body::declared(declared)?,
        attributes,
        condition: conditions::of_write(input.if_match, input.if_none_match)?,
        expiry: expiration::requested(&headers)?,
        body: body::stream(input.body),
    };
    let _reserved = handler.reserved_share.reserve(&handler.engine, credentials.as_ref(), size_bytes).await?;
    let stored = handler.engine.put_object(put).await.map_err(refuse)?;
    let checksum = ChecksumFields::of(stored.checksum.as_ref());
    Ok(S3Response::new(PutObjectOutput {
        e_tag: Some(ETag::Strong(stored.etag.to_string())),
        expiration: expiration::shown(stored.expiration.as_ref()),
        checksum_crc32: checksum.crc32,
        checksum_crc32c: checksum.crc32c,
        checksum_crc64nvme: checksum.crc64nvme,
        checksum_sha1: checksum.sha1,
        checksum_sha256: checksum.sha256,
        checksum_type: stored.checksum.map(|checksum| checksums::type_of(checksum.coverage)),
        ..PutObjectOutput::default()
    }))
}
