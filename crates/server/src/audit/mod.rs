//! The audit log: one JSON object per line, appended to a file of this instance.
//!
//! Requests do not wait for the disk: lines are pushed to a bounded queue that one thread writes to the file. While the
//! queue is nearly full, callers that can wait do so for up to a second. A line that does not fit is counted in
//! `s3o_audit_dropped_total`. Workers wait for the file: a run continues, and ends, only after its lines are written.

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
use s3o_workers::{ClockAlarm, Event, FreezeObserver, RunObserver, RunReport};
use serde::Serialize;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

use queue::LineQueue;
pub use tail::{AuditFilter, InvalidSince};

/// What caused an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause<'a> {
    /// A request, by its ID.
    Request(&'a str),
    /// A run of a worker, by its ID.
    Run(&'a str),
    /// The process itself, such as a reload or a health check.
    Program,
}

#[derive(Serialize)]
struct AuditLine<'a, F> {
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
struct RunFields<'a> {
    worker: &'a str,
    outcome: &'a str,
    items: &'a BTreeMap<&'static str, u64>,
    started_at: &'a str,
    error: Option<&'a str>,
}

impl<'a> RunFields<'a> {
    fn new(run: &'a RunReport) -> Self {
        let (outcome, error) = (run.outcome.as_str(), run.error.as_deref());
        Self { worker: run.worker, outcome, items: &run.items, started_at: &run.started_at, error }
    }
}

/// The audit log of this instance.
pub struct Audit {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    queue: Arc<LineQueue>,
    dropped: Counter,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Audit {
    /// Opens the file for appending; creates it and its parent folders if they do not exist.
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let file = writer::open(path)?;
        let (queue, dropped) = (Arc::new(LineQueue::default()), Counter::default());
        let (writer_queue, writer_dropped) = (Arc::clone(&queue), dropped.clone());
        let writer = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer::run(&writer_queue, file, &writer_dropped))?;
        Ok(Self { path: path.to_owned(), clock, queue, dropped, writer: Mutex::new(Some(writer)) })
    }

    /// Registers `s3o_audit_dropped_total`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "s3o_audit_dropped",
            "Audit lines lost because the queue was full or the file could not be written",
            self.dropped.clone(),
        );
    }

    /// Queues a line and returns at once; see [`Audit::wait_for_capacity`].
    pub fn record(&self, event: &str, cause: Cause<'_>, actor: &str, fields: &impl Serialize) {
        let (request_id, run_id) = match cause {
            Cause::Request(id) => (Some(id), None),
            Cause::Run(id) => (None, Some(id)),
            Cause::Program => (None, None),
        };
        let line = AuditLine { time: rfc3339(self.clock.now()), event, request_id, run_id, actor, fields };
        let is_queued = escape::to_line(&line).is_ok_and(|mut text| {
            text.push(b'\n');
            self.queue.push(&text)
        });
        if !is_queued {
            self.dropped.inc();
        }
    }

    /// Waits up to a second while the queue is nearly full. Callers that can wait call it between events.
    pub async fn wait_for_capacity(&self) {
        self.queue.wait_for_capacity().await;
    }

    /// Records a run of a worker that changed something or failed.
    pub fn worker_run(&self, run: &RunReport) {
        if run.is_notable() {
            self.record("worker.run", Cause::Run(&run.run_id), run.worker, &RunFields::new(run));
        }
    }

    /// Records that a backend takes no more writes, and why.
    pub fn backend_frozen(&self, backend: &str, reason: &str) {
        self.record("backend.frozen", Cause::Program, "identity", &json!({"backend": backend, "reason": reason}));
    }

    /// Records that an operator accepted a backend as it was found.
    pub fn backend_accepted(&self, backend: &str, found: Option<&str>, cause: Cause<'_>) {
        self.record("backend.accepted", cause, "admin", &json!({"backend": backend, "found": found}));
    }

    /// Records that an operator dismissed what a host found at a backend.
    pub fn backend_dismissed(&self, backend: &str, host: &str, cause: Cause<'_>) {
        self.record("backend.dismissed", cause, "admin", &json!({"backend": backend, "host": host}));
    }

    /// Records that an operator started or cancelled the drain of a backend, or removed it.
    pub fn backend_changed(&self, event: &'static str, backend: &str, cause: Cause<'_>) {
        self.record(event, cause, "admin", &json!({"backend": backend}));
    }

    /// Records that an operator confirmed the clock, and why it was not trusted.
    pub fn clock_accepted_by(&self, held: Option<&str>, cause: Cause<'_>) {
        self.record("clock.accepted", cause, "admin", &json!({"reason": held}));
    }

    /// Opens the file again after a log rotation renamed it. Earlier lines are written to the old file.
    pub fn reopen(&self) -> io::Result<()> {
        self.queue.switch_to(writer::open(&self.path)?);
        Ok(())
    }

    /// Blocks until every line recorded so far is written, up to 10 s.
    pub fn flush(&self) {
        self.queue.flush();
    }

    /// Like [`Self::flush`], without blocking the thread.
    async fn written(&self) {
        self.queue.written().await;
    }

    /// Writes the remaining lines and ends the writer thread. Lines recorded later count as lost.
    pub fn close(&self) {
        self.queue.close();
        let writer = self.writer.lock().take();
        if writer.is_some_and(|writer| writer.join().is_err()) {
            tracing::error!("audit writer panicked, later audit lines are lost");
        }
    }

    /// The newest lines that match a filter, newest last.
    pub fn latest(&self, filter: &AuditFilter) -> io::Result<Vec<serde_json::Value>> {
        self.flush();
        tail::read(&self.path, filter)
    }
}

/// RFC 3339 with milliseconds: a fixed length, so that lines sort by time as text.
fn rfc3339(moment: Timestamp) -> String {
    const FORMAT: &[BorrowedFormatItem<'_>] =
        format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    let nanos = i128::from(moment.millis()) * 1_000_000;
    let text = OffsetDateTime::from_unix_timestamp_nanos(nanos).ok().and_then(|moment| moment.format(FORMAT).ok());
    text.unwrap_or_else(|| moment.to_string())
}

impl FreezeObserver for Audit {
    fn frozen(&self, backend: &BackendName, reason: &str) {
        self.backend_frozen(&backend.to_string(), reason);
    }
}

impl ClockAlarm for Audit {
    fn clock_frozen(&self, reason: &str) {
        self.record("clock.frozen", Cause::Program, "clock", &json!({"reason": reason}));
    }

    fn clock_accepted(&self, confirmed_by: &str) {
        self.record("clock.accepted", Cause::Program, "clock", &json!({"reason": confirmed_by}));
    }
}

impl OrphanAlarm for Audit {
    fn orphaned(&self, orphan: &Orphan<'_>) {
        let Orphan { backend, physical_key, size_bytes, object, error } = orphan;
        let mut fields = json!({
            "backend": backend, "physical_key": physical_key, "size_bytes": size_bytes, "error": error,
        });
        if let Some((bucket, key)) = object {
            (fields["bucket"], fields["key"]) = (json!(bucket), json!(key));
        }
        self.record("storage.OrphanEnqueueFailed", Cause::Program, "engine", &fields);
    }
}

#[async_trait]
impl RunObserver for Audit {
    async fn happened(&self, worker: &'static str, run_id: &str, events: Vec<Event>) {
        for event in &events {
            self.wait_for_capacity().await;
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
