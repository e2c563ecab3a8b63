//! Writes as their clients sent them.

use std::collections::BTreeSet;

use s3o_model::expiry::Expiry;

use super::{BodyId, KeyContent};

/// The condition of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelCondition {
    Always,
    IfAbsent,
    IfMatch(BodyId),
}

impl ModelCondition {
    /// Whether a write with this condition may replace this content.
    pub fn holds(&self, value: KeyContent) -> bool {
        match self {
            Self::Always => true,
            Self::IfAbsent => value.is_none(),
            Self::IfMatch(body) => value == Some(*body),
        }
    }
}

/// A write as its client sent it.
#[derive(Debug, Clone)]
pub struct ModelWrite {
    /// The contents that it may write; more than one for a copy, whose source may change until it is answered.
    pub values: BTreeSet<KeyContent>,
    pub condition: ModelCondition,
    /// Whether it declared a digest, so that `pending_reaper` may promote it.
    pub declared: bool,
    /// Expiry of the object that it writes.
    pub expiry: Option<Expiry>,
}

impl ModelWrite {
    /// A write without a declared digest or an expiry.
    pub fn of(value: KeyContent, condition: ModelCondition) -> Self {
        Self { values: BTreeSet::from([value]), condition, declared: false, expiry: None }
    }
}
