//! Aborts uploads that nobody works on any more, so that their parts do not stay on the bill.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use s3o_catalog::StaleUploads;
use tokio::sync::Notify;

use crate::{Error, Event, Report, Worker};

/// How many uploads one tick aborts.
const BATCH: usize = 100;

/// Aborts uploads without activity.
pub struct StaleMultipart {
    /// The uploads.
    pub uploads: Arc<dyn StaleUploads>,
    /// After how long without activity an upload is aborted.
    pub timeout: Duration,
    /// Rung when bytes are to be deleted.
    pub cleanup_bell: Arc<Notify>,
}

#[async_trait]
impl Worker for StaleMultipart {
    fn name(&self) -> &'static str {
        "stale_multipart"
    }

    fn is_decided_by_time(&self) -> bool {
        true
    }

    async fn tick(&self, report: &mut Report) -> Result<(), Error> {
        let stale = self.uploads.stale_uploads(self.timeout, BATCH).await?;
        let full = stale.len() >= BATCH;
        for upload in stale {
            // One that was closed or came back to life meanwhile is not ours to abort.
            let Some(size_bytes) = self.uploads.abort_stale_upload(upload.id, self.timeout).await? else { continue };
            report.count("aborted", 1);
            let event = Event::new("multipart.aborted").of(Some(upload.bucket), &upload.key);
            let event = event.with("upload_id", upload.id.to_string()).with("size_bytes", size_bytes);
            report.events.push(event.with("idle_seconds", upload.idle.as_secs()));
        }
        if !report.items.is_empty() {
            self.cleanup_bell.notify_one();
        }
        report.more = full && !report.items.is_empty();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use s3o_catalog::Uploads as _;

    use super::{BATCH, StaleMultipart};
    use crate::testing::{counted, scene};
    use crate::{Report, Worker as _};

    const TIMEOUT: Duration = Duration::from_hours(24);

    #[tokio::test]
    async fn uploads_without_activity_go_in_bounded_batches() {
        let scene = scene();
        let bucket = scene.bucket("stale").await;
        for number in 0..=BATCH {
            let upload = scene.upload(bucket, &format!("k{number:03}")).await;
            scene.part(upload, 1, 5).await;
        }
        scene.clock.advance(TIMEOUT + Duration::from_secs(1));
        let active = scene.upload(bucket, "active").await;
        let worker =
            StaleMultipart { uploads: Arc::new(scene.catalog.clone()), timeout: TIMEOUT, cleanup_bell: Arc::default() };
        let mut report = Report::default();
        worker.tick(&mut report).await.expect("a tick");
        assert_eq!((counted(&report), report.more), (vec![("aborted", BATCH as u64)], true));
        let told = serde_json::to_value(&report.events[0]).expect("serialises");
        assert_eq!((&told["bucket"], &told["size_bytes"]), (&"stale".into(), &5.into()));
        assert_eq!(told["upload_id"].as_str().map(str::len), Some(32));
        let mut report = Report::default();
        worker.tick(&mut report).await.expect("a tick");
        assert_eq!((counted(&report), report.more), (vec![("aborted", 1)], false));
        assert_eq!(scene.catalog.open_uploads(bucket, "", ("", ""), 9).await.expect("listed")[0].id, active);
        tokio::time::timeout(Duration::ZERO, worker.cleanup_bell.notified()).await.expect("cleanup was woken");
    }
}
