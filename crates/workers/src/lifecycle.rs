//! Removes what lifecycle rules mean: objects that have aged, uploads that were never completed.
//!
//! Buckets are visited by name, the rules of each one after another, their ranges in the order of the
//! keys, a page at a time. The rules are read again before every page, and the units that remove look
//! once more whether they still are in force, so that nothing goes by a rule that was changed.

mod place;
mod preview;
mod rules;
#[cfg(test)]
mod tests;
mod told;

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use s3o_catalog::{Authority, DueBatch, DueObject, DueRange, DueUpload, Lifecycles, RuledBucket, Verdict};
use s3o_model::ids::{ClaimToken, IdSource};
use s3o_model::lifecycle::{Rule, Subject, Threshold};
use s3o_model::names::ObjectKey;
use tokio::sync::Notify;

use crate::{Error, Report, Worker};

use place::{Cursor, Place, Position, place_in};
pub use preview::{Preview, PreviewTotal, RulePreview, Sample, preview};
use rules::{InForce, in_force};
pub use rules::{RuleSource, SharedRules};
use told::{tell_aborted, tell_deleted};

/// How many objects one page looks at, and one unit removes.
const PAGE: usize = 1000;
/// How many uploads one page aborts.
const UPLOADS_PAGE: usize = 100;
/// How many pages one tick looks at while little is due.
const STEPS_MAX: usize = 20;

/// Applies lifecycle rules.
pub struct Lifecycle {
    lifecycles: Arc<dyn Lifecycles>,
    rules: SharedRules,
    ids: IdSource,
    cleanup_bell: Arc<Notify>,
    position: Mutex<Position>,
    page: usize,
}

/// Why a page was given up.
enum Fault {
    /// The rules are not those any more.
    Replaced,
    Failed(Error),
}

impl From<s3o_catalog::Error> for Fault {
    fn from(error: s3o_catalog::Error) -> Self {
        match error.verdict() {
            Some(Verdict::RunAgain) => Self::Replaced,
            Some(_) | None => Self::Failed(error.into()),
        }
    }
}

#[async_trait]
impl Worker for Lifecycle {
    fn name(&self) -> &'static str {
        "lifecycle"
    }

    fn is_decided_by_time(&self) -> bool {
        true
    }

    fn is_patient(&self) -> bool {
        true
    }

    async fn tick(&self, report: &mut Report) -> Result<(), Error> {
        let walked = self.walk(report).await;
        if !report.items.is_empty() {
            self.cleanup_bell.notify_one();
        }
        walked
    }
}

impl Lifecycle {
    /// A worker that applies these rules, and those that buckets have; the bell is rung when bytes are to go.
    #[must_use]
    pub fn new(lifecycles: Arc<dyn Lifecycles>, rules: SharedRules, ids: IdSource, cleanup_bell: Arc<Notify>) -> Self {
        Self { lifecycles, rules, ids, cleanup_bell, position: Mutex::default(), page: PAGE }
    }

    fn position(&self) -> parking_lot::MutexGuard<'_, Position> {
        self.position.lock()
    }

    /// Some pages, until a full batch was removed.
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

    /// Looks at one page and removes what is due on it; says whether there is another one.
    async fn step(&self, report: &mut Report) -> Result<bool, Error> {
        let Position { after, place } = self.position().clone();
        let configured = self.rules.current();
        let Some(bucket) = self.lifecycles.ruled_bucket(&after, &configured.buckets()).await? else {
            *self.position() = Position::default();
            return Ok(false);
        };
        let Some(place) = place_in(&bucket, &configured, place) else {
            *self.position() = Position { after: bucket.name.as_str().to_owned(), place: None };
            return Ok(true);
        };
        let rules = in_force(&place.bucket, &place.configured);
        let Some(standing) = rules.get(place.number) else {
            *self.position() = Position { after: bucket.name.as_str().to_owned(), place: None };
            return Ok(true);
        };
        let walked = match place.cursor.clone() {
            Cursor::Objects(from) => self.expire(&place, standing, from, report).await,
            Cursor::Uploads(behind) => self.abort(&place, standing, behind, report).await,
        };
        // A rule that cannot be applied keeps no other from being applied.
        let (cursor, failed) = match walked {
            Ok(cursor) => (cursor, None),
            Err(Fault::Replaced) => (Some(place.cursor.clone()), None),
            Err(Fault::Failed(error)) if is_away(&error) => return Err(error),
            Err(Fault::Failed(error)) => (None, Some(error)),
        };
        *self.position() = Position { after, place: Some(place.moved_to(cursor)) };
        failed.map_or(Ok(true), Err)
    }

    /// One page of a rule's objects; where to go on, if anywhere.
    async fn expire(
        &self,
        place: &Place,
        standing: &InForce,
        from: Option<String>,
        report: &mut Report,
    ) -> Result<Option<Cursor>, Fault> {
        let rule = &standing.rule;
        let Some(threshold) = rule.expires() else { return Ok(Some(Cursor::Uploads(None))) };
        let page = self.lifecycles.due_objects(&range(&place.bucket, rule, from, threshold), self.page).await?;
        let meant: Vec<DueObject> = page.objects.into_iter().filter(|object| means(rule, object)).collect();
        if !meant.is_empty() {
            self.remove(place, standing, (&meant, threshold), report).await?;
        }
        Ok(Some(page.next.map_or(Cursor::Uploads(None), |next| Cursor::Objects(Some(next)))))
    }

    /// Removes objects in one unit. If that fails, in halves, down to the one that cannot be removed.
    async fn remove(
        &self,
        place: &Place,
        standing: &InForce,
        (meant, threshold): (&[DueObject], Threshold),
        report: &mut Report,
    ) -> Result<(), Fault> {
        let mut parts = vec![meant];
        while let Some(objects) = parts.pop() {
            let batch = DueBatch {
                bucket: place.bucket.id,
                authority: standing.authority,
                threshold,
                objects,
                by_tags: !standing.rule.filter.tags.is_empty(),
            };
            match self.delete(place, &batch).await {
                Ok(gone) => tell_deleted(place, standing, (objects, &gone), report),
                Err(Fault::Failed(error)) if !is_away(&error) => match objects {
                    [one] => {
                        report.count("failed", 1);
                        tracing::warn!(bucket = %place.bucket.name, key = %one.key, %error, "not removed by its rule");
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

    /// The configuration stays in force while its rules remove something; those of a bucket are guarded by the unit.
    async fn delete(&self, place: &Place, batch: &DueBatch<'_>) -> Result<Vec<ObjectKey>, Fault> {
        let token = ClaimToken::new(self.ids.fresh());
        let _held = match batch.authority {
            Authority::Configuration => Some(self.rules.hold(&place.configured).await.ok_or(Fault::Replaced)?),
            Authority::Bucket(_) => None,
        };
        Ok(self.lifecycles.delete_due(batch, token).await?)
    }

    /// One page of a rule's uploads; where to go on, if anywhere.
    async fn abort(
        &self,
        place: &Place,
        standing: &InForce,
        behind: Option<DueUpload>,
        report: &mut Report,
    ) -> Result<Option<Cursor>, Fault> {
        let (Some(threshold), Authority::Bucket(revision)) = (standing.rule.aborts(), standing.authority) else {
            return Ok(None);
        };
        let range = range(&place.bucket, &standing.rule, None, threshold);
        let due = self.lifecycles.due_uploads(&range, behind.as_ref(), UPLOADS_PAGE).await?;
        for upload in &due {
            // One that was closed meanwhile is not ours to abort.
            if let Some(size_bytes) = self.lifecycles.abort_due(upload.id, revision, threshold).await? {
                tell_aborted(place, standing, (upload, size_bytes), report);
            }
        }
        let full = due.len() >= UPLOADS_PAGE;
        Ok(due.into_iter().next_back().filter(|_| full).map(|last| Cursor::Uploads(Some(last))))
    }
}

/// The keys that a rule means, from one of them on.
fn range(bucket: &RuledBucket, rule: &Rule, from: Option<String>, threshold: Threshold) -> DueRange {
    let from = from.unwrap_or_else(|| rule.filter.prefix().to_owned());
    DueRange { bucket: bucket.id, from, before: rule.filter.before(), threshold }
}

fn subject(object: &DueObject) -> Subject<'_> {
    Subject { key: object.key.as_str(), size_bytes: object.size_bytes, tags: &object.tags }
}

fn means(rule: &Rule, object: &DueObject) -> bool {
    rule.filter.matches(subject(object))
}

/// Whether it may go better soon, at the same place.
fn is_away(error: &Error) -> bool {
    matches!(error, Error::Catalog(s3o_catalog::Error::Away(_) | s3o_catalog::Error::Unknown(_)))
}
