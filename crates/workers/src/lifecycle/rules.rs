//! The rules in force: those of the configuration, which a reload replaces, and those of a bucket.

use std::collections::BTreeSet;
use std::sync::Arc;

use s3o_catalog::{Authority, RuledBucket};
use s3o_model::lifecycle::{ConfiguredRule, Rule};
use s3o_model::names::BucketName;
use serde::Serialize;
use tokio::sync::{RwLock, RwLockReadGuard};

/// The rules of the configuration, in its order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfiguredRules(Vec<ConfiguredRule>);

impl ConfiguredRules {
    /// The names of the buckets they are for.
    pub(super) fn buckets(&self) -> Vec<&str> {
        let names: BTreeSet<&str> = self.0.iter().map(|rule| rule.bucket().as_str()).collect();
        names.into_iter().collect()
    }

    fn of<'a>(&'a self, bucket: &'a BucketName) -> impl Iterator<Item = &'a Rule> {
        self.0.iter().filter(move |rule| rule.bucket() == bucket).map(ConfiguredRule::rule)
    }
}

impl FromIterator<ConfiguredRule> for ConfiguredRules {
    fn from_iter<I: IntoIterator<Item = ConfiguredRule>>(rules: I) -> Self {
        Self(rules.into_iter().collect())
    }
}

/// The rules of the configuration that are in force, shared with whoever replaces them. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct SharedRules(Arc<RwLock<Arc<ConfiguredRules>>>);

impl SharedRules {
    /// Puts these rules in force.
    #[must_use]
    pub fn new(rules: ConfiguredRules) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(rules))))
    }

    /// The rules in force now.
    pub async fn current(&self) -> Arc<ConfiguredRules> {
        Arc::clone(&*self.0.read().await)
    }

    /// Puts other rules in force. A deletion that is under way is waited for: once this is done, nothing goes
    /// by the rules before.
    pub async fn replace(&self, rules: ConfiguredRules) {
        *self.0.write().await = Arc::new(rules);
    }

    /// Keeps these rules in force until the guard is gone; `None` where they are not any more.
    pub(super) async fn hold(&self, rules: &Arc<ConfiguredRules>) -> Option<RwLockReadGuard<'_, Arc<ConfiguredRules>>> {
        let held = self.0.read().await;
        Arc::ptr_eq(&held, rules).then_some(held)
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
