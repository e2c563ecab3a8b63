//! Expiration of objects and incomplete uploads, as responses show it.
//!
//! Every lookup and every commit returns the revision of the bucket's lifecycle rules. The rules themselves are cached
//! by revision, so that showing an expiration needs no further query.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use s3o_catalog::{Committed, PutRow};
use s3o_model::clock::Timestamp;
use s3o_model::expiry::Expiry;
use s3o_model::ids::{BucketId, VersionId};
use s3o_model::lifecycle::{ConfiguredRules, Rule, ScheduledDeletion, Subject};
use s3o_model::multipart::Upload;
use s3o_model::names::{BucketName, ObjectKey};
use s3o_model::object::{Object, Tags};
use s3o_model::shared::Shared;

use crate::{Engine, Error};

/// Maximum number of cached rules of all buckets together; one bucket may have a thousand.
const CACHED_RULES_MAX: usize = 20_000;

/// Lifecycle rules of the configuration, and a cache of those in the catalog. Clones share the cache.
#[derive(Clone)]
pub(crate) struct RuleCache {
    configured: Shared<ConfiguredRules>,
    cached: Arc<Mutex<HashMap<BucketId, BucketRules>>>,
}

/// The enabled rules of one bucket.
#[derive(Clone)]
struct BucketRules {
    revision: i64,
    rules: Arc<[Rule]>,
}

/// The attributes of a new object that lifecycle rules depend on.
pub(crate) struct NewObject {
    bucket: BucketId,
    key: ObjectKey,
    size_bytes: u64,
    tags: Tags,
}

/// An object, and the revision of the rules that its bucket had when the object was read or written.
struct ExpiringObject<'a> {
    bucket: BucketId,
    rules: Option<i64>,
    subject: Subject<'a>,
    last_modified: Timestamp,
    expires_at: Option<Timestamp>,
}

impl RuleCache {
    pub fn new(configured: Shared<ConfiguredRules>) -> Self {
        Self { configured, cached: Arc::default() }
    }

    fn cached(&self) -> MutexGuard<'_, HashMap<BucketId, BucketRules>> {
        self.cached.lock()
    }

    /// The rules of this revision, or of a later one, which has replaced it.
    fn get(&self, bucket: BucketId, revision: i64) -> Option<Arc<[Rule]>> {
        self.cached().get(&bucket).filter(|cached| cached.revision >= revision).map(|cached| Arc::clone(&cached.rules))
    }

    fn insert(&self, bucket: BucketId, fresh: BucketRules) {
        let mut cached = self.cached();
        let count: usize = cached.values().map(|of_bucket| of_bucket.rules.len()).sum();
        if count + fresh.rules.len() > CACHED_RULES_MAX {
            cached.clear();
        }
        let current = cached.entry(bucket).or_insert_with(|| fresh.clone());
        if current.revision < fresh.revision {
            *current = fresh;
        }
    }
}

impl NewObject {
    pub fn of(row: &PutRow) -> Self {
        let PutRow { bucket, key, size_bytes, attributes, .. } = row;
        Self { bucket: *bucket, key: key.clone(), size_bytes: *size_bytes, tags: attributes.tags.clone() }
    }
}

impl Engine {
    /// Expiration of a new object: as requested, or else the bucket's default.
    pub(crate) fn expiry(
        &self,
        bucket: &BucketName,
        requested: Option<Expiry>,
        now: Timestamp,
    ) -> Result<Option<Expiry>, Error> {
        let expiry = requested.or_else(|| self.bucket_settings(bucket).default_ttl.map(Expiry::After));
        expiry.map_or(Ok(()), |expiry| expiry.check(now))?;
        Ok(expiry)
    }

    /// Expiration of an object that was found; `rules` is the revision that the lookup returned.
    pub(crate) async fn expiration(
        &self,
        name: &BucketName,
        object: &Object,
        rules: Option<i64>,
    ) -> Option<ScheduledDeletion> {
        let Object { bucket, key, size_bytes, attributes, last_modified, expires_at, .. } = object;
        let subject = Subject { key: key.as_str(), size_bytes: *size_bytes, tags: &attributes.tags };
        let (bucket, last_modified, expires_at) = (*bucket, *last_modified, *expires_at);
        self.first_expiration(name, ExpiringObject { bucket, rules, subject, last_modified, expires_at }).await
    }

    /// Expiration of an object that was just committed.
    pub(crate) async fn expiration_of_new(
        &self,
        name: &BucketName,
        new: &NewObject,
        committed: Committed,
    ) -> Option<ScheduledDeletion> {
        let Committed { last_modified, expires_at, rules, .. } = committed;
        let subject = Subject { key: new.key.as_str(), size_bytes: new.size_bytes, tags: &new.tags };
        let bucket = new.bucket;
        self.first_expiration(name, ExpiringObject { bucket, rules, subject, last_modified, expires_at }).await
    }

    /// Expiration of an object whose commit has lost its answer. `None` if another request has replaced this version:
    /// its expiration is unknown.
    pub(crate) async fn expiration_of_version(
        &self,
        name: &BucketName,
        key: &ObjectKey,
        version: VersionId,
    ) -> Option<ScheduledDeletion> {
        let resolved = self.find(name, key).await.ok()?;
        let object = resolved.object.filter(|object| object.version == version)?;
        self.expiration(name, &object, resolved.rules).await
    }

    /// When a rule aborts an incomplete upload; `rules` is the revision that the lookup of the bucket returned.
    pub(crate) async fn expiration_of_upload(
        &self,
        name: &BucketName,
        upload: &Upload,
        rules: Option<i64>,
    ) -> Option<ScheduledDeletion> {
        let of_bucket = self.rules_or_none(name, upload.bucket, rules).await;
        ScheduledDeletion::of_upload(of_bucket.iter(), upload.key.as_str(), upload.created_at)
    }

    async fn first_expiration(&self, name: &BucketName, object: ExpiringObject<'_>) -> Option<ScheduledDeletion> {
        let of_bucket = self.rules_or_none(name, object.bucket, object.rules).await;
        let configured = self.rules.configured.current();
        let rules = configured.of(name).chain(of_bucket.iter());
        ScheduledDeletion::first(object.expires_at, rules, object.subject, object.last_modified)
    }

    /// The request succeeds even if the rules cannot be read.
    async fn rules_or_none(&self, name: &BucketName, bucket: BucketId, revision: Option<i64>) -> Arc<[Rule]> {
        self.rules_of(bucket, revision).await.unwrap_or_else(|error| {
            tracing::warn!(%error, bucket = %name, "lifecycle rules not readable, response shows no expiration");
            Arc::default()
        })
    }

    async fn rules_of(&self, bucket: BucketId, revision: Option<i64>) -> Result<Arc<[Rule]>, Error> {
        let Some(revision) = revision else { return Ok(Arc::default()) };
        if let Some(cached) = self.rules.get(bucket, revision) {
            return Ok(cached);
        }
        // The rules may have been replaced since the lookup; they are cached under the revision that was read.
        let Some(found) = self.catalog.lifecycle(bucket).await? else { return Ok(Arc::default()) };
        let rules: Arc<[Rule]> = found.rules.into_iter().filter(is_enabled).collect();
        self.rules.insert(bucket, BucketRules { revision: found.revision, rules: Arc::clone(&rules) });
        Ok(rules)
    }
}

fn is_enabled(rule: &Rule) -> bool {
    rule.expires().is_some() || rule.aborts().is_some()
}
