//! What trying a backend out leaves behind when it is cut off: a crash, or a delete that was lost.

use std::time::Duration;

use s3o_model::clock::Timestamp;

use crate::{Backend, Doomed, Error, Traits};

/// Where backends are tried out.
pub const CANARIES: &str = ".s3o/probe/";
/// Younger ones may be another instance's, in use.
const IN_USE: Duration = Duration::from_hours(1);
const SWEPT_MAX: usize = 1000;

/// Deletes the canaries that nobody is using any more. Another attach gets what this one cannot.
pub async fn sweep(backend: &dyn Backend, traits: &Traits, now: Timestamp) -> Result<(), Error> {
    let theirs = Timestamp::from_millis(now.millis().saturating_add(traits.clock_skew_ms.unwrap_or(0)));
    let page = backend.list(CANARIES, None, SWEPT_MAX).await?;
    let is_left = |modified: Option<Timestamp>| modified.is_some_and(|moment| theirs.since(moment) > IN_USE);
    let left = page.items.into_iter().filter(|item| is_left(item.modified));
    let doomed: Vec<Doomed> = left.map(|item| Doomed { key: item.key, version_id: None }).collect();
    if !doomed.is_empty() {
        backend.delete_batch(&doomed).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::{Duration, UNIX_EPOCH};

    use s3o_model::clock::Timestamp;

    use super::sweep;
    use crate::{Backend as _, Fs, FsOptions};

    #[tokio::test]
    async fn canaries_that_were_left_are_swept_and_those_in_use_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let fs = Fs::open("disk".parse().expect("valid"), folder.path().to_owned(), FsOptions::default());
        let traits = fs.probe_traits().await.expect("traits");
        let place = folder.path().join(".s3o/probe");
        let now = Timestamp::from_millis(100 * 3_600_000);
        for (file, hour) in [("left", 98), ("in-use", 100)] {
            let file = File::create(place.join(file)).expect("a canary");
            file.set_modified(UNIX_EPOCH + Duration::from_hours(hour)).expect("an age");
        }
        sweep(&fs, &traits, now).await.expect("swept");
        let left = std::fs::read_dir(place).expect("listed").map(|entry| entry.expect("read").file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["in-use"]);
    }
}
