//! The plain loop that moves between stores are compared with: each connection reads one object and writes it to the
//! other store, without a catalog and without digests.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use s3o_backend::s3::PUT_BYTES_MAX;
use s3o_backend::{Fs, FsOptions, S3, S3Options, SharedBackend};
use s3o_model::clock::SystemClock;
use s3o_model::entropy::SystemEntropy;
use serde_json::json;
use tokio::time::Instant;

use super::figures::{float, per};
use super::load;
use crate::{BenchArguments, Error};

/// Number of keys in one request for a listing.
const PAGE_KEYS: usize = 1000;

/// One object of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferItem {
    pub key: String,
    pub size_bytes: u64,
}

/// The two stores of a transfer.
#[derive(Debug)]
pub struct StoreTransfer {
    pub source: SharedBackend,
    pub target: SharedBackend,
}

impl StoreTransfer {
    /// Reads an object and writes it under the same key; returns its size.
    pub async fn copy(&self, item: &TransferItem) -> Result<u64, String> {
        let body = self.source.get((&item.key).into(), None).await.map_err(|error| error.to_string())?;
        let written = self.target.put(&item.key, item.size_bytes, body).await;
        written.map(|written| written.size_bytes).map_err(|error| error.to_string())
    }

    async fn items(&self, prefix: &str) -> Result<Vec<TransferItem>, Error> {
        let mut items: Vec<TransferItem> = Vec::new();
        loop {
            let after = items.last().map(|item| item.key.clone());
            let page = self.source.list(prefix, after.as_deref(), PAGE_KEYS).await;
            let page = page.map_err(|error| Error::of("cannot list the source", error))?;
            let is_last = !page.truncated || page.items.is_empty();
            let listed = page.items.into_iter();
            items.extend(listed.map(|item| TransferItem { key: item.key, size_bytes: item.size_bytes }));
            if is_last {
                return Ok(items);
            }
        }
    }
}

/// Copies all objects of the source with this prefix and prints the rate as JSON; fails if one of them failed.
pub async fn run(source: &str, target: &str, arguments: &BenchArguments) -> Result<(), Error> {
    let transfer = StoreTransfer { source: store(source, arguments)?, target: store(target, arguments)? };
    let items = transfer.items(&arguments.transfer_prefix).await?;
    let connections = arguments.concurrency.first().copied().unwrap_or(1);
    let began = Instant::now();
    let stats = load::transfer(&Arc::new(transfer), items, connections).await?;
    let elapsed = began.elapsed();
    if let Some(why) = stats.first_error {
        return Err(Error::of(&format!("{} objects were not copied, the first", stats.errors), why));
    }
    println!("{}", figures(stats.latencies.len() as u64, stats.body_bytes, elapsed));
    Ok(())
}

fn figures(objects: u64, body_bytes: u64, elapsed: Duration) -> serde_json::Value {
    let seconds = elapsed.as_secs_f64();
    json!({
        "objects": objects,
        "body_bytes": body_bytes,
        "seconds": seconds,
        "objects_per_second": per(float(objects), seconds),
    })
}

/// A folder, or the bucket at the end of a URL.
fn store(place: &str, arguments: &BenchArguments) -> Result<SharedBackend, Error> {
    let name = "bench".parse().map_err(|error| Error::of("bench", error))?;
    if !place.starts_with("http://") && !place.starts_with("https://") {
        let options = FsOptions { create: true, ..FsOptions::default() };
        return Ok(Arc::new(Fs::open(name, Path::new(place).to_owned(), options)));
    }
    let options = bucket_at(place, arguments)?;
    let store = S3::connect(name, &options, Arc::new(SystemClock), Arc::new(SystemEntropy));
    Ok(Arc::new(store.map_err(|error| Error::of(place, error))?))
}

fn bucket_at(url: &str, arguments: &BenchArguments) -> Result<S3Options, Error> {
    let unusable = || Error::Usage(format!("{url:?} does not end with the name of a bucket"));
    let (endpoint, bucket) = url.trim_end_matches('/').rsplit_once('/').ok_or_else(unusable)?;
    if endpoint.ends_with('/') {
        return Err(unusable());
    }
    Ok(S3Options {
        endpoint: endpoint.to_owned(),
        region: arguments.region.clone(),
        bucket: bucket.to_owned(),
        access_key_id: arguments.access_key.clone(),
        secret_access_key: arguments.secret_key.clone(),
        path_style: true,
        put_bytes_max: PUT_BYTES_MAX,
        create_bucket: false,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use s3o_backend::{Backend as _, Fs, FsOptions, body};

    use super::{StoreTransfer, TransferItem};
    use crate::load;

    fn folder(root: &std::path::Path) -> Fs {
        let options = FsOptions { create: true, ..FsOptions::default() };
        Fs::open("folder".parse().expect("a name"), root.to_owned(), options)
    }

    #[tokio::test]
    async fn every_object_with_the_prefix_is_copied() {
        let scratch = tempfile::tempdir().expect("a folder");
        let (source, target) = (folder(&scratch.path().join("source")), folder(&scratch.path().join("target")));
        for key in ["a/1", "a/2", "b/1"] {
            source.put(key, 2, body::whole(b"xy".as_slice().into())).await.expect("stored");
        }
        let transfer = Arc::new(StoreTransfer { source: Arc::new(source), target: Arc::new(target) });
        let items = transfer.items("a/").await.expect("listed");
        assert_eq!(items[0], TransferItem { key: "a/1".to_owned(), size_bytes: 2 });
        let stats = load::transfer(&transfer, items, 2).await.expect("copied");
        assert_eq!((stats.latencies.len(), stats.body_bytes, stats.errors), (2, 4, 0));
        let page = transfer.target.list("", None, 10).await.expect("listed");
        assert_eq!(page.items.iter().map(|item| item.key.as_str()).collect::<Vec<_>>(), ["a/1", "a/2"]);
    }
}
