//! Input fields that the protocol library leaves out, unsplit or unchecked.

use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, EXPIRES};
use http::{HeaderMap, HeaderValue};
use s3o_engine::BodyError;
use s3o_model::etag::ETag;
use s3s::StdError;
use s3s::dto::{ETagCondition, HeadObjectInput, ObjectAttributes};

use crate::s3::errors::{BAD_FRAMING, CHUNK_SIGNATURE, PAYLOAD_HASH};
use crate::s3::refusal::Refusal;
use crate::s3::times;

/// The ETags of `If-Match` or `If-None-Match`. The library hands a list over as one ETag with quotes and commas; stored
/// ETags contain neither.
pub fn etag_list(value: &str) -> Vec<ETag> {
    let one = |piece: &str| ETag::from_text(piece.strip_prefix("W/").unwrap_or(piece));
    value.split(',').map(|piece| one(piece.trim())).collect()
}

/// A condition of `CopyObject` on its target: the library's input has no field for it.
pub fn etag_condition(headers: &HeaderMap, name: &str) -> Result<Option<ETagCondition>, Refusal> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let malformed = |_| Refusal::because("InvalidArgument", format!("The header {name} is not an ETag"));
    ETagCondition::parse_http_header(value.as_bytes()).map(Some).map_err(malformed)
}

/// The names in `x-amz-object-attributes`, which the library does not split.
pub fn attribute_names(attributes: &[ObjectAttributes]) -> Vec<String> {
    attributes.iter().flat_map(|list| list.as_str().split(',')).map(|name| name.trim().to_owned()).collect()
}

/// Refuses an empty `Content-MD5`; the library treats it as absent.
pub fn check_md5_header(headers: &HeaderMap) -> Result<(), Refusal> {
    let empty = headers.get_all("content-md5").iter().any(HeaderValue::is_empty);
    if empty { Err(Refusal::new("InvalidDigest")) } else { Ok(()) }
}

/// The cause of a body error, by its text: the library's error types are private.
pub fn body_error(error: &StdError) -> BodyError {
    let text = error.to_string();
    if text.contains("Sha256Mismatch") {
        BodyError::Mismatch(PAYLOAD_HASH)
    } else if text.contains("SignatureMismatch") {
        BodyError::Mismatch(CHUNK_SIGNATURE)
    } else if ["FormatError", "TooLarge", "TooManyTrailerHeaders"].iter().any(|kind| text.contains(kind)) {
        BodyError::Broken(BAD_FRAMING.to_owned())
    } else {
        BodyError::Broken(text)
    }
}

/// The headers that `response-*` parameters of `HeadObject` set; the library applies them to `GetObject` only.
pub fn response_overrides(input: &HeadObjectInput) -> Result<HeaderMap, Refusal> {
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

#[cfg(test)]
mod tests {
    use super::{body_error, response_overrides};
    use crate::s3::errors::{BAD_FRAMING, CHUNK_SIGNATURE, PAYLOAD_HASH};
    use s3o_engine::BodyError;
    use s3s::dto::HeadObjectInput;

    #[test]
    fn body_errors_are_classified_by_their_text() {
        let name = |text: &str| match body_error(&text.into()) {
            BodyError::Mismatch(name) => name.to_owned(),
            BodyError::Broken(why) => why,
            BodyError::Cancelled(_) | BodyError::Short { .. } | BodyError::Long { .. } => unreachable!(),
        };
        assert_eq!(name("UploadStreamError: Sha256Mismatch"), PAYLOAD_HASH);
        assert_eq!(name("AwsChunkedStreamError: SignatureMismatch"), CHUNK_SIGNATURE);
        assert_eq!(name("AwsChunkedStreamError: FormatError"), BAD_FRAMING);
        assert_eq!(name("connection reset"), "connection reset");
    }

    #[test]
    fn response_overrides_cannot_inject_headers() {
        let head = |change: fn(&mut HeadObjectInput)| {
            let mut builder = HeadObjectInput::builder();
            builder.set_bucket("photos".into()).set_key("a".into());
            let mut input = builder.build().unwrap();
            change(&mut input);
            input
        };
        let plain = head(|input| input.response_content_type = Some("image/png".into()));
        assert_eq!(response_overrides(&plain).unwrap()["content-type"], "image/png");
        let split = head(|input| input.response_cache_control = Some("a\r\nset-cookie: b".into()));
        assert_eq!(response_overrides(&split).unwrap_err().code, "InvalidArgument");
    }
}
