//! Deletes objects that a trait probe left behind after a crash or a failed delete.

use std::time::Duration;

use s3o_model::clock::Timestamp;

use crate::{Backend, DeleteKey, Error, Traits};

/// Prefix of the objects that trait probes write.
const PROBE_PREFIX: &str = ".s3o/probe/";
/// Another instance may still use younger objects.
const AGE_MIN: Duration = Duration::from_hours(1);
const DELETED_MAX: usize = 1000;

/// Deletes up to 1000 probe objects older than an hour by the store's clock. The next attach retries failed deletes.
pub async fn delete_stale(backend: &dyn Backend, traits: &Traits, now: Timestamp) -> Result<(), Error> {
    let store_now = Timestamp::from_millis(now.millis().saturating_add(traits.clock_skew_ms.unwrap_or(0)));
    let page = backend.list(PROBE_PREFIX, None, DELETED_MAX).await?;
    let is_stale = |modified: Option<Timestamp>| modified.is_some_and(|moment| store_now.since(moment) > AGE_MIN);
    let stale = page.items.into_iter().filter(|item| is_stale(item.modified));
    let targets: Vec<DeleteKey> = stale.map(|item| DeleteKey { key: item.key, version_id: None }).collect();
    if !targets.is_empty() {
        backend.delete_batch(&targets).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::{Duration, UNIX_EPOCH};

    use s3o_model::clock::Timestamp;

    use super::delete_stale;
    use crate::{Backend as _, Fs, FsOptions};

    #[tokio::test]
    async fn stale_probe_objects_are_deleted_and_recent_ones_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let fs = Fs::open("disk".parse().expect("valid"), folder.path().to_owned(), FsOptions::default());
        let traits = fs.probe_traits().await.expect("traits");
        let probes = folder.path().join(".s3o/probe");
        let now = Timestamp::from_millis(100 * 3_600_000);
        for (file, hour) in [("stale", 98), ("recent", 100)] {
            let file = File::create(probes.join(file)).expect("a probe object");
            file.set_modified(UNIX_EPOCH + Duration::from_hours(hour)).expect("an age");
        }
        delete_stale(&fs, &traits, now).await.expect("deleted");
        let left = std::fs::read_dir(probes).expect("listed").map(|entry| entry.expect("read").file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["recent"]);
    }
}
