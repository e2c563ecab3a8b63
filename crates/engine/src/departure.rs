//! When objects and uploads go by themselves, as answers show it.
//!
//! Which rules a bucket has comes along with every look and every commit; the rules themselves are read
//! once and kept until it has others, so that telling costs no question.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use s3o_catalog::{Committed, PutRow};
use s3o_model::clock::Timestamp;
use s3o_model::ids::{BucketId, VersionId};
use s3o_model::lifecycle::{ConfiguredRules, Departure, Rule, Subject};
use s3o_model::multipart::Upload;
use s3o_model::names::{BucketName, ObjectKey};
use s3o_model::object::{Object, Tags};
use s3o_model::shared::Shared;

use crate::{Engine, Error};

/// How many rules are kept, of all buckets together; one bucket may have a thousand.
const KEPT_MAX: usize = 20_000;

/// The rules by which objects and uploads go. Clones are the same.
#[derive(Clone)]
pub(crate) struct Rules {
    configured: Shared<ConfiguredRules>,
    kept: Arc<Mutex<HashMap<BucketId, OfBucket>>>,
}

/// The rules of one bucket that are in force.
#[derive(Clone)]
struct OfBucket {
    revision: i64,
    rules: Arc<[Rule]>,
}

/// What rules look at, of a row that is about to be written.
pub(crate) struct Leaving {
    bucket: BucketId,
    key: ObjectKey,
    size_bytes: u64,
    tags: Tags,
}

/// An object that is there, and the rules that its bucket had at that moment.
struct Present<'a> {
    bucket: BucketId,
    rules: Option<i64>,
    subject: Subject<'a>,
    last_modified: Timestamp,
    expires_at: Option<Timestamp>,
}

impl Rules {
    pub fn new(configured: Shared<ConfiguredRules>) -> Self {
        Self { configured, kept: Arc::default() }
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<BucketId, OfBucket>> {
        self.kept.lock()
    }

    /// The rules of this revision, or of a later one: those count by now.
    fn known(&self, bucket: BucketId, revision: i64) -> Option<Arc<[Rule]>> {
        self.kept().get(&bucket).filter(|kept| kept.revision >= revision).map(|kept| Arc::clone(&kept.rules))
    }

    fn keep(&self, bucket: BucketId, fresh: OfBucket) {
        let mut kept = self.kept();
        let held: usize = kept.values().map(|of_bucket| of_bucket.rules.len()).sum();
        if held + fresh.rules.len() > KEPT_MAX {
            kept.clear();
        }
        let there = kept.entry(bucket).or_insert_with(|| fresh.clone());
        if there.revision < fresh.revision {
            *there = fresh;
        }
    }
}

impl Leaving {
    pub fn of(row: &PutRow) -> Self {
        let PutRow { bucket, key, size_bytes, attributes, .. } = row;
        Self { bucket: *bucket, key: key.clone(), size_bytes: *size_bytes, tags: attributes.tags.clone() }
    }
}

impl Engine {
    /// When an object that was found goes by itself, under the rules that its bucket had then.
    pub(crate) async fn departure(&self, name: &BucketName, object: &Object, rules: Option<i64>) -> Option<Departure> {
        let Object { bucket, key, size_bytes, attributes, last_modified, expires_at, .. } = object;
        let subject = Subject { key: key.as_str(), size_bytes: *size_bytes, tags: &attributes.tags };
        let (bucket, last_modified, expires_at) = (*bucket, *last_modified, *expires_at);
        self.first_departure(name, Present { bucket, rules, subject, last_modified, expires_at }).await
    }

    /// When an object that was just written goes by itself.
    pub(crate) async fn departure_of_written(
        &self,
        name: &BucketName,
        leaving: &Leaving,
        committed: Committed,
    ) -> Option<Departure> {
        let Committed { last_modified, expires_at, rules, .. } = committed;
        let subject = Subject { key: leaving.key.as_str(), size_bytes: leaving.size_bytes, tags: &leaving.tags };
        self.first_departure(name, Present { bucket: leaving.bucket, rules, subject, last_modified, expires_at }).await
    }

    /// The same, for a writer whose answer was lost on the way. `None` if another request changed the object
    /// since: nobody can tell any more.
    pub(crate) async fn departure_of_version(
        &self,
        name: &BucketName,
        key: &ObjectKey,
        version: VersionId,
    ) -> Option<Departure> {
        let there = self.find(name, key).await.ok()?;
        let object = there.object.filter(|object| object.version == version)?;
        self.departure(name, &object, there.rules).await
    }

    /// When an upload is aborted if nobody completes it, under the rules that its bucket had when it was found.
    pub(crate) async fn departure_of_upload(
        &self,
        name: &BucketName,
        upload: &Upload,
        rules: Option<i64>,
    ) -> Option<Departure> {
        let of_bucket = self.rules_or_none(name, upload.bucket, rules).await;
        Departure::of_upload(of_bucket.iter(), upload.key.as_str(), upload.created_at)
    }

    async fn first_departure(&self, name: &BucketName, object: Present<'_>) -> Option<Departure> {
        let of_bucket = self.rules_or_none(name, object.bucket, object.rules).await;
        let configured = self.rules.configured.current();
        let rules = configured.of(name).chain(of_bucket.iter());
        Departure::first(object.expires_at, rules, object.subject, object.last_modified)
    }

    /// What was found or written is answered whether or not its rules can be told.
    async fn rules_or_none(&self, name: &BucketName, bucket: BucketId, revision: Option<i64>) -> Arc<[Rule]> {
        self.rules_of(bucket, revision).await.unwrap_or_else(|error| {
            tracing::warn!(%error, bucket = %name, "an answer does not show when something goes");
            Arc::default()
        })
    }

    async fn rules_of(&self, bucket: BucketId, revision: Option<i64>) -> Result<Arc<[Rule]>, Error> {
        let Some(revision) = revision else { return Ok(Arc::default()) };
        if let Some(known) = self.rules.known(bucket, revision) {
            return Ok(known);
        }
        // What is read may be newer than what was asked for, and is kept as what it is.
        let Some(found) = self.lifecycles.lifecycle(bucket).await? else { return Ok(Arc::default()) };
        let rules: Arc<[Rule]> = found.rules.into_iter().filter(is_in_force).collect();
        self.rules.keep(bucket, OfBucket { revision: found.revision, rules: Arc::clone(&rules) });
        Ok(rules)
    }
}

fn is_in_force(rule: &Rule) -> bool {
    rule.expires().is_some() || rule.aborts().is_some()
}
