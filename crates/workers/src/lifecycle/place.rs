//! Where a walk through all rules is, and where it goes on when they have changed.

use std::sync::Arc;

use s3o_catalog::{DueUpload, RuledBucket};
use s3o_model::lifecycle::ConfiguredRules;

/// How far a walk through all rules has come.
#[derive(Debug, Clone, Default)]
pub(super) struct Position {
    /// Buckets up to this name are done.
    pub after: String,
    /// Where it is in the one behind them.
    pub place: Option<Place>,
}

/// A place among the rules of a bucket.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub bucket: RuledBucket,
    pub configured: Arc<ConfiguredRules>,
    /// Which of the rules.
    pub number: usize,
    pub cursor: Cursor,
    /// Whether the bucket was begun again because its rules changed. It is once; if they change again, the
    /// next walk is for them, or one bucket could keep all others waiting.
    again: bool,
}

/// A place in the range of a rule.
#[derive(Debug, Clone)]
pub(super) enum Cursor {
    /// Objects come first; from this key on.
    Objects(Option<String>),
    /// Then uploads; those behind this one.
    Uploads(Option<DueUpload>),
}

impl Place {
    /// The next rule, where there is nowhere to go on in this one.
    pub fn moved_to(self, cursor: Option<Cursor>) -> Self {
        match cursor {
            Some(cursor) => Self { cursor, ..self },
            None => Self { number: self.number + 1, cursor: Cursor::Objects(None), ..self },
        }
    }
}

/// Where to go on in this bucket under these rules; `None` where it is left to the next walk.
pub(super) fn place_in(bucket: &RuledBucket, configured: &Arc<ConfiguredRules>, place: Option<Place>) -> Option<Place> {
    let begin = |again| Place {
        bucket: bucket.clone(),
        configured: Arc::clone(configured),
        number: 0,
        cursor: Cursor::Objects(None),
        again,
    };
    match place.filter(|place| place.bucket.id == bucket.id) {
        None => Some(begin(false)),
        Some(place) if place.bucket.revision == bucket.revision && Arc::ptr_eq(&place.configured, configured) => {
            Some(place)
        }
        Some(place) if place.again => None,
        Some(_) => Some(begin(true)),
    }
}
