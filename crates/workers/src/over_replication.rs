//! Removes copies that contents do not need: excess ones, from the fullest backend first, and damaged ones of contents
//! that have enough others. The copies that stay are probed before.
//!
//! Copies on draining backends do not count, so they are no excess here: `drain` removes them, as soon as enough others
//! count. Nothing is removed from a backend that is unhealthy, frozen or disputed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use s3o_catalog::{Catalog, CopyWork, CountedLocation, Error as CatalogError, RemoveCopy};
use s3o_engine::Engine;
use s3o_model::backoff::Backoff;
use s3o_model::cleanup::Reason;
use s3o_model::names::BackendName;
use s3o_model::quota::QuotaUsage;
use tokio::sync::Notify;

use crate::replicator::CopySettings;
use crate::{Error, Event, Report, Worker};

/// Delay of a content whose copies could not be proven.
const RETRY: Backoff = Backoff { min: Duration::from_secs(30), max: Duration::from_hours(1) };

/// Removes excess copies.
pub struct OverReplicationWorker {
    /// The queue of work.
    pub catalog: Arc<Catalog>,
    /// Probes the copies that stay.
    pub engine: Engine,
    /// Bounds, replaced on reload together with the worker.
    pub settings: CopySettings,
    /// Wakes the cleanup worker.
    pub cleanup_wakeup: Arc<Notify>,
}

#[async_trait]
impl Worker for OverReplicationWorker {
    fn name(&self) -> &'static str {
        "over_replication"
    }

    async fn tick(&self, report: &mut Report) -> Result<(), Error> {
        let (due, _) = self.catalog.due_copy_work(true, self.settings.batch_size).await?;
        if due.is_empty() {
            return Ok(());
        }
        let usage = self.catalog.quota_usage().await?;
        let is_full = due.len() >= self.settings.batch_size;
        let mut removed = false;
        let work: Vec<_> = due.iter().map(|work| self.boxed_removal(work, &usage)).collect();
        let mut done = futures_util::stream::iter(work).buffer_unordered(self.settings.concurrency.max(1));
        while let Some(done) = done.next().await {
            let work = done?;
            removed |= work.items.contains_key("removed");
            report.absorb(work);
        }
        if removed {
            self.cleanup_wakeup.notify_one();
        }
        report.more = is_full && removed;
        Ok(())
    }
}

impl OverReplicationWorker {
    fn boxed_removal<'a>(
        &'a self,
        work: &'a CopyWork,
        usage: &'a [QuotaUsage],
    ) -> BoxFuture<'a, Result<Report, Error>> {
        Box::pin(async move {
            let mut report = Report::default();
            self.remove_one(work, usage, &mut report).await?;
            Ok(report)
        })
    }

    /// Removes one copy that a content does not need.
    async fn remove_one(&self, work: &CopyWork, usage: &[QuotaUsage], report: &mut Report) -> Result<(), Error> {
        if !work.is_gone && self.engine.recheck_uncounted(work).await? {
            // The next tick counts the copies again.
            return Ok(());
        }
        let Some(unneeded) = copy_to_remove(work, usage) else { return self.settle_or_postpone(work, report).await };
        let copy = unneeded.location.clone();
        let remove = RemoveCopy {
            content: work.content,
            kept: self.engine.proven_copies(work, &copy).await,
            copy,
            reason: Reason::Replication,
            grace: self.settings.reader_grace,
        };
        match self.catalog.remove_copy(&remove).await {
            Ok(()) => {
                report.count("removed", 1);
                let (backend, physical_key) = (&remove.copy.backend, &remove.copy.physical_key);
                let event = Event::new("over_replication.removed").at(backend, physical_key, work.size_bytes);
                report.events.push(event.with("content", work.content.to_string()));
                Ok(())
            }
            // The copies changed since they were read, or too few of the others could be probed.
            Err(CatalogError::Guard(_)) => self.settle_or_postpone(work, report).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the work of a content that has no unneeded copy any more; otherwise it is done later.
    async fn settle_or_postpone(&self, work: &CopyWork, report: &mut Report) -> Result<(), Error> {
        self.catalog.settle_copy_work(work.content).await?;
        if work.is_gone || work.counting() < work.factor {
            return Ok(());
        }
        let delay = RETRY.delay(work.attempts.saturating_add(1), 1.0);
        // Changes nothing if the content is settled.
        if self.catalog.postpone_copy_work(work, delay, "too few copies could be probed").await? {
            report.count("unproven", 1);
        }
        Ok(())
    }
}

/// The copy to remove if there are too many: the one on the fullest backend; among equals, the one that was verified
/// longest ago. If there are just enough, a damaged one. Only copies on backends from which something may be removed.
fn copy_to_remove<'a>(work: &'a CopyWork, usage: &[QuotaUsage]) -> Option<&'a CountedLocation> {
    if work.is_gone || work.counting() < work.factor {
        return None;
    }
    if work.counting() == work.factor {
        return work.copies.iter().find(|copy| !copy.is_present && copy.is_removable);
    }
    let counting = work.copies.iter().filter(|copy| copy.counts && copy.is_removable);
    counting.max_by(|one, other| {
        let fill = |copy: &CountedLocation| used_share(usage, &copy.location.backend);
        fill(one).total_cmp(&fill(other)).then(other.verified_at.cmp(&one.verified_at))
    })
}

/// Used share of a backend's quota. A backend without a quota is compared as if it had the largest quota of all.
fn used_share(usage: &[QuotaUsage], name: &BackendName) -> f64 {
    let largest = usage.iter().filter_map(|usage| usage.limit_bytes).max().unwrap_or(u64::MAX);
    let of = usage.iter().find(|usage| usage.backend == *name);
    of.map_or(0.0, |usage| ratio(usage.used_bytes, usage.limit_bytes.unwrap_or(largest)))
}

#[expect(clippy::cast_precision_loss, reason = "shares are compared, not added up")]
fn ratio(used: u64, limit: u64) -> f64 {
    used as f64 / limit.max(1) as f64
}

#[cfg(test)]
mod tests {
    use s3o_catalog::{CopyWork, CountedLocation};
    use s3o_model::clock::Timestamp;
    use s3o_model::content::Location;
    use s3o_model::ids::ContentId;
    use s3o_model::quota::QuotaUsage;

    use super::copy_to_remove;

    fn usage(name: &str, used_bytes: u64, limit_bytes: Option<u64>) -> QuotaUsage {
        let backend = name.parse().expect("valid");
        QuotaUsage { backend, limit_bytes, used_bytes, orphan_bytes: 0, reserved_bytes: 0 }
    }

    fn copy(name: &str, verified_at: i64) -> CountedLocation {
        let (backend, physical_key) = (name.parse().expect("valid"), "b/k~1".to_owned());
        let location = Location { backend, physical_key, backend_version: None };
        let verified_at = Some(Timestamp::from_millis(verified_at));
        CountedLocation {
            location,
            counts: true,
            is_unproven: false,
            is_present: true,
            is_removable: true,
            verified_at,
        }
    }

    fn chosen(copies: Vec<CountedLocation>, usage: &[QuotaUsage]) -> String {
        let work = CopyWork {
            content: ContentId::last_of(Timestamp::from_millis(0)),
            size_bytes: 1,
            factor: 1,
            md5: None,
            sha256: None,
            attempts: 0,
            is_joined: false,
            is_gone: false,
            read_at: Timestamp::from_millis(0),
            epoch: 0,
            copies,
        };
        copy_to_remove(&work, usage).expect("a copy").location.backend.to_string()
    }

    #[test]
    fn copy_on_the_fullest_backend_is_removed() {
        let usage = [usage("small", 60, Some(100)), usage("large", 500, Some(1000)), usage("free", 550, None)];
        assert_eq!(chosen(vec![copy("small", 1), copy("large", 1), copy("free", 1)], &usage), "small");
        assert_eq!(chosen(vec![copy("large", 1), copy("free", 1)], &usage), "free");
    }

    #[test]
    fn among_equals_the_copy_verified_longest_ago_is_removed() {
        let usage = [usage("a", 10, Some(100)), usage("b", 10, Some(100))];
        assert_eq!(chosen(vec![copy("a", 2), copy("b", 1)], &usage), "b");
        assert_eq!(chosen(vec![copy("a", 1), copy("b", 2)], &usage), "a");
    }

    #[test]
    fn copy_that_does_not_count_is_not_chosen() {
        let uncounted = CountedLocation { counts: false, ..copy("a", 1) };
        let copies = vec![uncounted, copy("b", 2), copy("c", 3)];
        assert_eq!(chosen(copies, &[usage("a", 99, Some(100)), usage("b", 1, Some(2)), usage("c", 1, None)]), "b");
    }

    #[test]
    fn damaged_copy_is_chosen_if_just_enough_others_count() {
        let damaged = CountedLocation { counts: false, is_unproven: true, is_present: false, ..copy("a", 1) };
        let unproven = CountedLocation { counts: false, is_unproven: true, ..copy("b", 1) };
        assert_eq!(chosen(vec![unproven, damaged, copy("c", 1)], &[]), "a");
    }

    #[test]
    fn copy_on_a_backend_that_keeps_its_copies_is_not_chosen() {
        let kept = |copy| CountedLocation { is_removable: false, ..copy };
        let damaged = |name| CountedLocation { counts: false, is_present: false, ..copy(name, 1) };
        let usage = [usage("a", 99, Some(100)), usage("b", 1, Some(100)), usage("c", 2, Some(100))];
        assert_eq!(chosen(vec![kept(copy("a", 1)), copy("b", 1), copy("c", 1)], &usage), "c");
        assert_eq!(chosen(vec![kept(damaged("a")), damaged("b"), copy("c", 1)], &usage), "b");
    }
}
