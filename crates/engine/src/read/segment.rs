//! Opens copies of a content, and chooses the next one if a copy fails.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use s3o_backend::fleet::CallKind;
use s3o_backend::{ByteStream, Error as BackendError, SharedBackend, Span};
use s3o_model::circuit::CircuitState;
use s3o_model::content::{CopyTrust, Location, Piece, ReadableCopy};
use s3o_model::ids::ContentId;
use s3o_model::names::BackendName;
use s3o_model::range::ByteRange;
use s3o_model::target::KeyVersion;
use s3o_model::usage::{ReachedLimit, UsagePurpose};

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

/// Copies of a segment that were skipped for now.
#[derive(Debug, Default)]
struct SkippedCopies {
    /// Copies whose first byte was late.
    late: VecDeque<ReadableCopy>,
    /// Copies on backends whose usage limit is reached.
    limited: VecDeque<ReadableCopy>,
    /// The limit of the last of these.
    limit: Option<ReachedLimit>,
}

impl SkippedCopies {
    /// Takes the next copy to open. Late copies are tried again before less trusted ones. A suspect copy is not opened
    /// instead of a better one that only a usage limit forbids to read: its bytes may be wrong.
    fn next(&mut self, copies: &mut VecDeque<ReadableCopy>) -> Option<ReadableCopy> {
        if self.limit.is_some() {
            copies.retain(|copy| copy.trust < CopyTrust::Suspect);
        }
        let is_late_better =
            self.late.front().is_some_and(|late| copies.front().is_none_or(|copy| late.trust < copy.trust));
        if is_late_better { self.late.pop_front() } else { copies.pop_front() }
    }

    /// Returns the skipped copies to the segment, for the case that the open one fails.
    fn put_back(&mut self, copies: &mut VecDeque<ReadableCopy>) {
        copies.append(&mut self.late);
        copies.append(&mut self.limited);
    }
}

/// What one read has met so far.
#[derive(Debug, Default)]
pub(crate) struct ReadHistory {
    /// Copies of the current segment that were opened, the first one first.
    opened: Vec<Location>,
    /// Backends whose first or next byte was late: the segments that follow try them last.
    late: Vec<BackendName>,
    /// True once a copy was open: a response that has begun is finished, whatever the usage limits.
    has_begun: bool,
}

impl ReadHistory {
    pub(super) fn begin_segment(&mut self) {
        self.opened.clear();
    }

    /// The copies of the last segment that were opened, the first one first.
    pub(crate) fn opened(&self) -> &[Location] {
        &self.opened
    }
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
    /// circuit are tried last, and before them those on backends whose usage limit is reached, and slow ones. A copy
    /// whose first byte is late is tried again without a timeout if its equals fail. Only a read that has begun opens
    /// copies beyond a usage limit.
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
                skipped.limit = Some(limit);
                skipped.limited.push_back(copy);
                continue;
            }
            let timeout = self.first_byte_timeout(segment.copies.iter(), copy.trust);
            match self.open_copy(backend, location.key_version(), segment.span, timeout).await {
                Some(Ok(stream)) => {
                    history.opened.push(copy.location.clone());
                    segment.open = Some(copy);
                    skipped.put_back(&mut segment.copies);
                    return Ok(stream);
                }
                Some(Err(error)) => failure = self.unreadable(segment, location, error).await,
                None => {
                    history.late.push(location.backend.clone());
                    skipped.late.push_back(copy);
                }
            }
        }
        Err(skipped.limit.map_or(failure, Error::LimitReached))
    }

    fn sort_copies(&self, segment: &mut Segment, history: &ReadHistory) {
        let order = |copy: &ReadableCopy| {
            let name = &copy.location.backend;
            let is_late = history.late.contains(name) || self.fleet.is_slow(name);
            (copy.trust, self.is_open(name), self.limit_of(name).is_some(), is_late)
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
        self.fleet.record_first_byte(backend, false);
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
        let opened = tokio::time::timeout(timeout, first_byte(backend, at, span)).await.ok();
        self.fleet.record_first_byte(backend.name(), opened.is_some());
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
