//! An endpoint under load; requests use the client of the `s3` backend.
//!
//! Each run writes below a new prefix and deletes only objects below it, so other objects in the bucket are safe.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use s3o_backend::{
    Backend as _, ByteStream, DeleteAnswer, DeleteKey, Error as BackendError, Probe, S3, S3Options, body,
};
use s3o_model::clock::SystemClock;
use s3o_model::entropy::{Entropy as _, SeededEntropy, SystemEntropy};

use super::metrics::{AdminApi, MetricsText};
use super::server_stats::{MonitoredServer, ServerStats};
use super::usage::Usage;
use crate::Error;

/// The keys of one page of a listing.
pub const PAGE_KEYS: u64 = 1000;
/// Request timeout; a request that exceeds it counts as failed.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);
/// Limits for the objects that cells read: enough to avoid a single hot object, few enough to be written quickly.
const READ_BYTES_MAX: u64 = 64 << 20;
const READ_OBJECTS_MAX: u64 = 1000;

/// A request and its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadRequest {
    Put(String),
    Get(String),
    Head(String),
    List,
    Delete(String),
    /// Delete objects with one request.
    DeleteMany(Vec<String>),
}

/// An endpoint under load, of one instance or of several.
#[derive(Debug)]
pub struct Endpoint {
    /// A client for each instance; at least one.
    stores: Vec<S3>,
    turn: AtomicUsize,
    prefix: String,
    monitored: MonitoredServer,
    /// Source of body bytes, as long as the largest body.
    block: Vec<u8>,
    written: AtomicU64,
}

impl Endpoint {
    /// Creates the clients; sends nothing yet.
    pub fn new(instances: &[S3Options], monitored: MonitoredServer, body_bytes_max: u64) -> Result<Self, Error> {
        let stores = instances.iter().map(connect).collect::<Result<Vec<_>, _>>()?;
        if stores.is_empty() {
            return Err(Error::Failed("no endpoint".to_owned()));
        }
        let prefix = format!("run-{:016x}/", SystemEntropy.next_u64());
        let (turn, written) = (AtomicUsize::new(0), AtomicU64::new(0));
        Ok(Self { stores, turn, prefix, monitored, block: noise(body_bytes_max), written })
    }

    /// The client of the next instance, round robin.
    fn store(&self) -> &S3 {
        &self.stores[self.turn.fetch_add(1, Ordering::Relaxed) % self.stores.len()]
    }

    /// Creates the bucket if it is missing.
    pub async fn open(&self) -> Result<(), String> {
        let made = with_timeout(self.store().create_bucket()).await;
        // Servers answer differently if the bucket exists, so only a failed listing is an error.
        let listed = with_timeout(self.store().list(&self.prefix, None, 1)).await;
        listed.map(drop).map_err(|why| made.err().unwrap_or(why))
    }

    /// Resource usage of all processes of the server; `None` if none is known.
    pub fn usage(&self) -> Result<Option<Usage>, Error> {
        let read = |pid: &u32| Usage::of(*pid).map_err(|error| Error::of(&format!("process {pid}"), error));
        let each = self.monitored.pids.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        Ok(each.into_iter().reduce(Usage::and))
    }

    /// Metrics of all instances together; `None` if no metrics URL is known.
    pub async fn stats(&self) -> Result<Option<ServerStats>, Error> {
        let mut sum: Option<ServerStats> = None;
        for url in &self.monitored.metrics {
            let page = with_timeout(MetricsText::read(url)).await.and_then(|page| ServerStats::read(&page));
            let stats = page.map_err(|error| Error::of(url, error))?;
            sum = Some(sum.map_or(stats, |sum| sum.and(stats)));
        }
        Ok(sum)
    }

    /// The admin API; `None` without a metrics URL or token.
    pub fn admin(&self) -> Option<AdminApi> {
        Some(AdminApi::of_metrics_url(self.monitored.metrics.first()?, self.monitored.token.as_ref()?))
    }

    /// A new key for each call.
    pub fn fresh_key(&self) -> String {
        format!("{}put/{:010}", self.prefix, self.written.fetch_add(1, Ordering::Relaxed))
    }

    /// The key of an object of this size that `prepare` wrote; numbers wrap around.
    pub fn read_key(&self, size_bytes: u64, number: u64) -> String {
        format!("{}read/{size_bytes}/{:06}", self.prefix, number % read_objects(size_bytes))
    }

    /// The keys of all objects of this size that cells read.
    pub fn read_keys(&self, size_bytes: u64) -> Vec<String> {
        (0..read_objects(size_bytes)).map(|number| self.read_key(size_bytes, number)).collect()
    }

    /// The keys of the page that the LIST workload lists.
    pub fn page_keys(&self) -> Vec<String> {
        (0..PAGE_KEYS).map(|number| format!("{}{number:06}", self.page_prefix())).collect()
    }

    fn page_prefix(&self) -> String {
        format!("{}page/", self.prefix)
    }

    /// Sends a request and reads the whole response; returns the number of body bytes.
    pub async fn perform(&self, request: &LoadRequest, size_bytes: u64) -> Result<u64, String> {
        with_timeout(self.exchange(request, size_bytes)).await
    }

    async fn exchange(&self, request: &LoadRequest, size_bytes: u64) -> Result<u64, String> {
        let (store, text) = (self.store(), |error: BackendError| error.to_string());
        match request {
            LoadRequest::Put(key) => {
                let written = store.put(key, size_bytes, self.body(size_bytes)).await;
                written.map(|written| written.size_bytes).map_err(text)
            }
            LoadRequest::Get(key) => {
                let received = length(store.get(key.into(), None).await.map_err(text)?).await?;
                expect(received, size_bytes, "bytes")
            }
            LoadRequest::Head(key) => match store.probe(key.into()).await {
                Probe::Present(present) => expect(present.size_bytes, size_bytes, "bytes").map(|_| 0),
                Probe::Absent => Err("object is missing".to_owned()),
                Probe::Unknown(why) => Err(why),
            },
            LoadRequest::List => {
                let limit = usize::try_from(PAGE_KEYS).unwrap_or(usize::MAX);
                let page = store.list(&self.page_prefix(), None, limit).await.map_err(text)?;
                expect(page.items.len() as u64, PAGE_KEYS, "keys").map(|_| 0)
            }
            LoadRequest::Delete(key) => remove(store, std::slice::from_ref(key)).await,
            LoadRequest::DeleteMany(keys) => remove(store, keys).await,
        }
    }

    /// A body that is unique in this run, so that deduplication does not apply.
    fn body(&self, size_bytes: u64) -> ByteStream {
        let length = usize::try_from(size_bytes).unwrap_or(usize::MAX).min(self.block.len());
        let mut bytes = self.block[..length].to_vec();
        stamp(&mut bytes, self.written.fetch_add(1, Ordering::Relaxed));
        body::whole(bytes.into())
    }

    /// Deletes all objects of this run.
    pub async fn empty(&self) -> Result<(), Error> {
        let left = |why: String| Error::of(&format!("objects are left below {}", self.prefix), why);
        // The first failure ends the loop: an object that cannot be deleted would be listed forever.
        while self.delete_page().await.map_err(left)? {}
        Ok(())
    }

    /// Deletes one page of objects of this run; false if there was none.
    async fn delete_page(&self) -> Result<bool, String> {
        let page = with_timeout(self.store().list(&self.prefix, None, 1000)).await?;
        let doomed = page.items.into_iter().map(|item| DeleteKey { key: item.key, version_id: None });
        let doomed: Vec<_> = doomed.collect();
        if doomed.is_empty() {
            return Ok(false);
        }
        let answers = with_timeout(async { Ok::<_, BackendError>(self.store().delete_batch(&doomed).await) }).await?;
        answers.iter().try_for_each(deleted).map(|()| true)
    }
}

/// Deletes one key with `DeleteObject`, several with `DeleteObjects`.
async fn remove(store: &S3, keys: &[String]) -> Result<u64, String> {
    let doomed: Vec<_> = keys.iter().map(|key| DeleteKey { key: key.clone(), version_id: None }).collect();
    store.delete_batch(&doomed).await.iter().try_for_each(deleted).map(|()| 0)
}

fn connect(options: &S3Options) -> Result<S3, Error> {
    let endpoint = &options.endpoint;
    if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
        return Err(Error::Failed(format!("{endpoint:?} does not begin with http:// or https://")));
    }
    let name = "bench".parse().map_err(|error| Error::of("bench", error))?;
    let store = S3::connect(name, options, Arc::new(SystemClock), Arc::new(SystemEntropy));
    store.map_err(|error| Error::of(endpoint, error))
}

/// Limits the time for a response.
async fn with_timeout<T, E: ToString>(answer: impl Future<Output = Result<T, E>>) -> Result<T, String> {
    match tokio::time::timeout(REQUEST_TIMEOUT, answer).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer in {} seconds", REQUEST_TIMEOUT.as_secs())),
    }
}

fn read_objects(size_bytes: u64) -> u64 {
    (READ_BYTES_MAX / size_bytes.max(1)).clamp(1, READ_OBJECTS_MAX)
}

/// Incompressible bytes, the same in every run.
fn noise(size_bytes: u64) -> Vec<u8> {
    let source = SeededEntropy::new(0);
    (0..size_bytes.div_ceil(8)).flat_map(|_| source.next_u64().to_le_bytes()).collect()
}

/// Writes the number into the first 8 bytes, so that bodies differ.
fn stamp(bytes: &mut [u8], number: u64) {
    for (byte, stamped) in bytes.iter_mut().zip(number.to_le_bytes()) {
        *byte = stamped;
    }
}

/// Reads a body to its end; returns its length.
async fn length(mut stream: ByteStream) -> Result<u64, String> {
    let mut received = 0;
    while let Some(chunk) = poll_fn(|context| stream.as_mut().poll_next(context)).await {
        received += chunk.map_err(|error| error.to_string())?.len() as u64;
    }
    Ok(received)
}

fn expect(found: u64, expected: u64, what: &str) -> Result<u64, String> {
    if found == expected { Ok(found) } else { Err(format!("{found} {what} where {expected} were written")) }
}

fn deleted(answer: &DeleteAnswer) -> Result<(), String> {
    match answer {
        DeleteAnswer::Deleted | DeleteAnswer::Absent => Ok(()),
        DeleteAnswer::Away(why) | DeleteAnswer::Unknown(why) | DeleteAnswer::Refused(why) => Err(why.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::{length, noise, read_objects, stamp};
    use s3o_backend::body;

    #[test]
    fn bodies_differ_by_their_number() {
        let (mut one, mut two) = (noise(32), noise(32));
        assert_eq!(one, two);
        stamp(&mut one, 1);
        stamp(&mut two, 2);
        assert_ne!(one, two);
        let mut short = [0; 1];
        stamp(&mut short, 0x0102);
        assert_eq!(short, [2]);
    }

    #[test]
    fn read_objects_are_limited_by_size_and_count() {
        assert_eq!([read_objects(0), read_objects(4096), read_objects(1 << 20)], [1000, 1000, 64]);
        assert_eq!(read_objects(1 << 30), 1);
    }

    #[tokio::test]
    async fn length_reads_a_body_to_its_end() {
        assert_eq!(length(body::whole(vec![0; 5].into())).await, Ok(5));
        assert_eq!(length(body::empty()).await, Ok(0));
        assert!(length(body::exactly(body::whole(vec![0; 5].into()), 6)).await.is_err());
    }
}
