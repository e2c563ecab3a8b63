//! Translates conditional headers into the conditions of the model.

use http::HeaderMap;
use s3o_model::conditions::{ETagMatch, ReadConditions, WriteCondition};
use s3o_model::etag::ETag;
use s3s::dto::{ETagCondition, Timestamp};

use super::compat::inputs;
use super::refusal::Refusal;
use super::times;

/// The conditional headers of a read, or of the source of a copy.
#[derive(Debug, Default)]
#[expect(clippy::struct_field_names, reason = "the fields are named as the headers are")]
pub struct ConditionHeaders {
    pub if_match: Option<ETagCondition>,
    pub if_none_match: Option<ETagCondition>,
    pub if_modified_since: Option<Timestamp>,
    pub if_unmodified_since: Option<Timestamp>,
}

/// Conditions for a read.
pub fn of_read(given: ConditionHeaders) -> ReadConditions {
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
        ETagCondition::ETag(etag) => ETagMatch::OneOf(inputs::etag_list(etag.value())),
    }
}

/// Condition for a write. S3 knows `If-Match` and `If-None-Match: *`.
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

/// Condition for a write whose input has no fields for the headers.
pub fn of_write_headers(headers: &HeaderMap) -> Result<WriteCondition, Refusal> {
    of_write(inputs::etag_condition(headers, "if-match")?, inputs::etag_condition(headers, "if-none-match")?)
}

#[cfg(test)]
mod tests {
    use super::{ConditionHeaders, of_read, of_write, of_write_headers};
    use http::{HeaderMap, HeaderName, HeaderValue};
    use s3o_model::conditions::{ETagMatch, WriteCondition};
    use s3o_model::etag::ETag;
    use s3s::dto::ETagCondition;

    #[expect(clippy::unnecessary_wraps, reason = "the fields that take it are optional")]
    fn one(text: &str) -> Option<ETagCondition> {
        Some(ETagCondition::parse_http_header(text.as_bytes()).unwrap())
    }

    #[test]
    fn writes_accept_if_match_and_if_none_match_star() {
        assert_eq!(of_write(None, None).unwrap(), WriteCondition::None);
        assert_eq!(of_write(None, one("*")).unwrap(), WriteCondition::IfAbsent);
        assert_eq!(of_write(one("*"), None).unwrap(), WriteCondition::IfMatch(None));
        assert_eq!(of_write(one("\"a\""), None).unwrap(), WriteCondition::IfMatch(Some(ETag::from_text("a"))));
        assert_eq!(of_write(None, one("\"a\"")).unwrap_err().code, "NotImplemented");
        assert_eq!(of_write(one("*"), one("*")).unwrap_err().code, "NotImplemented");
    }

    #[test]
    fn write_condition_is_read_from_headers() {
        let map = HeaderMap::from_iter([(HeaderName::from_static("if-none-match"), HeaderValue::from_static("*"))]);
        assert_eq!(of_write_headers(&map).unwrap(), WriteCondition::IfAbsent);
        assert_eq!(of_write_headers(&HeaderMap::new()).unwrap(), WriteCondition::None);
    }

    #[test]
    fn read_conditions_accept_etags_and_star() {
        let conditions = of_read(ConditionHeaders {
            if_match: one("\"a\""),
            if_none_match: one("*"),
            ..ConditionHeaders::default()
        });
        assert_eq!(conditions.if_match, Some(ETagMatch::OneOf(vec![ETag::from_text("a")])));
        assert_eq!(conditions.if_none_match, Some(ETagMatch::Any));
    }

    #[test]
    fn read_conditions_accept_etag_lists() {
        let conditions =
            of_read(ConditionHeaders { if_none_match: one("\"a\", W/\"b\""), ..ConditionHeaders::default() });
        let both = vec![ETag::from_text("a"), ETag::from_text("b")];
        assert_eq!(conditions.if_none_match, Some(ETagMatch::OneOf(both)));
    }
}
