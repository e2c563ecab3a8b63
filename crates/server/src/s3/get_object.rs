//! GetObject and HeadObject.

use futures_util::TryStreamExt as _;
use http::header::EXPIRES;
use http::{HeaderMap, HeaderValue};
use http_body::Frame;
use http_body_util::StreamBody;
use s3o_engine::{ByteStream, FoundObject, GetObject, RequestedRange};
use s3o_model::range::RangeSpec;
use s3s::dto::{
    ChecksumMode, ETag, GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput, Range, StreamingBlob,
};
use s3s::{Body, S3Request, S3Response};

use super::attributes::{DEFAULT_CONTENT_TYPE, named_storage_class};
use super::checksums::{self, ChecksumFields};
use super::compat::inputs;
use super::conditions::{self, ConditionHeaders};
use super::errors::refuse;
use super::refusal::Refusal;
use super::s3_handler::{S3Answer, S3Handler};
use super::{expiration, multipart, names, times};

/// Builds the engine request from the fields that both inputs share.
macro_rules! wanted {
    ($input:expr) => {{
        names::version($input.version_id.as_deref())?;
        GetObject {
            bucket: names::bucket(&$input.bucket)?,
            key: names::key(&$input.key)?,
            wanted: wanted($input.range, $input.part_number)?,
            conditions: conditions::of_read(ConditionHeaders {
                if_match: $input.if_match,
                if_none_match: $input.if_none_match,
                if_modified_since: $input.if_modified_since,
                if_unmodified_since: $input.if_unmodified_since,
            }),
        }
    }};
}

/// Builds the fields that both outputs share.
macro_rules! described {
    ($output:ident, $found:expr, $checksum_mode:expr) => {{
        let found: &FoundObject = $found;
        let object = &found.object;
        let headers = &object.attributes.headers;
        let shown = shown_checksum(found, $checksum_mode);
        let checksum = ChecksumFields::of(shown);
        $output {
            accept_ranges: Some("bytes".to_owned()),
            cache_control: headers.cache_control.clone(),
            checksum_crc32: checksum.crc32,
            checksum_crc32c: checksum.crc32c,
            checksum_crc64nvme: checksum.crc64nvme,
            checksum_sha1: checksum.sha1,
            checksum_sha256: checksum.sha256,
            checksum_type: shown.map(|checksum| checksums::type_of(checksum.coverage)),
            content_disposition: headers.content_disposition.clone(),
            content_encoding: headers.content_encoding.clone(),
            content_language: headers.content_language.clone(),
            content_length: i64::try_from(found.range.length).ok(),
            content_range: content_range(found),
            content_type: Some(headers.content_type.clone().unwrap_or_else(|| DEFAULT_CONTENT_TYPE.to_owned())),
            e_tag: Some(ETag::Strong(object.etag.to_string())),
            expiration: expiration::shown(found.expiration.as_ref()),
            last_modified: Some(times::to_s3(object.last_modified)),
            metadata: Some(object.attributes.metadata.clone().into_iter().collect()),
            parts_count: found.parts_count.and_then(|count| i32::try_from(count).ok()),
            storage_class: named_storage_class(headers.storage_class.as_ref()),
            ..$output::default()
        }
    }};
}

/// `GetObject`.
pub async fn get(handler: &S3Handler, request: S3Request<GetObjectInput>) -> S3Answer<GetObjectOutput> {
    let input = request.input;
    let checksum_mode = input.checksum_mode;
    let opened = handler.engine.get_object(wanted!(input)).await.map_err(refuse)?;
    let mut output = described!(GetObjectOutput, &opened.found, checksum_mode.as_ref());
    // The library set `Expires` from `response-expires` before it merges these headers in.
    let expires = input.response_expires.is_none();
    output.body = Some(response_body(opened.body));
    Ok(S3Response::with_headers(output, extra_headers(&opened.found, expires)))
}

/// `HeadObject`.
pub async fn head(handler: &S3Handler, request: S3Request<HeadObjectInput>) -> S3Answer<HeadObjectOutput> {
    let input = request.input;
    let overridden = inputs::response_overrides(&input)?;
    let checksum_mode = input.checksum_mode;
    let found = handler.engine.head_object(&wanted!(input)).await.map_err(refuse)?;
    let output = described!(HeadObjectOutput, &found, checksum_mode.as_ref());
    let mut headers = extra_headers(&found, true);
    headers.extend(overridden);
    Ok(S3Response::with_headers(output, headers))
}

fn wanted(range: Option<Range>, part_number: Option<i32>) -> Result<RequestedRange, Refusal> {
    match (range, part_number) {
        (None, None) => Ok(RequestedRange::Whole),
        (Some(range), None) => Ok(RequestedRange::Range(range_spec(range))),
        (None, Some(number)) => multipart::part_number(number).map(RequestedRange::Part),
        (Some(_), Some(_)) => {
            Err(Refusal::because("InvalidRequest", "Cannot specify both Range header and partNumber query parameter"))
        }
    }
}

fn range_spec(range: Range) -> RangeSpec {
    match range {
        Range::Int { first, last } => RangeSpec::From { first, last },
        Range::Suffix { length } => RangeSpec::Suffix { length },
    }
}

/// The checksum, if the client asked for it and gets the whole object, which is what the checksum covers.
fn shown_checksum<'a>(
    found: &'a FoundObject,
    mode: Option<&ChecksumMode>,
) -> Option<&'a s3o_model::checksum::Checksum> {
    let requested = mode.is_some_and(|mode| mode.as_str().eq_ignore_ascii_case(ChecksumMode::ENABLED));
    found.object.checksum.as_ref().filter(|_| requested && !found.partial)
}

fn content_range(found: &FoundObject) -> Option<String> {
    let (start, length, size) = (found.range.start, found.range.length, found.object.size_bytes);
    // An empty part has no range.
    (found.partial && length > 0).then(|| format!("bytes {start}-{}/{size}", start + length - 1))
}

/// Headers that the output has no field for.
fn extra_headers(found: &FoundObject, expires: bool) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let attributes = &found.object.attributes;
    if let Some(value) =
        attributes.headers.expires.as_ref().filter(|_| expires).and_then(|e| HeaderValue::from_str(e).ok())
    {
        headers.insert(EXPIRES, value);
    }
    if !attributes.tags.is_empty() {
        headers.insert("x-amz-tagging-count", HeaderValue::from(attributes.tags.len()));
    }
    headers
}

/// The response body. An error item closes the connection, so a failed read never looks complete.
fn response_body(body: ByteStream) -> StreamingBlob {
    StreamingBlob::from(Body::http_body_unsync(StreamBody::new(body.map_ok(Frame::data))))
}

#[cfg(test)]
mod tests {
    use super::wanted;
    use s3o_engine::RequestedRange;
    use s3o_model::range::RangeSpec;
    use s3s::dto::Range;

    #[test]
    fn range_and_part_number_exclude_each_other() {
        let range = Some(Range::Int { first: 1, last: None });
        assert_eq!(wanted(None, None).unwrap(), RequestedRange::Whole);
        assert_eq!(wanted(range, None).unwrap(), RequestedRange::Range(RangeSpec::From { first: 1, last: None }));
        assert_eq!(wanted(None, Some(3)).unwrap(), RequestedRange::Part(3));
        assert_eq!(wanted(range, Some(3)).unwrap_err().code, "InvalidRequest");
    }

    #[test]
    fn part_numbers_are_bounded() {
        for number in [-1, 0, 10_001] {
            assert_eq!(wanted(None, Some(number)).unwrap_err().code, "InvalidArgument");
        }
    }
}
