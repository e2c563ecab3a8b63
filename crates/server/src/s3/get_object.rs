//! GetObject and HeadObject.

use futures_util::TryStreamExt as _;
use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, EXPIRES};
use http::{HeaderMap, HeaderValue};
use http_body::Frame;
use http_body_util::StreamBody;
use s3o_engine::{ByteStream, Found, GetObject, Wanted};
use s3o_model::multipart::PART_NUMBER_MAX;
use s3o_model::range::RangeSpec;
use s3s::dto::{
    ChecksumMode, ETag, GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput, Range, StreamingBlob,
};
use s3s::{Body, S3Request, S3Response};

use super::attributes::{DEFAULT_CONTENT_TYPE, named_storage_class};
use super::checksums::{self, Fields};
use super::conditions::{self, Given};
use super::door::{Answer, Door};
use super::errors::refuse;
use super::refusal::Refusal;
use super::{expiration, names, times};

/// What both operations ask for, in the same fields.
macro_rules! wanted {
    ($input:expr) => {{
        names::version($input.version_id.as_deref())?;
        GetObject {
            bucket: names::bucket(&$input.bucket)?,
            key: names::key(&$input.key)?,
            wanted: wanted($input.range, $input.part_number)?,
            conditions: conditions::of_read(Given {
                if_match: $input.if_match,
                if_none_match: $input.if_none_match,
                if_modified_since: $input.if_modified_since,
                if_unmodified_since: $input.if_unmodified_since,
            }),
        }
    }};
}

/// What both operations answer, in the same fields.
macro_rules! described {
    ($output:ident, $found:expr, $checksum_mode:expr) => {{
        let found: &Found = $found;
        let object = &found.object;
        let headers = &object.attributes.headers;
        let shown = shown_checksum(found, $checksum_mode);
        let checksum = Fields::of(shown);
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
            expiration: expiration::shown(found.departure.as_ref()),
            last_modified: Some(times::to_s3(object.last_modified)),
            metadata: Some(object.attributes.metadata.clone().into_iter().collect()),
            parts_count: found.parts_count.and_then(|count| i32::try_from(count).ok()),
            storage_class: named_storage_class(headers.storage_class.as_ref()),
            ..$output::default()
        }
    }};
}

/// Reads an object.
pub async fn get(door: &Door, request: S3Request<GetObjectInput>) -> Answer<GetObjectOutput> {
    let input = request.input;
    let checksum_mode = input.checksum_mode;
    let opened = door.engine.get_object(wanted!(input)).await.map_err(refuse)?;
    let mut output = described!(GetObjectOutput, &opened.found, checksum_mode.as_ref());
    // An override by `response-expires` is already in place when these headers are merged in.
    let expires = input.response_expires.is_none();
    output.body = Some(outgoing(opened.body));
    Ok(S3Response::with_headers(output, extra_headers(&opened.found, expires)))
}

/// Describes an object.
pub async fn head(door: &Door, request: S3Request<HeadObjectInput>) -> Answer<HeadObjectOutput> {
    let input = request.input;
    let overridden = overridden_headers(&input)?;
    let checksum_mode = input.checksum_mode;
    let found = door.engine.head_object(&wanted!(input)).await.map_err(refuse)?;
    let output = described!(HeadObjectOutput, &found, checksum_mode.as_ref());
    let mut headers = extra_headers(&found, true);
    headers.extend(overridden);
    Ok(S3Response::with_headers(output, headers))
}

/// The `response-*` parameters; for GetObject the protocol library sees to them.
fn overridden_headers(input: &HeadObjectInput) -> Result<HeaderMap, Refusal> {
    let expires = input.response_expires.clone().map(|moment| times::http_date(times::from_s3(moment)));
    let given = [
        (CACHE_CONTROL, &input.response_cache_control),
        (CONTENT_DISPOSITION, &input.response_content_disposition),
        (CONTENT_ENCODING, &input.response_content_encoding),
        (CONTENT_LANGUAGE, &input.response_content_language),
        (CONTENT_TYPE, &input.response_content_type),
        (EXPIRES, &expires),
    ];
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let Some(value) = value else { continue };
        let invalid = |_| Refusal::because("InvalidArgument", format!("{value:?} cannot be the value of a header"));
        headers.insert(name, HeaderValue::from_str(value).map_err(invalid)?);
    }
    Ok(headers)
}

fn wanted(range: Option<Range>, part_number: Option<i32>) -> Result<Wanted, Refusal> {
    match (range, part_number) {
        (None, None) => Ok(Wanted::Whole),
        (Some(range), None) => Ok(Wanted::Range(range_spec(range))),
        (None, Some(number)) => part(number).map(Wanted::Part),
        (Some(_), Some(_)) => {
            Err(Refusal::because("InvalidRequest", "Cannot specify both Range header and partNumber query parameter"))
        }
    }
}

fn part(number: i32) -> Result<u32, Refusal> {
    let valid = u32::try_from(number).ok().filter(|number| (1..=PART_NUMBER_MAX).contains(number));
    let message = "Part number must be an integer between 1 and 10000, inclusive";
    valid.ok_or_else(|| Refusal::because("InvalidArgument", message))
}

fn range_spec(range: Range) -> RangeSpec {
    match range {
        Range::Int { first, last } => RangeSpec::From { first, last },
        Range::Suffix { length } => RangeSpec::Suffix { length },
    }
}

/// Only asked for, and only where the whole object is answered: it covers nothing less.
fn shown_checksum<'a>(found: &'a Found, mode: Option<&ChecksumMode>) -> Option<&'a s3o_model::checksum::Checksum> {
    let asked = mode.is_some_and(|mode| mode.as_str().eq_ignore_ascii_case(ChecksumMode::ENABLED));
    found.object.checksum.as_ref().filter(|_| asked && !found.partial)
}

fn content_range(found: &Found) -> Option<String> {
    let (start, length, size) = (found.range.start, found.range.length, found.object.size_bytes);
    // A part without bytes has no range to name.
    (found.partial && length > 0).then(|| format!("bytes {start}-{}/{size}", start + length - 1))
}

/// What the output structures have no field for.
fn extra_headers(found: &Found, expires: bool) -> HeaderMap {
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

/// An error item aborts the connection, so a broken read never looks complete.
fn outgoing(body: ByteStream) -> StreamingBlob {
    StreamingBlob::from(Body::http_body_unsync(StreamBody::new(body.map_ok(Frame::data))))
}

#[cfg(test)]
mod tests {
    use super::{overridden_headers, wanted};
    use s3o_engine::Wanted;
    use s3o_model::range::RangeSpec;
    use s3s::dto::{HeadObjectInput, Range};

    fn head(change: impl FnOnce(&mut HeadObjectInput)) -> HeadObjectInput {
        let mut builder = HeadObjectInput::builder();
        builder.set_bucket("photos".into()).set_key("a".into());
        let mut input = builder.build().unwrap();
        change(&mut input);
        input
    }

    #[test]
    fn overrides_are_headers_and_nothing_more() {
        let plain = head(|input| input.response_content_type = Some("image/png".into()));
        assert_eq!(overridden_headers(&plain).unwrap()["content-type"], "image/png");
        let split = head(|input| input.response_cache_control = Some("a\r\nset-cookie: b".into()));
        assert_eq!(overridden_headers(&split).unwrap_err().code, "InvalidArgument");
    }

    #[test]
    fn a_range_or_a_part_but_not_both() {
        let range = Some(Range::Int { first: 1, last: None });
        assert_eq!(wanted(None, None).unwrap(), Wanted::Whole);
        assert_eq!(wanted(range, None).unwrap(), Wanted::Range(RangeSpec::From { first: 1, last: None }));
        assert_eq!(wanted(None, Some(3)).unwrap(), Wanted::Part(3));
        assert_eq!(wanted(range, Some(3)).unwrap_err().code, "InvalidRequest");
    }

    #[test]
    fn part_numbers_are_bounded() {
        for number in [-1, 0, 10_001] {
            assert_eq!(wanted(None, Some(number)).unwrap_err().code, "InvalidArgument");
        }
    }
}
