//! Aborts multipart uploads without activity, so that their parts are no longer billed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use s3o_catalog::Catalog;
use tokio::sync::Notify;

use crate::{Error, Event, Report, Worker};

/// Number of uploads that one tick aborts.
const BATCH: usize = 100;

/// Aborts at most 100 uploads per tick.
pub struct StaleMultipartWorker {
    /// Open multipart uploads.
    pub uploads: Arc<Catalog>,
    /// Time without activity after which an upload is aborted.
    pub timeout: Duration,
    /// Wakes the cleanup worker.
    pub cleanup_wakeup: Arc<Notify>,
}

#[async_trait]
impl Worker for StaleMultipartWorker {
    fn name(&self) -> &'static str {
        "stale_multipart"
    }

    fn is_time_dependent(&self) -> bool {
        true
    }

    async fn tick(&self, report: &mut Report) -> Result<(), Error> {
        let stale = self.uploads.stale_uploads(self.timeout, BATCH).await?;
        let full = stale.len() >= BATCH;
        for upload in stale {
            // An upload that was closed or used since the query is not aborted.
            let Some(size_bytes) = self.uploads.abort_stale_upload(upload.id, self.timeout).await? else { continue };
            report.count("aborted", 1);
            let event = Event::new("multipart.aborted").of(Some(upload.bucket), &upload.key);
            let event = event.with("upload_id", upload.id.to_string()).with("size_bytes", size_bytes);
            report.events.push(event.with("idle_seconds", upload.idle.as_secs()));
        }
        if !report.items.is_empty() {
            self.cleanup_wakeup.notify_one();
        }
        report.more = full && !report.items.is_empty();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::{BATCH, StaleMultipartWorker};
    use crate::testing::{counted, fixture};
    use crate::{Report, Worker as _};

    const TIMEOUT: Duration = Duration::from_hours(24);

    #[tokio::test]
    async fn uploads_without_activity_are_aborted_in_bounded_batches() {
        let fixture = fixture();
        let bucket = fixture.bucket("stale").await;
        for number in 0..=BATCH {
            let upload = fixture.upload(bucket, &format!("k{number:03}")).await;
            fixture.part(upload, 1, 5).await;
        }
        fixture.clock.advance(TIMEOUT + Duration::from_secs(1));
        let active = fixture.upload(bucket, "active").await;
        let worker = StaleMultipartWorker {
            uploads: Arc::new(fixture.catalog.clone()),
            timeout: TIMEOUT,
            cleanup_wakeup: Arc::default(),
        };
        let mut report = Report::default();
        worker.tick(&mut report).await.expect("a tick");
        assert_eq!((counted(&report), report.more), (vec![("aborted", BATCH as u64)], true));
        let event = serde_json::to_value(&report.events[0]).expect("serialises");
        assert_eq!((&event["bucket"], &event["size_bytes"]), (&"stale".into(), &5.into()));
        assert_eq!(event["upload_id"].as_str().map(str::len), Some(32));
        let mut report = Report::default();
        worker.tick(&mut report).await.expect("a tick");
        assert_eq!((counted(&report), report.more), (vec![("aborted", 1)], false));
        assert_eq!(fixture.catalog.open_uploads(bucket, "", ("", ""), 9).await.expect("listed")[0].id, active);
        tokio::time::timeout(Duration::ZERO, worker.cleanup_wakeup.notified()).await.expect("cleanup was woken");
    }
}
