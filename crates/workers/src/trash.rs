//! Ends what is in trash, for the worker `expiry`, and continues operations on prefixes, for the worker `watchdog`.

use std::time::Duration;

use s3o_catalog::{Catalog, Error as CatalogError, PrefixCounts, PrefixOperation, PrefixOperationKind, TrashEnd};
use s3o_engine::{PREFIX_OPERATION_LEASE, run_prefix_step};
use s3o_model::ids::{ClaimToken, IdSource};

use crate::{Error, Event, Report};

/// Number of steps of an operation in one tick.
const STEPS_MAX: usize = 16;

/// Deletes objects from trash whose retention has ended or that have expired.
pub(crate) struct TrashEnds<'a> {
    pub catalog: &'a Catalog,
    pub ids: &'a IdSource,
    /// Number of rows per unit.
    pub batch_size: usize,
    /// Retention by the current setting.
    pub retention: Duration,
}

impl TrashEnds<'_> {
    /// Deletes one batch for each reason; true if more may be due.
    pub async fn run(&self, report: &mut Report) -> Result<bool, Error> {
        let expired = self.end(TrashEnd::Expiry, report).await?;
        let kept_long_enough = self.end(TrashEnd::Retention(self.retention), report).await?;
        Ok(expired || kept_long_enough)
    }

    /// A row that violates a constraint of the catalog must not block the others: the batch is halved until one row is
    /// left, which is skipped.
    async fn end(&self, end: TrashEnd, report: &mut Report) -> Result<bool, Error> {
        let mut limit = self.batch_size;
        loop {
            match self.catalog.end_trash(end, limit, self.token()).await {
                Ok((gone, more)) => {
                    report.count(outcome(end), gone.len() as u64);
                    report.events.extend(gone.into_iter().map(|object| {
                        let event = Event::new(event_name(end)).of(Some(object.bucket), &object.key);
                        event.with("size_bytes", object.size_bytes)
                    }));
                    return Ok(more);
                }
                Err(CatalogError::Internal(_)) if limit > 1 => limit /= 2,
                Err(CatalogError::Internal(why)) => {
                    tracing::error!(error = why, "object not deleted from trash, see s3o findings list");
                    self.catalog.skip_trash(end, &why, self.token()).await?;
                    report.count("failed", 1);
                    return Ok(true);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn token(&self) -> ClaimToken {
        ClaimToken::new(self.ids.fresh())
    }
}

fn outcome(end: TrashEnd) -> &'static str {
    match end {
        TrashEnd::Retention(_) => "purged",
        TrashEnd::Expiry => "deleted",
    }
}

fn event_name(end: TrashEnd) -> &'static str {
    match end {
        TrashEnd::Retention(_) => "trash.purged",
        TrashEnd::Expiry => "expiry.deleted",
    }
}

/// Continues an operation whose instance ended or stopped. Its lease is released after a few steps, so that a tick is
/// bounded.
pub(crate) async fn continue_operation(catalog: &Catalog, ids: &IdSource, report: &mut Report) -> Result<(), Error> {
    let holder = ClaimToken::new(ids.fresh());
    let Some(mut operation) = catalog.take_over_prefix_operation(holder, PREFIX_OPERATION_LEASE).await? else {
        return Ok(());
    };
    for _ in 0..STEPS_MAX {
        let step = run_prefix_step(catalog, ids, &mut operation).await?;
        report.count("prefix_steps", 1);
        let purged = step.purged.into_iter().map(|object| {
            let event = Event::new("trash.purged").of(Some(object.bucket), &object.key);
            event.with("size_bytes", object.size_bytes)
        });
        report.events.extend(purged);
        if step.is_last {
            report.events.extend(ended(&operation, step.counts));
            report.more = true;
            return Ok(());
        }
    }
    catalog.release_prefix_operation(&operation).await?;
    report.more = true;
    Ok(())
}

/// The event of a finished operation; a purge has one event per object instead.
fn ended(operation: &PrefixOperation, counts: PrefixCounts) -> Option<Event> {
    let name = match operation.kind {
        PrefixOperationKind::Rm => "trash.deleted",
        PrefixOperationKind::Restore => "trash.restored",
        PrefixOperationKind::Purge => return None,
    };
    let event = Event::new(name).with("bucket", operation.bucket_name.clone());
    let event = event.with("prefix", operation.prefix.clone()).with("operation", operation.id.to_string());
    Some(event.with("objects", counts.objects).with("bytes", counts.bytes))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use s3o_catalog::conformance::fixture::Fixture;
    use s3o_catalog::{PrefixOperationKind, params};
    use s3o_model::ids::{BucketId, IdSource};

    use super::{TrashEnds, continue_operation};
    use crate::Report;
    use crate::testing::{counted, event_names, fixture, ids};

    const WEEK: Duration = Duration::from_hours(168);

    async fn trashed(fixture: &Fixture, count: usize) -> BucketId {
        let bucket = fixture.bucket("trash").await;
        for number in 0..count {
            fixture.put(bucket, &format!("k{number}"), 5).await;
        }
        fixture.rm(bucket, "k", WEEK).await;
        bucket
    }

    async fn end(fixture: &Fixture, ids: &IdSource) -> (Report, bool) {
        let mut report = Report::default();
        let ends = TrashEnds { catalog: &fixture.catalog, ids, batch_size: 2, retention: WEEK };
        let more = ends.run(&mut report).await.expect("a batch");
        (report, more)
    }

    #[tokio::test]
    async fn trash_is_purged_and_audited_after_its_retention() {
        let fixture = fixture();
        let ids = ids(&fixture);
        trashed(&fixture, 3).await;
        fixture.wait_almost(WEEK);
        assert_eq!(end(&fixture, &ids).await, (Report::default(), false));
        fixture.clock.advance(Duration::from_millis(1));
        let (report, more) = end(&fixture, &ids).await;
        assert_eq!((counted(&report), more), (vec![("purged", 2)], true));
        assert_eq!(event_names(&report), ["trash.purged", "trash.purged"]);
        assert_eq!(counted(&end(&fixture, &ids).await.0), [("purged", 1)]);
        assert_eq!(fixture.usage().await, (0, 15, 0));
    }

    #[tokio::test]
    async fn row_that_cannot_be_purged_does_not_block_the_others() {
        let fixture = fixture();
        let ids = ids(&fixture);
        trashed(&fixture, 5).await;
        fixture.clock.advance(WEEK);
        let break_one = "UPDATE contents SET ref_count = 0 WHERE id = \
             (SELECT content_id FROM trash_objects WHERE key = $1)";
        fixture.change(break_one, params!["k1"]).await;
        let mut total = Report::default();
        loop {
            let (report, more) = end(&fixture, &ids).await;
            total.absorb(report);
            if !more {
                break;
            }
        }
        assert_eq!(counted(&total), [("failed", 1), ("purged", 4)]);
        assert_eq!(fixture.number("SELECT count(*) FROM findings WHERE kind = 'not_purged'").await, 1);
    }

    #[tokio::test]
    async fn operation_of_a_dead_instance_is_continued_after_its_lease() {
        let fixture = fixture();
        let bucket = fixture.bucket("trash").await;
        fixture.put(bucket, "a", 5).await;
        fixture.begin(PrefixOperationKind::Rm, bucket, "", WEEK).await.expect("begun");
        let ids = ids(&fixture);
        let catalog = fixture.catalog.clone();
        let mut report = Report::default();
        continue_operation(&catalog, &ids, &mut report).await.expect("a tick");
        assert_eq!(report, Report::default(), "the lease has not ended");
        fixture.clock.advance(Duration::from_mins(1));
        continue_operation(&catalog, &ids, &mut report).await.expect("a tick");
        assert_eq!(event_names(&report), ["trash.deleted"]);
        assert_eq!(fixture.number("SELECT count(*) FROM trash_objects").await, 1);
        assert_eq!(fixture.number("SELECT count(*) FROM prefix_operations").await, 0);
    }
}
