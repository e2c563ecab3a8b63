//! Conditional requests: what may proceed, given what there is.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::etag::ETag;

/// A list of `ETag`s, or any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ETagMatch {
    /// `*`: whatever there is.
    Any,
    /// One of these.
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
    /// `If-Match`.
    pub if_match: Option<ETagMatch>,
    /// `If-None-Match`.
    pub if_none_match: Option<ETagMatch>,
    /// `If-Modified-Since`.
    pub if_modified_since: Option<Timestamp>,
    /// `If-Unmodified-Since`.
    pub if_unmodified_since: Option<Timestamp>,
}

/// What the conditions of a read come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadVerdict {
    /// Go on.
    Proceed,
    /// The reader has it already.
    NotModified,
    /// A condition failed.
    Failed,
}

impl ReadConditions {
    /// Judges an object, in the order that HTTP gives the four conditions: an `ETag` beats a date.
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

/// The condition of a write; it is a guard in the statement that writes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteCondition {
    /// Write whatever is there.
    #[default]
    None,
    /// `If-None-Match: *`: only where nothing is.
    IfAbsent,
    /// `If-Match`: only over exactly this, or over anything for `None` (`*`).
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
    fn each_condition_alone() {
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
    fn an_etag_beats_a_date() {
        let matched = ReadConditions { if_match: Some(one("a")), if_unmodified_since: EARLIER, ..Default::default() };
        assert_eq!(judge(&matched), ReadVerdict::Proceed);
        let differs =
            ReadConditions { if_none_match: Some(one("b")), if_modified_since: SAME_SECOND, ..Default::default() };
        assert_eq!(judge(&differs), ReadVerdict::Proceed);
    }

    #[test]
    fn a_star_matches_anything() {
        let conditions = ReadConditions { if_match: Some(ETagMatch::Any), ..Default::default() };
        assert_eq!(judge(&conditions), ReadVerdict::Proceed);
    }
}
