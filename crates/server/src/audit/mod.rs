//! The audit trail: one JSON object a line, appended to a file of this instance.
//!
//! Requests do not wait for the disk: lines go to a bounded queue that one thread writes out. When
//! the queue is full, those who wait can wait a moment for room; a line that is lost all the same
//! is counted in `s3o_audit_dropped_total`, never passed over in silence. A worker does wait: its run goes on, and ends,
//! when what it did is in the file.

mod escape;
mod queue;
mod tail;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use async_trait::async_trait;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use s3o_engine::{Orphan, OrphanAlarm};
use s3o_model::clock::{Clock, Timestamp};
use s3o_model::names::BackendName;
use s3o_workers::{Alarm, ClockAlarm, Event, RunObserver, RunReport};
use serde::Serialize;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

use queue::Queue;
pub use tail::{Filter, InvalidSince};

/// What an event belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause<'a> {
    /// A request, by its identifier.
    Request(&'a str),
    /// A run of a worker, by its identifier.
    Run(&'a str),
    /// Nothing but the program itself.
    Program,
}

#[derive(Serialize)]
struct Line<'a, F> {
    time: String,
    event: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<&'a str>,
    actor: &'a str,
    #[serde(flatten)]
    fields: &'a F,
}

#[derive(Serialize)]
struct Run<'a> {
    worker: &'a str,
    outcome: &'a str,
    items: &'a BTreeMap<&'static str, u64>,
    started_at: &'a str,
    error: Option<&'a str>,
}

impl<'a> Run<'a> {
    fn of(run: &'a RunReport) -> Self {
        let (outcome, error) = (run.outcome.as_str(), run.error.as_deref());
        Self { worker: run.worker, outcome, items: &run.items, started_at: &run.started_at, error }
    }
}

/// The audit trail of this instance.
pub struct Audit {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    queue: Arc<Queue>,
    dropped: Counter,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Audit {
    /// Opens the file, and the folders above it, for appending.
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let file = writer::open(path)?;
        let (queue, dropped) = (Arc::new(Queue::default()), Counter::default());
        let (queue_of_writer, dropped_of_writer) = (Arc::clone(&queue), dropped.clone());
        let writer = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer::run(&queue_of_writer, file, &dropped_of_writer))?;
        Ok(Self { path: path.to_owned(), clock, queue, dropped, writer: Mutex::new(Some(writer)) })
    }

    /// Shows how many lines were lost to whoever reads the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("s3o_audit_dropped", "Audit lines that could not be kept", self.dropped.clone());
    }

    /// Notes an event. It returns at once; see [`Audit::room`].
    pub fn record(&self, event: &str, cause: Cause<'_>, actor: &str, fields: &impl Serialize) {
        let (request_id, run_id) = match cause {
            Cause::Request(id) => (Some(id), None),
            Cause::Run(id) => (None, Some(id)),
            Cause::Program => (None, None),
        };
        let line = Line { time: text_of(self.clock.now()), event, request_id, run_id, actor, fields };
        let kept = escape::to_line(&line).is_ok_and(|mut text| {
            text.push(b'\n');
            self.queue.push(&text)
        });
        if !kept {
            self.dropped.inc();
        }
    }

    /// Waits, a moment at most, until the queue has room: whoever can wait does so between events.
    pub async fn room(&self) {
        self.queue.room().await;
    }

    /// Notes a run of a worker that did something or did not end well.
    pub fn worker_run(&self, run: &RunReport) {
        if run.is_notable() {
            self.record("worker.run", Cause::Run(&run.run_id), run.worker, &Run::of(run));
        }
    }

    /// Notes that a backend takes no more writes, and why.
    pub fn backend_frozen(&self, backend: &str, reason: &str) {
        self.record("backend.frozen", Cause::Program, "identity", &json!({"backend": backend, "reason": reason}));
    }

    /// Notes that an operator accepted a backend as it was found.
    pub fn backend_accepted(&self, backend: &str, found: Option<&str>, cause: Cause<'_>) {
        self.record("backend.accepted", cause, "admin", &json!({"backend": backend, "found": found}));
    }

    /// Notes that an operator dismissed what a host found at a backend.
    pub fn backend_dismissed(&self, backend: &str, host: &str, cause: Cause<'_>) {
        self.record("backend.dismissed", cause, "admin", &json!({"backend": backend, "host": host}));
    }

    /// Records that an operator confirmed the clock, and why it was not trusted.
    pub fn clock_accepted_by(&self, held: Option<&str>, cause: Cause<'_>) {
        self.record("clock.accepted", cause, "admin", &json!({"reason": held}));
    }

    /// Opens the file anew, for a rotation that moved it away; lines noted before go to the old one.
    pub fn reopen(&self) -> io::Result<()> {
        self.queue.switch_to(writer::open(&self.path)?);
        Ok(())
    }

    /// Waits until everything noted so far was handed to the system.
    pub fn flush(&self) {
        self.queue.flush();
    }

    /// The same for those who must not hold up a thread.
    async fn written(&self) {
        self.queue.written().await;
    }

    /// Writes out what is left and ends the writer; what is noted later is counted as lost.
    pub fn close(&self) {
        self.queue.close();
        let writer = self.writer.lock().take();
        if writer.is_some_and(|writer| writer.join().is_err()) {
            tracing::error!("the audit writer panicked");
        }
    }

    /// The latest lines that a filter lets pass, newest last.
    pub fn latest(&self, filter: &Filter) -> io::Result<Vec<serde_json::Value>> {
        self.flush();
        tail::read(&self.path, filter)
    }
}

/// A moment in RFC 3339, always as long, so that lines sort by it as text.
fn text_of(moment: Timestamp) -> String {
    const FORMAT: &[BorrowedFormatItem<'_>] =
        format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    let nanos = i128::from(moment.millis()) * 1_000_000;
    let text = OffsetDateTime::from_unix_timestamp_nanos(nanos).ok().and_then(|moment| moment.format(FORMAT).ok());
    text.unwrap_or_else(|| moment.to_string())
}

impl Alarm for Audit {
    fn frozen(&self, backend: &BackendName, reason: &str) {
        self.backend_frozen(&backend.to_string(), reason);
    }
}

impl ClockAlarm for Audit {
    fn clock_frozen(&self, reason: &str) {
        self.record("clock.frozen", Cause::Program, "clock", &json!({"reason": reason}));
    }

    fn clock_accepted(&self, witness: &str) {
        self.record("clock.accepted", Cause::Program, "clock", &json!({"reason": witness}));
    }
}

impl OrphanAlarm for Audit {
    fn orphaned(&self, orphan: &Orphan<'_>) {
        let Orphan { backend, physical_key, size_bytes, bucket, key, error } = orphan;
        let fields = json!({
            "backend": backend, "physical_key": physical_key, "size_bytes": size_bytes,
            "bucket": bucket, "key": key, "error": error,
        });
        self.record("storage.OrphanEnqueueFailed", Cause::Program, "engine", &fields);
    }
}

#[async_trait]
impl RunObserver for Audit {
    async fn happened(&self, worker: &'static str, run_id: &str, events: Vec<Event>) {
        for event in &events {
            self.room().await;
            self.record(event.name, Cause::Run(run_id), worker, event);
        }
        self.written().await;
    }

    async fn observed(&self, run: &RunReport) {
        self.worker_run(run);
        self.written().await;
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.close();
    }
}
