//! Position of the walk through all rules, and where it continues when rules have changed.

use std::sync::Arc;

use s3o_catalog::{DueUpload, RuledBucket};
use s3o_model::lifecycle::ConfiguredRules;

/// Position of the walk through all buckets.
#[derive(Debug, Clone, Default)]
pub(super) struct WalkPosition {
    /// Name of the last finished bucket; empty at the start.
    pub after: String,
    /// Position in the bucket after it.
    pub bucket: Option<BucketPosition>,
}

/// Position in the rules of one bucket.
#[derive(Debug, Clone)]
pub(super) struct BucketPosition {
    pub bucket: RuledBucket,
    pub configured: Arc<ConfiguredRules>,
    /// Index of the current rule.
    pub number: usize,
    pub cursor: RuleCursor,
    /// True after the bucket was restarted because its rules changed. It is restarted once; if the rules
    /// change again, it waits for the next walk, so that one bucket cannot block the others.
    restarted: bool,
}

/// Position in the range of one rule.
#[derive(Debug, Clone)]
pub(super) enum RuleCursor {
    /// Objects come first; continues from this key.
    Objects(Option<String>),
    /// Then uploads; continues after this one.
    Uploads(Option<DueUpload>),
}

impl BucketPosition {
    /// Moves to the cursor, or to the next rule if there is none.
    pub fn moved_to(self, cursor: Option<RuleCursor>) -> Self {
        match cursor {
            Some(cursor) => Self { cursor, ..self },
            None => Self { number: self.number + 1, cursor: RuleCursor::Objects(None), ..self },
        }
    }
}

/// Where to continue in this bucket under these rules; `None` to leave it to the next walk.
pub(super) fn position_in(
    bucket: &RuledBucket,
    configured: &Arc<ConfiguredRules>,
    position: Option<BucketPosition>,
) -> Option<BucketPosition> {
    let begin = |restarted| BucketPosition {
        bucket: bucket.clone(),
        configured: Arc::clone(configured),
        number: 0,
        cursor: RuleCursor::Objects(None),
        restarted,
    };
    match position.filter(|position| position.bucket.id == bucket.id) {
        None => Some(begin(false)),
        Some(position)
            if position.bucket.revision == bucket.revision && Arc::ptr_eq(&position.configured, configured) =>
        {
            Some(position)
        }
        Some(position) if position.restarted => None,
        Some(_) => Some(begin(true)),
    }
}
