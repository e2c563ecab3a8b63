//! Opens copies of a content, and chooses the next one if a copy fails.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use s3o_backend::fleet::{CallKind, ReadInProgress};
use s3o_backend::{ByteStream, Error as BackendError, SharedBackend, Span};
use s3o_model::circuit::CircuitState;
use s3o_model::content::{CopyTrust, Location, Piece, ReadableCopy};
use s3o_model::ids::ContentId;
use s3o_model::names::BackendName;
use s3o_model::range::ByteRange;
use s3o_model::target::KeyVersion;
use s3o_model::usage::{ReachedLimit, UsagePurpose};

use super::history::{ReadHistory, SkippedCopies};
use crate::{BackendTrouble, Engine, Error};

/// A span of one whole content that is not sent yet.
#[derive(Debug, Clone)]
pub(super) struct Segment {
    content: ContentId,
    /// Size of the whole content.
    size_bytes: u64,
    /// Copies that were not tried yet.
    copies: VecDeque<ReadableCopy>,
    /// Copies that failed, or whose first byte was late.
    tried: Vec<Location>,
    /// The copy that was opened last.
    open: Option<ReadableCopy>,
    pub(super) span: Span,
}

impl Segment {
    pub(super) fn of_piece(piece: &Piece, range: ByteRange) -> Option<Self> {
        let overlap = range.overlap(piece.start, piece.length)?;
        let span = Span { offset: piece.offset + (overlap.start - piece.start), length: overlap.length };
        Some(Self::new((piece.whole, piece.whole_bytes), piece.copies.clone(), span))
    }

    pub(super) fn new((content, size_bytes): (ContentId, u64), copies: Vec<ReadableCopy>, span: Span) -> Self {
        Self { content, size_bytes, copies: copies.into(), tried: Vec::new(), open: None, span }
    }

    pub(super) fn advance(&mut self, bytes: u64) {
        self.span.offset += bytes;
        self.span.length -= bytes.min(self.span.length);
    }
}

impl Engine {
    /// Opens a copy of a segment; fails with `failure` if none can be read. When no copy is left, the catalog may know
    /// others by now: a worker may have moved them.
    pub(super) async fn open_segment(
        &self,
        segment: &mut Segment,
        history: &mut ReadHistory,
        mut failure: Error,
    ) -> Result<ByteStream, Error> {
        loop {
            failure = match self.open_known(segment, history, failure).await {
                Ok(stream) => {
                    history.has_begun = true;
                    return Ok(stream);
                }
                // A suspect copy does not replace a good one that is merely too expensive.
                Err(limit @ Error::LimitReached(_)) => return Err(limit),
                Err(error) => error,
            };
            let Ok(known) = self.catalog.readable_copies(segment.content).await else { return Err(failure) };
            segment.copies = known.into_iter().filter(|copy| !segment.tried.contains(&copy.location)).collect();
            if segment.copies.is_empty() {
                return Err(failure);
            }
        }
    }

    /// Opens the first known copy that is readable, the most trusted ones first. Among equals, copies behind an open
    /// circuit are tried last, and before them those on backends whose usage limit is reached, and slow ones. The
    /// others are ordered by the latency of their backends, and among equally fast ones by the reads in progress there.
    /// A copy whose first byte is late is tried again without a timeout if its equals fail. Only a read that has begun
    /// opens copies beyond a usage limit. If suspect copies are damaged, the error of a better copy is returned, if
    /// there is one: it may have the bytes.
    async fn open_known(
        &self,
        segment: &mut Segment,
        history: &mut ReadHistory,
        mut failure: Error,
    ) -> Result<ByteStream, Error> {
        self.sort_copies(segment, history);
        let mut skipped = SkippedCopies::default();
        while let Some(copy) = skipped.next(&mut segment.copies) {
            let location = &copy.location;
            segment.tried.push(location.clone());
            let Some(backend) = self.fleet.get(&location.backend) else {
                failure = unavailable(BackendTrouble::NotConfigured, location.backend.to_string());
                continue;
            };
            if let Some(limit) = self.limit_of(&location.backend).filter(|_| !history.has_begun) {
                skipped.skip_limited(copy, limit);
                continue;
            }
            if let Err(error) = self.verify_suspect(segment.content, &copy, segment.size_bytes).await {
                failure = if matches!(failure, Error::Damaged(_)) { error } else { failure };
                continue;
            }
            let timeout = self.first_byte_timeout(segment.copies.iter(), copy.trust);
            let is_one_of_several = segment.tried.len() + segment.copies.len() > 1;
            let read = self.fleet.begin_read(&location.backend).filter(|_| is_one_of_several);
            match self.open_copy(backend, location.key_version(), segment.span, timeout).await {
                Some(Ok(stream)) => {
                    history.opened.push(copy.location.clone());
                    segment.open = Some(copy);
                    skipped.put_back(&mut segment.copies);
                    return Ok(counted(stream, read));
                }
                Some(Err(error)) => failure = self.unreadable(segment, location, error).await,
                None => skipped.skip_late(copy, history),
            }
        }
        Err(skipped.limit.map_or(failure, Error::LimitReached))
    }

    fn sort_copies(&self, segment: &mut Segment, history: &ReadHistory) {
        let order = |copy: &ReadableCopy| {
            let name = &copy.location.backend;
            let is_late = history.late.contains(name) || self.fleet.is_slow(name);
            let is_limited = self.limit_of(name).is_some();
            let load = (self.fleet.latency_class(name), self.fleet.reads_in_progress(name));
            (copy.trust, self.is_open(name), is_limited, is_late, load)
        };
        segment.copies.make_contiguous().sort_by_cached_key(order);
    }

    /// The usage limit of a backend that forbids another read; `None` if none does.
    fn limit_of(&self, backend: &BackendName) -> Option<ReachedLimit> {
        self.fleet.reached_limit(backend, UsagePurpose::Read)
    }

    pub(crate) fn is_open(&self, backend: &BackendName) -> bool {
        self.fleet.circuit(backend, CallKind::Read) == CircuitState::Open
    }

    /// How long to wait for the first byte of a copy; `None` if no other copy that is trusted as much can be read now.
    fn first_byte_timeout<'a>(
        &self,
        mut others: impl Iterator<Item = &'a ReadableCopy>,
        trust: CopyTrust,
    ) -> Option<Duration> {
        let is_usable = |other: &ReadableCopy| {
            let name = &other.location.backend;
            other.trust <= trust
                && self.fleet.get(name).is_some()
                && !self.is_open(name)
                && self.limit_of(name).is_none()
        };
        others.any(is_usable).then(|| self.settings().first_byte_timeout)
    }

    /// How long to wait for the next chunk of the open copy; `None` if no copy that is trusted as much can continue the
    /// body. A copy that was late is no reason to give up another one: the read would alternate between them.
    pub(super) fn stall_timeout(&self, segment: &Segment, history: &ReadHistory) -> Option<Duration> {
        let in_time = |copy: &&ReadableCopy| !history.late.contains(&copy.location.backend);
        self.first_byte_timeout(segment.copies.iter().filter(in_time), segment.open.as_ref()?.trust)
    }

    /// Returns the open copy, whose next chunk is late, to the segment: it is tried again if the others fail.
    pub(super) fn return_stalled(&self, segment: &mut Segment, history: &mut ReadHistory) {
        let Some(copy) = segment.open.take() else { return };
        let Location { backend, physical_key, .. } = &copy.location;
        tracing::warn!(%backend, physical_key, "body of copy stalled, trying next");
        self.fleet.record_first_byte(backend, None);
        history.late.push(backend.clone());
        segment.copies.push_back(copy);
    }

    /// Opens a copy. With a timeout, it waits for the first byte and returns `None` if that takes longer.
    async fn open_copy(
        &self,
        backend: &SharedBackend,
        at: KeyVersion<'_>,
        span: Span,
        timeout: Option<Duration>,
    ) -> Option<Result<ByteStream, BackendError>> {
        let Some(timeout) = timeout else { return Some(backend.get(at, Some(span)).await) };
        let began = self.clock.since_boot();
        let opened = tokio::time::timeout(timeout, first_byte(backend, at, span)).await.ok();
        let took = self.clock.since_boot().saturating_sub(began);
        match &opened {
            // An error says nothing about the latency of bodies.
            Some(Err(_)) => {}
            Some(Ok(_)) => self.fleet.record_first_byte(backend.name(), Some(took)),
            None => self.fleet.record_first_byte(backend.name(), None),
        }
        if opened.is_none() {
            tracing::warn!(backend = %backend.name(), physical_key = at.key, "first byte of copy is late, trying next");
        }
        opened
    }

    /// Reports a copy that cannot be read, and returns the error of the request if there is no other.
    async fn unreadable(&self, segment: &Segment, location: &Location, error: BackendError) -> Error {
        log_unreadable(location, &error);
        if matches!(error, BackendError::Away(_)) {
            self.fleet.suspect(&location.backend);
        }
        self.recheck_copy(segment.content, location, segment.size_bytes, &error).await;
        self.copy_error(location, error)
    }

    /// A frozen backend may be the wrong disk or bucket, so bytes that it lacks are not lost.
    fn copy_error(&self, location: &Location, error: BackendError) -> Error {
        match (self.fleet.frozen_reason(&location.backend), error) {
            (Some(reason), BackendError::NotFound) => {
                unavailable(BackendTrouble::Frozen, format!("{}: {reason}", location.backend))
            }
            // "No space" is no answer to a read.
            (_, BackendError::NoSpace(detail)) => unavailable(BackendTrouble::Unreachable, detail),
            (_, error) => error.into(),
        }
    }
}

/// Opens a copy and waits for its first byte.
async fn first_byte(backend: &SharedBackend, at: KeyVersion<'_>, span: Span) -> Result<ByteStream, BackendError> {
    let mut body = backend.get(at, Some(span)).await?;
    match body.next().await {
        Some(Err(error)) => Err(BackendError::Away(error.to_string())),
        // An exhausted stream must not be polled again.
        first => Ok(Box::pin(stream::iter(first).chain(body.fuse()))),
    }
}

pub(super) fn unavailable(trouble: BackendTrouble, detail: String) -> Error {
    Error::Unavailable { trouble, detail }
}

fn log_unreadable(location: &Location, error: &BackendError) {
    let Location { backend, physical_key, .. } = location;
    tracing::warn!(%backend, physical_key, %error, "copy unreadable, trying next");
}

/// The stream with a read, if any, that is in progress until the stream is dropped.
fn counted(stream: ByteStream, read: Option<ReadInProgress>) -> ByteStream {
    let Some(read) = read else { return stream };
    Box::pin(stream.map(move |chunk| {
        let _in_progress = &read;
        chunk
    }))
}
