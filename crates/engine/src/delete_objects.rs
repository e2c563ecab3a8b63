//! Deletes up to a thousand objects of one bucket.

use std::collections::HashSet;

use s3o_model::etag::ETag;
use s3o_model::ids::{BucketId, ClaimToken};
use s3o_model::names::{BucketName, ObjectKey};

use crate::{Engine, Error};

/// Maximum number of rows that one transaction deletes.
const UNIT_KEYS_MAX: usize = 500;

/// One object to delete.
#[derive(Debug, Clone)]
pub struct DeleteTarget {
    /// Key of the object; it need not exist.
    pub key: ObjectKey,
    /// Deletes the object only if it has this `ETag`.
    pub if_match: Option<ETag>,
}

/// Why one of the objects was not deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeleteFailure {
    /// The object does not have the `ETag` of the condition.
    PreconditionFailed,
    /// The catalog did not answer or failed; the request may be repeated.
    Away(String),
}

impl Engine {
    /// Deletes objects; the results are in the order of the targets.
    pub async fn delete_objects(
        &self,
        bucket: &BucketName,
        targets: Vec<DeleteTarget>,
    ) -> Result<Vec<Result<(), DeleteFailure>>, Error> {
        let id = self.find_bucket(bucket).await?.id;
        let engine = self.clone();
        self.tasks.run(async move { Ok(engine.delete_all(id, targets).await) }).await
    }

    async fn delete_all(&self, bucket: BucketId, targets: Vec<DeleteTarget>) -> Vec<Result<(), DeleteFailure>> {
        let mut results = Vec::with_capacity(targets.len());
        for chunk in targets.chunks(UNIT_KEYS_MAX) {
            let keys: Vec<_> = chunk.iter().map(|target| (target.key.clone(), target.if_match.clone())).collect();
            let token = ClaimToken::new(self.ids.fresh());
            match self.catalog.delete_objects(bucket, &keys, token).await {
                Ok(deleted) => {
                    let deleted: HashSet<_> = deleted.into_iter().collect();
                    results.extend(chunk.iter().map(|target| result_of(target, &deleted)));
                }
                Err(error) => results.extend(chunk.iter().map(|_| Err(DeleteFailure::Away(error.to_string())))),
            }
        }
        self.wake_cleanup();
        results
    }
}

/// A key without an object is a success, unless its target has a condition.
fn result_of(target: &DeleteTarget, deleted: &HashSet<ObjectKey>) -> Result<(), DeleteFailure> {
    if target.if_match.is_none() || deleted.contains(&target.key) {
        Ok(())
    } else {
        Err(DeleteFailure::PreconditionFailed)
    }
}
