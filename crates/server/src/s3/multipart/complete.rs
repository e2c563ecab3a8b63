//! `CompleteMultipartUpload` and `AbortMultipartUpload`.

use http::HeaderMap;
use s3o_engine::multipart::CompleteUpload;
use s3o_model::etag::ETag as StoredETag;
use s3o_model::multipart::ListedPart;
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, CompleteMultipartUploadInput, CompleteMultipartUploadOutput,
    CompletedMultipartUpload, CompletedPart, ETag,
};
use s3s::{S3Request, S3Response};

use super::upload_ref;
use crate::s3::checksums::{self, ChecksumFields, fields};
use crate::s3::errors::refuse;
use crate::s3::refusal::Refusal;
use crate::s3::s3_handler::{S3Answer, S3Handler};
use crate::s3::url_encoding::NameEncoding;
use crate::s3::{conditions, expiration};

/// `CompleteMultipartUpload`.
pub async fn complete(
    handler: &S3Handler,
    request: S3Request<CompleteMultipartUploadInput>,
) -> S3Answer<CompleteMultipartUploadOutput> {
    let mut input = request.input;
    let complete = CompleteUpload {
        target: upload_ref(&input.bucket, &input.key, &input.upload_id)?,
        parts: listed_parts(input.multipart_upload.take())?,
        condition: conditions::of_write(input.if_match.take(), input.if_none_match.take())?,
        checksum: fields!(input).only()?,
        coverage: input.checksum_type.as_ref().map(checksums::coverage).transpose()?,
        size_bytes: input.mpu_object_size.map(object_size).transpose()?,
    };
    let completed = handler.engine.complete_upload(complete).await.map_err(refuse)?;
    let checksum = ChecksumFields::of(completed.checksum.as_ref());
    Ok(S3Response::new(CompleteMultipartUploadOutput {
        location: Some(location(&request.headers, &input.bucket, &input.key)),
        bucket: Some(input.bucket),
        key: Some(input.key),
        e_tag: Some(ETag::Strong(completed.etag.to_string())),
        expiration: expiration::shown(completed.expiration.as_ref()),
        checksum_crc32: checksum.crc32,
        checksum_crc32c: checksum.crc32c,
        checksum_crc64nvme: checksum.crc64nvme,
        checksum_sha1: checksum.sha1,
        checksum_sha256: checksum.sha256,
        checksum_type: completed.checksum.map(|checksum| checksums::type_of(checksum.coverage)),
        ..CompleteMultipartUploadOutput::default()
    }))
}

fn object_size(size: i64) -> Result<u64, Refusal> {
    u64::try_from(size).map_err(|_| Refusal::because("InvalidRequest", "x-amz-mp-object-size must not be negative"))
}

fn listed_parts(document: Option<CompletedMultipartUpload>) -> Result<Vec<ListedPart>, Refusal> {
    let parts = document.and_then(|document| document.parts).ok_or_else(|| Refusal::new("MalformedXML"))?;
    parts.into_iter().map(listed_part).collect()
}

fn listed_part(mut part: CompletedPart) -> Result<ListedPart, Refusal> {
    let malformed = || Refusal::new("MalformedXML");
    let number = part.part_number.and_then(|number| u32::try_from(number).ok()).ok_or_else(malformed)?;
    let checksum = fields!(part).only()?;
    let etag = part.e_tag.ok_or_else(malformed)?;
    Ok(ListedPart { number, etag: StoredETag::from_text(etag.value()), checksum })
}

fn location(headers: &HeaderMap, bucket: &str, key: &str) -> String {
    let key = NameEncoding::Url.write(key);
    match headers.get("host").and_then(|host| host.to_str().ok()) {
        Some(host) => format!("http://{host}/{bucket}/{key}"),
        None => format!("/{bucket}/{key}"),
    }
}

/// `AbortMultipartUpload`.
pub async fn abort(
    handler: &S3Handler,
    request: S3Request<AbortMultipartUploadInput>,
) -> S3Answer<AbortMultipartUploadOutput> {
    let input = request.input;
    let target = upload_ref(&input.bucket, &input.key, &input.upload_id)?;
    handler.engine.abort_upload(&target).await.map_err(refuse)?;
    Ok(S3Response::new(AbortMultipartUploadOutput::default()))
}

#[cfg(test)]
mod tests {
    use super::{listed_parts, location};
    use http::HeaderMap;
    use s3s::dto::{CompletedMultipartUpload, CompletedPart, ETag};

    fn listed(part: CompletedPart) -> Result<Vec<s3o_model::multipart::ListedPart>, super::Refusal> {
        listed_parts(Some(CompletedMultipartUpload { parts: Some(vec![part]) }))
    }

    #[test]
    fn parts_need_a_number_and_an_etag() {
        let whole =
            CompletedPart { part_number: Some(1), e_tag: Some(ETag::Strong("a".into())), ..CompletedPart::default() };
        assert_eq!(listed(whole.clone()).unwrap()[0].number, 1);
        let nameless = CompletedPart { e_tag: None, ..whole.clone() };
        let numberless = CompletedPart { part_number: None, ..whole };
        for part in [nameless, numberless] {
            assert_eq!(listed(part).unwrap_err().code, "MalformedXML");
        }
        assert_eq!(listed_parts(None).unwrap_err().code, "MalformedXML");
    }

    #[test]
    fn locations_are_urls() {
        assert_eq!(location(&HeaderMap::new(), "b", "a b"), "/b/a%20b");
    }
}
