//! Runs a workload: each connection sends one request after another.
//!
//! The only module of this crate that starts tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::endpoint::{Endpoint, LoadRequest};
use super::figures::LoadStats;
use super::plan::{Cell, LoadOperation, Workload};
use super::transfer::{StoreTransfer, TransferItem};
use crate::Error;

/// Number of connections that write the objects that a cell needs.
const SETUP_CONCURRENCY: usize = 16;
/// Time limit for a fixed list of requests.
const SEND_MAX: Duration = Duration::from_mins(10);

/// A load ends when it reaches the first of these limits.
#[derive(Debug, Clone, Copy)]
pub struct LoadBounds {
    /// No request starts after this time.
    pub duration: Duration,
    /// Number of requests.
    pub operations_max: u64,
}

/// Where a load takes its requests from.
#[derive(Debug)]
enum RequestSource {
    /// Generated from a workload.
    Workload { cell: Cell, spare: Mutex<Vec<String>> },
    /// A list; each request is sent once.
    Requests(Vec<LoadRequest>),
}

#[derive(Debug)]
struct Load {
    endpoint: Arc<Endpoint>,
    source: RequestSource,
    size_bytes: u64,
    begun: AtomicU64,
    bounds: LoadBounds,
    deadline: Instant,
}

impl Load {
    /// The next request; `None` if the load is at its end.
    fn next(&self) -> Option<LoadRequest> {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        if number >= self.bounds.operations_max || Instant::now() >= self.deadline {
            return None;
        }
        match &self.source {
            RequestSource::Requests(requests) => requests.get(usize::try_from(number).ok()?).cloned(),
            RequestSource::Workload { cell, spare } => self.request(cell, spare, number),
        }
    }

    fn request(&self, cell: &Cell, spare: &Mutex<Vec<String>>, number: u64) -> Option<LoadRequest> {
        let read_key = || self.endpoint.read_key(self.size_bytes, number);
        match cell.workload.operation(number) {
            LoadOperation::Put => Some(LoadRequest::Put(self.endpoint.fresh_key())),
            LoadOperation::Get => Some(LoadRequest::Get(read_key())),
            LoadOperation::Head => Some(LoadRequest::Head(read_key())),
            LoadOperation::List => Some(LoadRequest::List),
            LoadOperation::Delete => match spare.lock().pop() {
                Some(key) => Some(LoadRequest::Delete(key)),
                // The mixed workload writes an object to delete later; the DELETE workload ends.
                None if cell.workload == Workload::Mixed => Some(LoadRequest::Put(self.endpoint.fresh_key())),
                None => None,
            },
        }
    }

    /// The mixed workload may delete the objects that it wrote.
    fn settle(&self, request: LoadRequest) {
        if let (LoadRequest::Put(key), RequestSource::Workload { cell, spare }) = (request, &self.source)
            && cell.workload == Workload::Mixed
        {
            spare.lock().push(key);
        }
    }

    async fn send_all(self: Arc<Self>) -> LoadStats {
        let mut stats = LoadStats::default();
        while let Some(request) = self.next() {
            let began = Instant::now();
            match self.endpoint.perform(&request, self.size_bytes).await {
                Ok(body_bytes) => {
                    stats.succeeded(began.elapsed(), body_bytes);
                    self.settle(request);
                }
                Err(why) => stats.failed(why),
            }
        }
        stats
    }

    async fn run(self, concurrency: usize) -> Result<LoadStats, Error> {
        let load = Arc::new(self);
        let mut connections = JoinSet::new();
        for _ in 0..concurrency {
            connections.spawn(Arc::clone(&load).send_all());
        }
        joined(connections).await
    }
}

/// Runs one cell. It may delete the objects under the `spare` keys.
pub async fn run(
    endpoint: &Arc<Endpoint>,
    cell: Cell,
    bounds: LoadBounds,
    spare: Vec<String>,
) -> Result<LoadStats, Error> {
    let source = RequestSource::Workload { cell, spare: Mutex::new(spare) };
    load(endpoint, source, cell.size_bytes, bounds).run(cell.concurrency).await
}

/// Writes objects that a cell needs; fails if one of them fails.
pub async fn write(endpoint: &Arc<Endpoint>, keys: Vec<String>, size_bytes: u64) -> Result<(), Error> {
    let expected = keys.len();
    let requests = keys.into_iter().map(LoadRequest::Put).collect();
    let stats = send(endpoint, requests, size_bytes, SETUP_CONCURRENCY).await?;
    match stats.first_error {
        Some(why) => Err(Error::of("cannot write objects for a later cell", why)),
        None if stats.latencies.len() < expected => {
            Err(Error::Failed(format!("only {} of {expected} objects were written in time", stats.latencies.len())))
        }
        None => Ok(()),
    }
}

/// Sends all these requests.
pub async fn send(
    endpoint: &Arc<Endpoint>,
    requests: Vec<LoadRequest>,
    size_bytes: u64,
    concurrency: usize,
) -> Result<LoadStats, Error> {
    let bounds = LoadBounds { duration: SEND_MAX, operations_max: u64::MAX };
    load(endpoint, RequestSource::Requests(requests), size_bytes, bounds).run(concurrency).await
}

/// Copies all these objects.
pub async fn transfer(
    transfer: &Arc<StoreTransfer>,
    items: Vec<TransferItem>,
    concurrency: usize,
) -> Result<LoadStats, Error> {
    let (items, next) = (Arc::new(items), Arc::new(AtomicUsize::new(0)));
    let mut connections = JoinSet::new();
    for _ in 0..concurrency {
        let (transfer, items, next) = (Arc::clone(transfer), Arc::clone(&items), Arc::clone(&next));
        connections.spawn(async move {
            let mut stats = LoadStats::default();
            while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                let began = Instant::now();
                match transfer.copy(item).await {
                    Ok(body_bytes) => stats.succeeded(began.elapsed(), body_bytes),
                    Err(why) => stats.failed(why),
                }
            }
            stats
        });
    }
    joined(connections).await
}

/// The counts of all connections together.
async fn joined(mut connections: JoinSet<LoadStats>) -> Result<LoadStats, Error> {
    let mut sum = LoadStats::default();
    while let Some(joined) = connections.join_next().await {
        sum.merge(joined.map_err(|error| Error::of("connection task failed", error))?);
    }
    Ok(sum)
}

fn load(endpoint: &Arc<Endpoint>, source: RequestSource, size_bytes: u64, bounds: LoadBounds) -> Load {
    let endpoint = Arc::clone(endpoint);
    Load { endpoint, source, size_bytes, begun: AtomicU64::new(0), bounds, deadline: Instant::now() + bounds.duration }
}
