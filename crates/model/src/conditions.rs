//! Conditional requests.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::etag::ETag;

/// The ETags of an `If-Match` or `If-None-Match` header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ETagMatch {
    /// `*`: any object.
    Any,
    /// A list of ETags; one of them must be equal.
    OneOf(Vec<ETag>),
}

impl ETagMatch {
    fn matches(&self, etag: &ETag) -> bool {
        match self {
            Self::Any => true,
            Self::OneOf(etags) => etags.contains(etag),
        }
    }
}

/// The conditions of a read, or of the source of a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadConditions {
    /// Fails with 412 unless the object has one of the ETags.
    pub if_match: Option<ETagMatch>,
    /// Answers 304 if the object has one of the ETags.
    pub if_none_match: Option<ETagMatch>,
    /// Answers 304 if the object was not written after this time; ignored with `If-None-Match`.
    pub if_modified_since: Option<Timestamp>,
    /// Fails with 412 if the object was written after this time; ignored with `If-Match`.
    pub if_unmodified_since: Option<Timestamp>,
}

/// Result of the conditions of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadVerdict {
    /// The read proceeds.
    Proceed,
    /// The client has the object already: 304.
    NotModified,
    /// A condition failed: 412.
    Failed,
}

impl ReadConditions {
    /// Evaluates the conditions in the order of RFC 9110: an ETag takes precedence over a date.
    #[must_use]
    pub fn judge(&self, etag: &ETag, last_modified: Timestamp) -> ReadVerdict {
        // HTTP dates have whole seconds.
        let modified = last_modified.seconds();
        let changed_since = |moment: Option<Timestamp>| moment.is_some_and(|m| modified > m.seconds());
        match &self.if_match {
            Some(wanted) if !wanted.matches(etag) => return ReadVerdict::Failed,
            None if changed_since(self.if_unmodified_since) => return ReadVerdict::Failed,
            Some(_) | None => {}
        }
        match &self.if_none_match {
            Some(known) if known.matches(etag) => ReadVerdict::NotModified,
            None if self.if_modified_since.is_some_and(|m| modified <= m.seconds()) => ReadVerdict::NotModified,
            Some(_) | None => ReadVerdict::Proceed,
        }
    }
}

/// The condition of a write, checked in the transaction that commits it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteCondition {
    /// Unconditional.
    #[default]
    None,
    /// `If-None-Match: *`: only if the key is free.
    IfAbsent,
    /// `If-Match`: only over an object with this ETag, or over any object for `None` (`*`).
    IfMatch(Option<ETag>),
}

#[cfg(test)]
mod tests {
    use super::{ETagMatch, ReadConditions, ReadVerdict};
    use crate::clock::Timestamp;
    use crate::etag::ETag;

    const MODIFIED: Timestamp = Timestamp::from_millis(100_500);
    const EARLIER: Option<Timestamp> = Some(Timestamp::from_millis(99_000));
    const SAME_SECOND: Option<Timestamp> = Some(Timestamp::from_millis(100_000));

    fn one(text: &str) -> ETagMatch {
        ETagMatch::OneOf(vec![ETag::from_text(text)])
    }

    fn judge(conditions: &ReadConditions) -> ReadVerdict {
        conditions.judge(&ETag::from_text("a"), MODIFIED)
    }

    #[test]
    fn each_condition_is_evaluated() {
        let none = ReadConditions::default();
        assert_eq!(judge(&none), ReadVerdict::Proceed);
        assert_eq!(judge(&ReadConditions { if_match: Some(one("b")), ..none.clone() }), ReadVerdict::Failed);
        assert_eq!(judge(&ReadConditions { if_none_match: Some(one("a")), ..none.clone() }), ReadVerdict::NotModified);
        assert_eq!(judge(&ReadConditions { if_unmodified_since: EARLIER, ..none.clone() }), ReadVerdict::Failed);
        assert_eq!(judge(&ReadConditions { if_unmodified_since: SAME_SECOND, ..none.clone() }), ReadVerdict::Proceed);
        assert_eq!(judge(&ReadConditions { if_modified_since: SAME_SECOND, ..none.clone() }), ReadVerdict::NotModified);
        assert_eq!(judge(&ReadConditions { if_modified_since: EARLIER, ..none }), ReadVerdict::Proceed);
    }

    #[test]
    fn etag_takes_precedence_over_date() {
        let matched = ReadConditions { if_match: Some(one("a")), if_unmodified_since: EARLIER, ..Default::default() };
        assert_eq!(judge(&matched), ReadVerdict::Proceed);
        let differs =
            ReadConditions { if_none_match: Some(one("b")), if_modified_since: SAME_SECOND, ..Default::default() };
        assert_eq!(judge(&differs), ReadVerdict::Proceed);
    }

    #[test]
    fn star_matches_any_object() {
        let conditions = ReadConditions { if_match: Some(ETagMatch::Any), ..Default::default() };
        assert_eq!(judge(&conditions), ReadVerdict::Proceed);
    }
}
