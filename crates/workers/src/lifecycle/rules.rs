//! The rules in force: those of the configuration, which a reload replaces, and those of a bucket.

use std::sync::Arc;

use s3o_catalog::{Authority, RuledBucket};
use s3o_model::lifecycle::{ConfiguredRules, Rule};
use s3o_model::shared::Shared;
use serde::Serialize;
use tokio::sync::{RwLock, RwLockReadGuard};

/// The rules of the configuration that are in force, shared with whoever replaces them. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct SharedRules {
    rules: Shared<ConfiguredRules>,
    /// Held by deletions while they go by these rules.
    gate: Arc<RwLock<()>>,
}

impl SharedRules {
    /// Puts these rules in force.
    #[must_use]
    pub fn new(rules: ConfiguredRules) -> Self {
        Self { rules: Shared::new(rules), gate: Arc::default() }
    }

    /// The rules in force now.
    #[must_use]
    pub fn current(&self) -> Arc<ConfiguredRules> {
        self.rules.current()
    }

    /// The same rules, for whoever only shows them.
    #[must_use]
    pub fn shown(&self) -> Shared<ConfiguredRules> {
        self.rules.clone()
    }

    /// Puts other rules in force. A deletion that is under way is waited for: once this is done, nothing goes
    /// by the rules before.
    pub async fn replace(&self, rules: ConfiguredRules) {
        let _closed = self.gate.write().await;
        self.rules.replace(rules);
    }

    /// Keeps these rules in force until the guard is gone; `None` where they are not any more.
    pub(super) async fn hold(&self, rules: &Arc<ConfiguredRules>) -> Option<RwLockReadGuard<'_, ()>> {
        let held = self.gate.read().await;
        Arc::ptr_eq(&self.current(), rules).then_some(held)
    }
}

/// Where a rule comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleSource {
    /// The configuration.
    Configuration,
    /// The bucket: it was set through the S3 API.
    Bucket,
}

impl RuleSource {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Bucket => "bucket",
        }
    }
}

/// A rule of one bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InForce {
    pub source: RuleSource,
    pub authority: Authority,
    pub rule: Rule,
}

/// All rules of a bucket, in the order in which they are applied. Those that are disabled do nothing.
pub(super) fn in_force(bucket: &RuledBucket, configured: &ConfiguredRules) -> Vec<InForce> {
    let of_configuration = configured.of(&bucket.name).map(|rule| InForce {
        source: RuleSource::Configuration,
        authority: Authority::Configuration,
        rule: rule.clone(),
    });
    let of_bucket = bucket.rules.iter().map(|rule| InForce {
        source: RuleSource::Bucket,
        authority: Authority::Bucket(bucket.revision),
        rule: rule.clone(),
    });
    of_configuration.chain(of_bucket).collect()
}
