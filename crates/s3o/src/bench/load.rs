//! Load: so many connections that each send one request after another.
//!
//! The only place of this room that starts tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::figures::Tally;
use super::plan::{Cell, Operation, Workload};
use super::target::{Request, Target};
use crate::cli::Failure;

/// Connections that write what a cell needs beforehand.
const SETUP_CONCURRENCY: usize = 16;
/// How long a given number of requests may take.
const SEND_MAX: Duration = Duration::from_mins(10);

/// When a load ends: whichever comes first.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// How long requests are begun.
    pub duration: Duration,
    /// How many are made.
    pub operations_max: u64,
}

/// Where the requests of a load come from.
#[derive(Debug)]
enum Source {
    /// A kind of load, made up as it goes.
    Workload { cell: Cell, spare: Mutex<Vec<String>> },
    /// Requests to send, once each.
    Requests(Vec<Request>),
}

#[derive(Debug)]
struct Load {
    target: Arc<Target>,
    source: Source,
    size_bytes: u64,
    begun: AtomicU64,
    bounds: Bounds,
    deadline: Instant,
}

impl Load {
    /// The next request, unless there is none left.
    fn next(&self) -> Option<Request> {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        if number >= self.bounds.operations_max || Instant::now() >= self.deadline {
            return None;
        }
        match &self.source {
            Source::Requests(requests) => requests.get(usize::try_from(number).ok()?).cloned(),
            Source::Workload { cell, spare } => self.request(cell, spare, number),
        }
    }

    fn request(&self, cell: &Cell, spare: &Mutex<Vec<String>>, number: u64) -> Option<Request> {
        let read_key = || self.target.read_key(self.size_bytes, number);
        match cell.workload.operation(number) {
            Operation::Put => Some(Request::Put(self.target.fresh_key())),
            Operation::Get => Some(Request::Get(read_key())),
            Operation::Head => Some(Request::Head(read_key())),
            Operation::List => Some(Request::List),
            Operation::Delete => match spare.lock().pop() {
                Some(key) => Some(Request::Delete(key)),
                // A mixed load makes what it deletes; a pure one ends when all is gone.
                None if cell.workload == Workload::Mixed => Some(Request::Put(self.target.fresh_key())),
                None => None,
            },
        }
    }

    /// What a mixed load wrote is there to be deleted by it.
    fn settle(&self, request: Request) {
        if let (Request::Put(key), Source::Workload { cell, spare }) = (request, &self.source)
            && cell.workload == Workload::Mixed
        {
            spare.lock().push(key);
        }
    }

    async fn send_all(self: Arc<Self>) -> Tally {
        let mut tally = Tally::default();
        while let Some(request) = self.next() {
            let began = Instant::now();
            match self.target.perform(&request, self.size_bytes).await {
                Ok(body_bytes) => {
                    tally.succeeded(began.elapsed(), body_bytes);
                    self.settle(request);
                }
                Err(why) => tally.failed(why),
            }
        }
        tally
    }

    async fn run(self, concurrency: usize) -> Result<Tally, Failure> {
        let load = Arc::new(self);
        let mut connections = JoinSet::new();
        for _ in 0..concurrency {
            connections.spawn(Arc::clone(&load).send_all());
        }
        let mut sum = Tally::default();
        while let Some(joined) = connections.join_next().await {
            sum.merge(joined.map_err(|error| Failure::of("a connection", error))?);
        }
        Ok(sum)
    }
}

/// Runs one cell. `spare` are keys that it may delete.
pub async fn run(target: &Arc<Target>, cell: Cell, bounds: Bounds, spare: Vec<String>) -> Result<Tally, Failure> {
    let source = Source::Workload { cell, spare: Mutex::new(spare) };
    load(target, source, cell.size_bytes, bounds).run(cell.concurrency).await
}

/// Writes objects that are needed later; each must succeed.
pub async fn write(target: &Arc<Target>, keys: Vec<String>, size_bytes: u64) -> Result<(), Failure> {
    let expected = keys.len();
    let requests = keys.into_iter().map(Request::Put).collect();
    let tally = send(target, requests, size_bytes, SETUP_CONCURRENCY).await?;
    match tally.first_error {
        Some(why) => Err(Failure::of("writing what is needed later", why)),
        None if tally.latencies.len() < expected => {
            Err(Failure::Failed(format!("only {} of {expected} objects were written in time", tally.latencies.len())))
        }
        None => Ok(()),
    }
}

/// Sends every one of these requests.
pub async fn send(
    target: &Arc<Target>,
    requests: Vec<Request>,
    size_bytes: u64,
    concurrency: usize,
) -> Result<Tally, Failure> {
    let bounds = Bounds { duration: SEND_MAX, operations_max: u64::MAX };
    load(target, Source::Requests(requests), size_bytes, bounds).run(concurrency).await
}

fn load(target: &Arc<Target>, source: Source, size_bytes: u64, bounds: Bounds) -> Load {
    let target = Arc::clone(target);
    Load { target, source, size_bytes, begun: AtomicU64::new(0), bounds, deadline: Instant::now() + bounds.duration }
}
