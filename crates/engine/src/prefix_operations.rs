//! Deletes the objects of a prefix to trash, restores them, and empties the trash of a prefix.
//!
//! The operation is a row in the catalog, so it survives this process: the watchdog of another instance continues it.

use std::time::Duration;

use s3o_catalog::{
    BeginPrefixOperation, Catalog, Error as CatalogError, PrefixCounts, PrefixOperation, PrefixOperationKind,
    PurgedObject, Verdict,
};
use s3o_model::ids::{ClaimToken, IdSource, PrefixOperationId};
use s3o_model::names::BucketName;

use crate::{Engine, Error};

/// After this time without a step, another instance takes an operation over.
pub const PREFIX_OPERATION_LEASE: Duration = Duration::from_secs(30);

/// A requested operation.
#[derive(Debug, Clone)]
pub struct PrefixRequest {
    /// Decides what becomes of the keys.
    pub kind: PrefixOperationKind,
    /// Must exist.
    pub bucket: BucketName,
    /// Keys that start with these bytes; empty for all keys of the bucket.
    pub prefix: String,
    /// How long objects that it moves to trash are kept at least.
    pub retention: Duration,
}

/// What happened during an operation, for the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrefixEvent {
    /// A step deleted these objects from trash.
    Purged(Vec<PurgedObject>),
    /// The operation has ended with these results.
    Ended(Box<PrefixOperation>, PrefixCounts),
}

/// Why an operation did not run to its end.
#[derive(Debug)]
pub enum PrefixRefused {
    /// Another operation works on keys of the prefix; this is the oldest one. Nothing was changed.
    Busy(Box<PrefixOperation>),
    /// It has begun; an instance continues it.
    Interrupted(String),
    /// Nothing was changed, or a row could not be moved; the steps before that stay.
    Failed(Error),
}

impl<E: Into<Error>> From<E> for PrefixRefused {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl Engine {
    /// Runs an operation to its end, also if the caller is dropped, and passes what happens to `report`.
    pub async fn run_prefix_operation(
        &self,
        request: PrefixRequest,
        report: impl Fn(PrefixEvent) + Send + Sync + 'static,
    ) -> Result<(PrefixOperation, PrefixCounts), PrefixRefused> {
        let engine = self.clone();
        let work = async move {
            let begun = engine.begin_prefix_operation(&request).await;
            Ok(match begun {
                Ok(operation) => engine.run_steps(operation, report).await,
                Err(refused) => Err(refused),
            })
        };
        self.tasks.run(work).await?
    }

    /// The operations that have not ended, oldest first.
    pub async fn prefix_operations(&self) -> Result<Vec<PrefixOperation>, Error> {
        Ok(self.catalog.prefix_operations().await?)
    }

    async fn begin_prefix_operation(&self, request: &PrefixRequest) -> Result<PrefixOperation, PrefixRefused> {
        let PrefixRequest { kind, bucket, prefix, retention } = request;
        let bucket = self.find_bucket(bucket).await?.id;
        let begin = BeginPrefixOperation {
            id: PrefixOperationId::new(self.ids.fresh()),
            kind: *kind,
            bucket,
            prefix,
            retention: *retention,
            token: ClaimToken::new(self.ids.fresh()),
            lease: PREFIX_OPERATION_LEASE,
        };
        match self.catalog.begin_prefix_operation(&begin).await {
            Err(CatalogError::Guard(Verdict::Overlaps)) => {
                let mut others = self.catalog.overlapping_operations(bucket, prefix).await?.into_iter();
                Err(others
                    .next()
                    .map_or(PrefixRefused::Failed(Error::Conflict), |first| PrefixRefused::Busy(Box::new(first))))
            }
            begun => Ok(begun?),
        }
    }

    async fn run_steps(
        &self,
        mut operation: PrefixOperation,
        report: impl Fn(PrefixEvent) + Send + Sync,
    ) -> Result<(PrefixOperation, PrefixCounts), PrefixRefused> {
        loop {
            let step = run_prefix_step(&self.catalog, &self.ids, &mut operation).await.map_err(|error| {
                if keeps_going(&error) { PrefixRefused::Interrupted(error.to_string()) } else { error.into() }
            })?;
            if !step.purged.is_empty() {
                self.wake_cleanup();
                report(PrefixEvent::Purged(step.purged));
            }
            if step.is_last {
                report(PrefixEvent::Ended(Box::new(operation.clone()), step.counts));
                return Ok((operation, step.counts));
            }
        }
    }
}

/// True if the operation stays and an instance continues it after the lease.
fn keeps_going(error: &CatalogError) -> bool {
    match error {
        CatalogError::Guard(verdict) => *verdict != Verdict::NoSuchBucket,
        CatalogError::Away(_) | CatalogError::Unknown(_) | CatalogError::InUse(_) | CatalogError::Corrupt(_) => true,
        CatalogError::Internal(_) | CatalogError::Newer { .. } => false,
    }
}

/// Runs the next step of an operation. An operation that can never continue is ended: it would keep its keys from all
/// others.
pub async fn run_prefix_step(
    catalog: &Catalog,
    ids: &IdSource,
    operation: &mut PrefixOperation,
) -> Result<s3o_catalog::PrefixStep, CatalogError> {
    let token = ClaimToken::new(ids.fresh());
    match catalog.step_prefix_operation(operation, token, PREFIX_OPERATION_LEASE).await {
        Err(error) if !keeps_going(&error) => {
            catalog.abandon_prefix_operation(operation).await?;
            Err(error)
        }
        done => done,
    }
}
