//! Applies lifecycle rules: deletes objects that have aged, aborts uploads that were not completed.
//!
//! The worker visits buckets in the order of their names, the rules of each bucket one after another,
//! and the keys of each rule in order, a page at a time. It reads the rules again before every page,
//! and every deletion checks that its rule is still in force, so that a changed rule deletes nothing.

mod audit;
mod position;
mod preview;
mod rules;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use s3o_catalog::{Authority, Catalog, DueBatch, DueObject, DueRange, DueUpload, RuledBucket, Verdict};
use s3o_model::ids::{ClaimToken, IdSource};
use s3o_model::lifecycle::{Rule, Subject, Threshold};
use s3o_model::names::ObjectKey;
use tokio::sync::Notify;

use crate::{Error, Report, Worker};

use audit::{report_aborted, report_deleted};
use position::{BucketPosition, RuleCursor, WalkPosition, position_in};
pub use preview::{Preview, PreviewTotal, RulePreview, Sample, preview};
use rules::{ActiveRule, active_rules};
pub use rules::{RuleSource, SharedRules};

/// Number of objects in one page and in one deletion.
const PAGE: usize = 1000;
/// Number of uploads in one page.
const UPLOADS_PAGE: usize = 100;
/// Number of pages that one tick reads while little is due.
const STEPS_MAX: usize = 20;

/// Walks through all buckets that have rules, and remembers its position between ticks.
pub struct LifecycleWorker {
    lifecycles: Arc<Catalog>,
    rules: SharedRules,
    ids: IdSource,
    cleanup_wakeup: Arc<Notify>,
    position: Mutex<WalkPosition>,
    page: usize,
}

/// Why a page was not finished.
enum PageFault {
    /// The rules changed since they were read.
    RulesChanged,
    Failed(Error),
}

impl From<s3o_catalog::Error> for PageFault {
    fn from(error: s3o_catalog::Error) -> Self {
        match error.verdict() {
            Some(Verdict::RunAgain) => Self::RulesChanged,
            Some(_) | None => Self::Failed(error.into()),
        }
    }
}

#[async_trait]
impl Worker for LifecycleWorker {
    fn name(&self) -> &'static str {
        "lifecycle"
    }

    fn is_time_dependent(&self) -> bool {
        true
    }

    fn yields_to_requests(&self) -> bool {
        true
    }

    async fn tick(&self, report: &mut Report) -> Result<(), Error> {
        let walked = self.walk(report).await;
        if !report.items.is_empty() {
            self.cleanup_wakeup.notify_one();
        }
        walked
    }
}

impl LifecycleWorker {
    /// A worker that applies the configured rules and those of the buckets, and notifies `cleanup_wakeup` after
    /// deletions.
    #[must_use]
    pub fn new(lifecycles: Arc<Catalog>, rules: SharedRules, ids: IdSource, cleanup_wakeup: Arc<Notify>) -> Self {
        Self { lifecycles, rules, ids, cleanup_wakeup, position: Mutex::default(), page: PAGE }
    }

    fn position(&self) -> parking_lot::MutexGuard<'_, WalkPosition> {
        self.position.lock()
    }

    /// Processes pages until a full batch was deleted or `STEPS_MAX` is reached.
    async fn walk(&self, report: &mut Report) -> Result<(), Error> {
        for _ in 0..STEPS_MAX {
            report.more = self.step(report).await?;
            let removed: u64 = report.items.values().sum();
            if !report.more || removed >= self.page as u64 {
                break;
            }
        }
        Ok(())
    }

    /// Processes one page; true if there is another one.
    async fn step(&self, report: &mut Report) -> Result<bool, Error> {
        let WalkPosition { after, bucket: reached } = self.position().clone();
        let configured = self.rules.current();
        let Some(bucket) = self.lifecycles.ruled_bucket(&after, &configured.buckets()).await? else {
            *self.position() = WalkPosition::default();
            return Ok(false);
        };
        let Some(position) = position_in(&bucket, &configured, reached) else {
            *self.position() = WalkPosition { after: bucket.name.as_str().to_owned(), bucket: None };
            return Ok(true);
        };
        let rules = active_rules(&position.bucket, &position.configured);
        let Some(active) = rules.get(position.number) else {
            *self.position() = WalkPosition { after: bucket.name.as_str().to_owned(), bucket: None };
            return Ok(true);
        };
        let walked = match position.cursor.clone() {
            RuleCursor::Objects(from) => self.expire(&position, active, from, report).await,
            RuleCursor::Uploads(behind) => self.abort(&position, active, behind, report).await,
        };
        // A rule that fails must not block the other rules.
        let (cursor, failed) = match walked {
            Ok(cursor) => (cursor, None),
            Err(PageFault::RulesChanged) => (Some(position.cursor.clone()), None),
            Err(PageFault::Failed(error)) if is_transient(&error) => return Err(error),
            Err(PageFault::Failed(error)) => (None, Some(error)),
        };
        *self.position() = WalkPosition { after, bucket: Some(position.moved_to(cursor)) };
        failed.map_or(Ok(true), Err)
    }

    /// Processes one page of a rule's objects; returns where the rule continues.
    async fn expire(
        &self,
        position: &BucketPosition,
        active: &ActiveRule,
        from: Option<String>,
        report: &mut Report,
    ) -> Result<Option<RuleCursor>, PageFault> {
        let rule = &active.rule;
        let Some(threshold) = rule.expires() else { return Ok(Some(RuleCursor::Uploads(None))) };
        let page = self.lifecycles.due_objects(&range(&position.bucket, rule, from, threshold), self.page).await?;
        let due: Vec<DueObject> = page.objects.into_iter().filter(|object| matches(rule, object)).collect();
        if !due.is_empty() {
            self.remove(position, active, (&due, threshold), report).await?;
        }
        Ok(Some(page.next.map_or(RuleCursor::Uploads(None), |next| RuleCursor::Objects(Some(next)))))
    }

    /// Deletes objects in one transaction. If that fails, in halves, down to the row that cannot be deleted.
    async fn remove(
        &self,
        position: &BucketPosition,
        active: &ActiveRule,
        (due, threshold): (&[DueObject], Threshold),
        report: &mut Report,
    ) -> Result<(), PageFault> {
        let mut parts = vec![due];
        while let Some(objects) = parts.pop() {
            let batch = DueBatch {
                bucket: position.bucket.id,
                authority: active.authority,
                threshold,
                objects,
                by_tags: !active.rule.filter.tags.is_empty(),
            };
            match self.delete(position, &batch).await {
                Ok(deleted) => report_deleted(position, active, (objects, &deleted), report),
                Err(PageFault::Failed(error)) if !is_transient(&error) => match objects {
                    [one] => {
                        report.count("failed", 1);
                        let bucket = &position.bucket.name;
                        let key = &one.key;
                        tracing::warn!(%bucket, %key, %error, "object not deleted by rule, retrying at next run");
                    }
                    several => {
                        let (first, second) = several.split_at(several.len() / 2);
                        parts.extend([second, first]);
                    }
                },
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Holds the configured rules in force during the deletion; the transaction itself checks the rules of a bucket.
    async fn delete(&self, position: &BucketPosition, batch: &DueBatch<'_>) -> Result<Vec<ObjectKey>, PageFault> {
        let token = ClaimToken::new(self.ids.fresh());
        let _held = match batch.authority {
            Authority::Configuration => {
                Some(self.rules.hold(&position.configured).await.ok_or(PageFault::RulesChanged)?)
            }
            Authority::Bucket(_) => None,
        };
        Ok(self.lifecycles.delete_due(batch, token).await?)
    }

    /// Processes one page of a rule's uploads; returns where the rule continues.
    async fn abort(
        &self,
        position: &BucketPosition,
        active: &ActiveRule,
        behind: Option<DueUpload>,
        report: &mut Report,
    ) -> Result<Option<RuleCursor>, PageFault> {
        let (Some(threshold), Authority::Bucket(revision)) = (active.rule.aborts(), active.authority) else {
            return Ok(None);
        };
        let range = range(&position.bucket, &active.rule, None, threshold);
        let due = self.lifecycles.due_uploads(&range, behind.as_ref(), UPLOADS_PAGE).await?;
        for upload in &due {
            // An upload that was closed since the query is not aborted.
            if let Some(size_bytes) = self.lifecycles.abort_due(upload.id, revision, threshold).await? {
                report_aborted(position, active, (upload, size_bytes), report);
            }
        }
        let full = due.len() >= UPLOADS_PAGE;
        Ok(due.into_iter().next_back().filter(|_| full).map(|last| RuleCursor::Uploads(Some(last))))
    }
}

/// The keys that match the rule's prefix, from `from` on.
fn range(bucket: &RuledBucket, rule: &Rule, from: Option<String>, threshold: Threshold) -> DueRange {
    let from = from.unwrap_or_else(|| rule.filter.prefix().to_owned());
    DueRange { bucket: bucket.id, from, before: rule.filter.before(), threshold }
}

fn subject(object: &DueObject) -> Subject<'_> {
    Subject { key: object.key.as_str(), size_bytes: object.size_bytes, tags: &object.tags }
}

fn matches(rule: &Rule, object: &DueObject) -> bool {
    rule.filter.matches(subject(object))
}

/// Whether the same page may succeed later: the catalog was unavailable or gave no answer.
fn is_transient(error: &Error) -> bool {
    matches!(error, Error::Catalog(s3o_catalog::Error::Away(_) | s3o_catalog::Error::Unknown(_)))
}
