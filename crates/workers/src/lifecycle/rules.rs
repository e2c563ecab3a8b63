//! The rules in force: those of the configuration, which a reload replaces, and those of each bucket.

use std::sync::Arc;

use s3o_catalog::{Authority, RuledBucket};
use s3o_model::lifecycle::{ConfiguredRules, Rule};
use s3o_model::shared::Shared;
use serde::Serialize;
use tokio::sync::{RwLock, RwLockReadGuard};

/// The configured rules in force. Clones share them, so that a reload replaces the rules of all clones.
#[derive(Debug, Clone, Default)]
pub struct SharedRules {
    rules: Shared<ConfiguredRules>,
    /// Deletions by configured rules hold it for reading; `replace` takes it for writing.
    in_use: Arc<RwLock<()>>,
}

impl SharedRules {
    /// Starts with these rules in force.
    #[must_use]
    pub fn new(rules: ConfiguredRules) -> Self {
        Self { rules: Shared::new(rules), in_use: Arc::default() }
    }

    /// The rules in force at this moment.
    #[must_use]
    pub fn current(&self) -> Arc<ConfiguredRules> {
        self.rules.current()
    }

    /// A read handle on the rules, for the admin API.
    #[must_use]
    pub fn shown(&self) -> Shared<ConfiguredRules> {
        self.rules.clone()
    }

    /// Replaces the rules. It waits for deletions in progress: once it returns, the old rules delete nothing
    /// more.
    pub async fn replace(&self, rules: ConfiguredRules) {
        let _exclusive = self.in_use.write().await;
        self.rules.replace(rules);
    }

    /// Keeps these rules in force until the guard is dropped; `None` if they were replaced.
    pub(super) async fn hold(&self, rules: &Arc<ConfiguredRules>) -> Option<RwLockReadGuard<'_, ()>> {
        let held = self.in_use.read().await;
        Arc::ptr_eq(&self.current(), rules).then_some(held)
    }
}

/// Where a rule is defined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleSource {
    /// In the configuration file.
    Configuration,
    /// On the bucket, set through the S3 API.
    Bucket,
}

impl RuleSource {
    /// Value of `source` in audit events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Bucket => "bucket",
        }
    }
}

/// A rule that applies to one bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ActiveRule {
    pub source: RuleSource,
    pub authority: Authority,
    pub rule: Rule,
}

/// All rules of a bucket in the order in which they are applied, including disabled ones, which match nothing.
pub(super) fn active_rules(bucket: &RuledBucket, configured: &ConfiguredRules) -> Vec<ActiveRule> {
    let from_configuration = configured.of(&bucket.name).map(|rule| ActiveRule {
        source: RuleSource::Configuration,
        authority: Authority::Configuration,
        rule: rule.clone(),
    });
    let from_bucket = bucket.rules.iter().map(|rule| ActiveRule {
        source: RuleSource::Bucket,
        authority: Authority::Bucket(bucket.revision),
        rule: rule.clone(),
    });
    from_configuration.chain(from_bucket).collect()
}
