//! Conditional headers, as the model judges them.

use http::HeaderMap;
use s3o_model::conditions::{ETagMatch, ReadConditions, WriteCondition};
use s3o_model::etag::ETag;
use s3s::dto::{ETagCondition, Timestamp};

use super::refusal::Refusal;
use super::times;

/// The four conditional headers of a read or of a copy's source.
#[derive(Debug, Default)]
#[expect(clippy::struct_field_names, reason = "the fields are named as the headers are")]
pub struct Given {
    /// `If-Match`.
    pub if_match: Option<ETagCondition>,
    /// `If-None-Match`.
    pub if_none_match: Option<ETagCondition>,
    /// `If-Modified-Since`.
    pub if_modified_since: Option<Timestamp>,
    /// `If-Unmodified-Since`.
    pub if_unmodified_since: Option<Timestamp>,
}

/// The conditions of a read.
pub fn of_read(given: Given) -> ReadConditions {
    ReadConditions {
        if_match: given.if_match.map(etag_match),
        if_none_match: given.if_none_match.map(etag_match),
        if_modified_since: given.if_modified_since.map(times::from_s3),
        if_unmodified_since: given.if_unmodified_since.map(times::from_s3),
    }
}

fn etag_match(condition: ETagCondition) -> ETagMatch {
    match condition {
        ETagCondition::Any => ETagMatch::Any,
        // The library takes a list for one ETag with quotes and commas in it; ours have neither.
        ETagCondition::ETag(etag) => ETagMatch::OneOf(etag.value().split(',').map(one_of_list).collect()),
    }
}

fn one_of_list(piece: &str) -> ETag {
    let piece = piece.trim();
    ETag::from_text(piece.strip_prefix("W/").unwrap_or(piece))
}

/// The condition of a write. S3 knows `If-Match` and `If-None-Match: *`.
pub fn of_write(
    if_match: Option<ETagCondition>,
    if_none_match: Option<ETagCondition>,
) -> Result<WriteCondition, Refusal> {
    match (if_match, if_none_match) {
        (None, None) => Ok(WriteCondition::None),
        (None, Some(ETagCondition::Any)) => Ok(WriteCondition::IfAbsent),
        (None, Some(ETagCondition::ETag(_))) => {
            Err(Refusal::because("NotImplemented", "If-None-Match with an ETag is not implemented for writes"))
        }
        (Some(ETagCondition::Any), None) => Ok(WriteCondition::IfMatch(None)),
        (Some(ETagCondition::ETag(etag)), None) => Ok(WriteCondition::IfMatch(Some(ETag::from_text(etag.value())))),
        (Some(_), Some(_)) => {
            Err(Refusal::because("NotImplemented", "If-Match together with If-None-Match is not implemented"))
        }
    }
}

/// The condition of a write whose input has no fields for it.
pub fn of_write_headers(headers: &HeaderMap) -> Result<WriteCondition, Refusal> {
    of_write(header(headers, "if-match")?, header(headers, "if-none-match")?)
}

fn header(headers: &HeaderMap, name: &str) -> Result<Option<ETagCondition>, Refusal> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let malformed = |_| Refusal::because("InvalidArgument", format!("The header {name} is not an ETag"));
    ETagCondition::parse_http_header(value.as_bytes()).map(Some).map_err(malformed)
}

#[cfg(test)]
mod tests {
    use super::{Given, of_read, of_write, of_write_headers};
    use http::{HeaderMap, HeaderName, HeaderValue};
    use s3o_model::conditions::{ETagMatch, WriteCondition};
    use s3o_model::etag::ETag;
    use s3s::dto::ETagCondition;

    #[expect(clippy::unnecessary_wraps, reason = "the fields that take it are optional")]
    fn one(text: &str) -> Option<ETagCondition> {
        Some(ETagCondition::parse_http_header(text.as_bytes()).unwrap())
    }

    #[test]
    fn writes_know_two_conditions() {
        assert_eq!(of_write(None, None).unwrap(), WriteCondition::None);
        assert_eq!(of_write(None, one("*")).unwrap(), WriteCondition::IfAbsent);
        assert_eq!(of_write(one("*"), None).unwrap(), WriteCondition::IfMatch(None));
        assert_eq!(of_write(one("\"a\""), None).unwrap(), WriteCondition::IfMatch(Some(ETag::from_text("a"))));
        assert_eq!(of_write(None, one("\"a\"")).unwrap_err().code, "NotImplemented");
        assert_eq!(of_write(one("*"), one("*")).unwrap_err().code, "NotImplemented");
    }

    #[test]
    fn headers_are_read_where_the_input_has_no_field() {
        let map = HeaderMap::from_iter([(HeaderName::from_static("if-none-match"), HeaderValue::from_static("*"))]);
        assert_eq!(of_write_headers(&map).unwrap(), WriteCondition::IfAbsent);
        assert_eq!(of_write_headers(&HeaderMap::new()).unwrap(), WriteCondition::None);
    }

    #[test]
    fn reads_take_etags_with_or_without_quotes() {
        let conditions = of_read(Given { if_match: one("\"a\""), if_none_match: one("*"), ..Given::default() });
        assert_eq!(conditions.if_match, Some(ETagMatch::OneOf(vec![ETag::from_text("a")])));
        assert_eq!(conditions.if_none_match, Some(ETagMatch::Any));
    }

    #[test]
    fn reads_take_lists_of_etags() {
        let conditions = of_read(Given { if_none_match: one("\"a\", W/\"b\""), ..Given::default() });
        let both = vec![ETag::from_text("a"), ETag::from_text("b")];
        assert_eq!(conditions.if_none_match, Some(ETagMatch::OneOf(both)));
    }
}
