//! An endpoint under load, reached with the client of the `s3` backend.
//!
//! Everything is written below one prefix that is new for every run, and only what lies below it is deleted: a bucket
//! that holds other things keeps them.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use s3o_backend::{Backend as _, ByteStream, DeleteAnswer, Doomed, Error, Probe, S3, S3Options, body};
use s3o_model::clock::SystemClock;
use s3o_model::entropy::{Entropy as _, SeededEntropy, SystemEntropy};

use super::metrics::{Admin, Page};
use super::usage::Usage;
use crate::cli::Failure;
use crate::client::Token;

/// The keys of one page of a listing.
pub const PAGE_KEYS: u64 = 1000;
/// A request that is not answered by then is an error, so that a run ends.
const ANSWER_MAX: Duration = Duration::from_mins(1);
/// Objects that are read: enough that they are not one hot object, few enough to be written quickly.
const READ_BYTES_MAX: u64 = 64 << 20;
const READ_OBJECTS_MAX: u64 = 1000;

/// A request with its object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Write a new object.
    Put(String),
    /// Read a whole object.
    Get(String),
    /// Ask for an object's metadata.
    Head(String),
    /// List one page.
    List,
    /// Delete an object.
    Delete(String),
    /// Delete objects with one request.
    DeleteMany(Vec<String>),
}

/// What is watched while requests are sent.
#[derive(Debug)]
pub struct Watched {
    /// The processes that serve the endpoint.
    pub pids: Vec<u32>,
    /// Their pages of metrics.
    pub metrics: Vec<String>,
    /// What opens the admin API beside the first of them.
    pub token: Option<Token>,
}

/// What an s3o tells of itself, all its instances together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// Catalog transactions that were committed.
    pub commits: u64,
    /// Calls to backends.
    pub calls: u64,
    /// Rows in the cleanup queue.
    pub waiting: u64,
    /// Cleanups that were refused too often.
    pub dead: u64,
}

impl Told {
    fn by(page: &Page) -> Result<Self, String> {
        Ok(Self {
            commits: page.sum("s3o_catalog_commits_total")?,
            // A backend that nothing was asked of tells nothing.
            calls: page.sum("s3o_backend_requests_total").unwrap_or(0),
            waiting: page.sum("s3o_cleanup_queue_depth")?,
            dead: page.sum("s3o_cleanup_dlq_depth")?,
        })
    }

    /// Instances count their own work and share one queue.
    fn and(self, other: Self) -> Self {
        Self {
            commits: self.commits + other.commits,
            calls: self.calls + other.calls,
            waiting: self.waiting.max(other.waiting),
            dead: self.dead.max(other.dead),
        }
    }
}

/// An endpoint under load, of one instance or of several.
#[derive(Debug)]
pub struct Target {
    /// One way to each instance; there is at least one.
    stores: Vec<S3>,
    turn: AtomicUsize,
    prefix: String,
    watched: Watched,
    /// What bodies are cut from; as long as the longest.
    block: Vec<u8>,
    written: AtomicU64,
}

impl Target {
    /// The instances of an endpoint and, where they are known, the processes that serve it. Nothing is sent yet.
    pub fn new(instances: &[S3Options], watched: Watched, body_bytes_max: u64) -> Result<Self, Failure> {
        let stores = instances.iter().map(connect).collect::<Result<Vec<_>, _>>()?;
        if stores.is_empty() {
            return Err(Failure::Failed("no endpoint".to_owned()));
        }
        let prefix = format!("run-{:016x}/", SystemEntropy.next_u64());
        let (turn, written) = (AtomicUsize::new(0), AtomicU64::new(0));
        Ok(Self { stores, turn, prefix, watched, block: noise(body_bytes_max), written })
    }

    /// The instance whose turn it is.
    fn store(&self) -> &S3 {
        &self.stores[self.turn.fetch_add(1, Ordering::Relaxed) % self.stores.len()]
    }

    /// Makes the bucket if it is not there.
    pub async fn open(&self) -> Result<(), String> {
        let made = in_time(self.store().create_bucket()).await;
        // Services answer differently to a bucket that is there; what counts is whether it can be listed.
        let listed = in_time(self.store().list(&self.prefix, None, 1)).await;
        listed.map(drop).map_err(|why| made.err().unwrap_or(why))
    }

    /// What the server has used so far, all its processes together.
    pub fn usage(&self) -> Result<Option<Usage>, Failure> {
        let read = |pid: &u32| Usage::of(*pid).map_err(|error| Failure::of(&format!("process {pid}"), error));
        let each = self.watched.pids.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        Ok(each.into_iter().reduce(Usage::and))
    }

    /// What the server tells of itself, where it does.
    pub async fn told(&self) -> Result<Option<Told>, Failure> {
        let mut sum: Option<Told> = None;
        for url in &self.watched.metrics {
            let page = in_time(Page::read(url)).await.and_then(|page| Told::by(&page));
            let told = page.map_err(|error| Failure::of(url, error))?;
            sum = Some(sum.map_or(told, |sum| sum.and(told)));
        }
        Ok(sum)
    }

    /// Its admin API, where it can be opened.
    pub fn admin(&self) -> Option<Admin> {
        Some(Admin::beside(self.watched.metrics.first()?, self.watched.token.as_ref()?))
    }

    /// A key that was not used before.
    pub fn fresh_key(&self) -> String {
        format!("{}put/{:010}", self.prefix, self.written.fetch_add(1, Ordering::Relaxed))
    }

    /// The key of an object of this size that is there to be read; numbers go round.
    pub fn read_key(&self, size_bytes: u64, number: u64) -> String {
        format!("{}read/{size_bytes}/{:06}", self.prefix, number % read_objects(size_bytes))
    }

    /// The keys of the objects of this size that are there to be read.
    pub fn read_keys(&self, size_bytes: u64) -> Vec<String> {
        (0..read_objects(size_bytes)).map(|number| self.read_key(size_bytes, number)).collect()
    }

    /// The keys of the page that is listed.
    pub fn page_keys(&self) -> Vec<String> {
        (0..PAGE_KEYS).map(|number| format!("{}{number:06}", self.page_prefix())).collect()
    }

    fn page_prefix(&self) -> String {
        format!("{}page/", self.prefix)
    }

    /// Sends a request, reads the whole answer, and tells how many bytes of a body moved.
    pub async fn perform(&self, request: &Request, size_bytes: u64) -> Result<u64, String> {
        in_time(self.exchange(request, size_bytes)).await
    }

    async fn exchange(&self, request: &Request, size_bytes: u64) -> Result<u64, String> {
        let (store, wrong) = (self.store(), |error: Error| error.to_string());
        match request {
            Request::Put(key) => {
                let written = store.put(key, size_bytes, self.body(size_bytes)).await;
                written.map(|written| written.size_bytes).map_err(wrong)
            }
            Request::Get(key) => {
                let received = length(store.get(key, None).await.map_err(wrong)?).await?;
                expect(received, size_bytes, "bytes")
            }
            Request::Head(key) => match store.probe(key).await {
                Probe::Present(present) => expect(present.size_bytes, size_bytes, "bytes").map(|_| 0),
                Probe::Absent => Err("an object is missing".to_owned()),
                Probe::Unknown(why) => Err(why),
            },
            Request::List => {
                let limit = usize::try_from(PAGE_KEYS).unwrap_or(usize::MAX);
                let page = store.list(&self.page_prefix(), None, limit).await.map_err(wrong)?;
                expect(page.items.len() as u64, PAGE_KEYS, "keys").map(|_| 0)
            }
            Request::Delete(key) => remove(store, std::slice::from_ref(key)).await,
            Request::DeleteMany(keys) => remove(store, keys).await,
        }
    }

    /// A body unlike any other of this run.
    fn body(&self, size_bytes: u64) -> ByteStream {
        let length = usize::try_from(size_bytes).unwrap_or(usize::MAX).min(self.block.len());
        let mut bytes = self.block[..length].to_vec();
        stamp(&mut bytes, self.written.fetch_add(1, Ordering::Relaxed));
        body::whole(bytes.into())
    }

    /// Deletes what this run wrote.
    pub async fn empty(&self) -> Result<(), Failure> {
        let left = |why: String| Failure::of(&format!("objects are left below {}", self.prefix), why);
        // What cannot be deleted would be listed again and again, so the first refusal ends this.
        while self.delete_page().await.map_err(left)? {}
        Ok(())
    }

    /// Deletes one page of what this run wrote; says whether there was one.
    async fn delete_page(&self) -> Result<bool, String> {
        let page = in_time(self.store().list(&self.prefix, None, 1000)).await?;
        let doomed = page.items.into_iter().map(|item| Doomed { key: item.key, version_id: None });
        let doomed: Vec<_> = doomed.collect();
        if doomed.is_empty() {
            return Ok(false);
        }
        let answers = in_time(async { Ok::<_, Error>(self.store().delete_batch(&doomed).await) }).await?;
        answers.iter().try_for_each(deleted).map(|()| true)
    }
}

/// One key takes a request of its own, several share one.
async fn remove(store: &S3, keys: &[String]) -> Result<u64, String> {
    let doomed: Vec<_> = keys.iter().map(|key| Doomed { key: key.clone(), version_id: None }).collect();
    store.delete_batch(&doomed).await.iter().try_for_each(deleted).map(|()| 0)
}

fn connect(options: &S3Options) -> Result<S3, Failure> {
    let endpoint = &options.endpoint;
    if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
        return Err(Failure::Failed(format!("{endpoint:?} does not begin with http:// or https://")));
    }
    let name = "bench".parse().map_err(|error| Failure::of("bench", error))?;
    let store = S3::connect(name, options, Arc::new(SystemClock), Arc::new(SystemEntropy));
    store.map_err(|error| Failure::of(endpoint, error))
}

/// An answer, or why there is none.
async fn in_time<T, E: ToString>(answer: impl Future<Output = Result<T, E>>) -> Result<T, String> {
    match tokio::time::timeout(ANSWER_MAX, answer).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer in {} seconds", ANSWER_MAX.as_secs())),
    }
}

fn read_objects(size_bytes: u64) -> u64 {
    (READ_BYTES_MAX / size_bytes.max(1)).clamp(1, READ_OBJECTS_MAX)
}

/// Bytes that do not compress, the same in every run.
fn noise(size_bytes: u64) -> Vec<u8> {
    let source = SeededEntropy::new(0);
    (0..size_bytes.div_ceil(8)).flat_map(|_| source.next_u64().to_le_bytes()).collect()
}

/// Makes a body its own by its number, as far as there is room for it.
fn stamp(bytes: &mut [u8], number: u64) {
    for (byte, stamped) in bytes.iter_mut().zip(number.to_le_bytes()) {
        *byte = stamped;
    }
}

/// Reads a body to its end and tells its length.
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
    fn large_objects_are_few() {
        assert_eq!([read_objects(0), read_objects(4096), read_objects(1 << 20)], [1000, 1000, 64]);
        assert_eq!(read_objects(1 << 30), 1);
    }

    #[tokio::test]
    async fn a_body_is_read_to_its_end() {
        assert_eq!(length(body::whole(vec![0; 5].into())).await, Ok(5));
        assert_eq!(length(body::empty()).await, Ok(0));
        assert!(length(body::exactly(body::whole(vec![0; 5].into()), 6)).await.is_err());
    }
}
