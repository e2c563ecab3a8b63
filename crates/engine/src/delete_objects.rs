//! Deletes up to a thousand objects of one bucket.

use std::collections::HashSet;

use s3o_model::etag::ETag;
use s3o_model::ids::{BucketId, ClaimToken};
use s3o_model::names::{BucketName, ObjectKey};

use crate::{Engine, Error};

/// How many rows one unit removes.
const UNIT_KEYS_MAX: usize = 500;

/// One object to delete.
#[derive(Debug, Clone)]
pub struct DeleteTarget {
    /// Its key.
    pub key: ObjectKey,
    /// Only if it still has this `ETag`.
    pub if_match: Option<ETag>,
}

/// Why one of the objects was not deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeleteFailure {
    /// Its condition failed.
    PreconditionFailed,
    /// The catalog did not do it; try again.
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
            match self.objects.delete_objects(bucket, &keys, token).await {
                Ok(gone) => {
                    let gone: HashSet<_> = gone.into_iter().collect();
                    results.extend(chunk.iter().map(|target| verdict(target, &gone)));
                }
                Err(error) => results.extend(chunk.iter().map(|_| Err(DeleteFailure::Away(error.to_string())))),
            }
        }
        self.ring_for_cleanup();
        results
    }
}

/// A key that had no object is deleted already; one whose condition was not met is not.
fn verdict(target: &DeleteTarget, gone: &HashSet<ObjectKey>) -> Result<(), DeleteFailure> {
    if target.if_match.is_none() || gone.contains(&target.key) {
        Ok(())
    } else {
        Err(DeleteFailure::PreconditionFailed)
    }
}
