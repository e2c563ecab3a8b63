//! Reads a copy and compares its bytes with the digest of its content. A wrong digest is read a second time.
//!
//! A large copy is read in slices, so that its read can be interrupted between two of them and continued later.

mod hashing;

use std::time::Duration;

use futures_util::StreamExt as _;
use s3o_backend::{Error as BackendError, SharedBackend, Span};
use s3o_catalog::{Error as CatalogError, ScrubCopy};
use s3o_model::content::Location;
use s3o_model::copy_check::CopyState;
use s3o_model::etag::Sha256;
use s3o_model::ids::ContentId;
use s3o_model::scrub::DigestVerdict;
use tokio::time::Instant;

use crate::Engine;
use hashing::{FoundDigests, SliceHasher};

/// Longest time that one slice may take; a store that sends more slowly is read again later.
const SLICE_TIME_MAX: Duration = Duration::from_mins(5);

/// A read of a copy that is under way.
#[derive(Debug)]
pub struct CopyRead {
    copy: ScrubCopy,
    /// Number of bytes after which the read can be interrupted.
    slice_bytes: u64,
    offset: u64,
    hasher: SliceHasher,
    /// The wrong digests of the first read.
    first: Option<FoundDigests>,
}

/// What the bytes of a copy were found to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScrubOutcome {
    /// They have the right digest. The SHA-256 is set if the catalog did not know it.
    Right(Option<Sha256>),
    /// Two reads gave this wrong digest.
    Wrong(String),
    /// Two reads gave different digests.
    ReaderFault(String),
    /// They are missing or have another size, which the catalog knows now.
    Missing,
    /// They could not be read now.
    Unreadable(String),
}

/// Why a slice was not read.
enum SliceFault {
    /// The store answered that it has no such bytes.
    Contradicted,
    Unreadable(String),
}

impl From<BackendError> for SliceFault {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::NotFound | BackendError::Refused(_) => Self::Contradicted,
            error => Self::Unreadable(error.to_string()),
        }
    }
}

impl CopyRead {
    /// A read that has not begun; it can be interrupted after each slice.
    #[must_use]
    pub fn new(copy: ScrubCopy, slice_bytes: u64) -> Self {
        let hasher = SliceHasher::of(&copy);
        Self { copy, slice_bytes, offset: 0, hasher, first: None }
    }

    /// The copy that is read.
    #[must_use]
    pub fn copy(&self) -> &ScrubCopy {
        &self.copy
    }

    fn is_sliced(&self) -> bool {
        self.copy.size_bytes > self.slice_bytes
    }

    /// The next slice; `None` for a copy that is read at once, with all bytes that the store has.
    fn span(&self) -> Option<Span> {
        let length = self.slice_bytes.min(self.copy.size_bytes - self.offset);
        self.is_sliced().then_some(Span { offset: self.offset, length })
    }

    async fn read_slice(&mut self, backend: &SharedBackend) -> Result<(), SliceFault> {
        let span = self.span();
        let expected = span.map_or(self.copy.size_bytes, |span| span.length);
        let mut body = backend.get(&self.copy.location.physical_key, span).await?;
        let mut received = 0;
        while let Some(chunk) = body.next().await {
            let chunk = chunk.map_err(|error| SliceFault::Unreadable(error.to_string()))?;
            received += chunk.len() as u64;
            if received > expected {
                return Err(SliceFault::Contradicted);
            }
            self.hasher.take(chunk).await.map_err(SliceFault::Unreadable)?;
        }
        self.offset += received;
        if received < expected { Err(SliceFault::Contradicted) } else { Ok(()) }
    }

    /// Compares the digests at the end of a read; `None` if the copy must be read a second time.
    async fn judge(&mut self) -> Result<Option<ScrubOutcome>, String> {
        let hasher = std::mem::replace(&mut self.hasher, SliceHasher::of(&self.copy));
        let found = hasher.finish().await?;
        let (shown, expected) = (found.compared(), found.expected(&self.copy));
        let first = self.first.as_ref().map(FoundDigests::compared);
        let verdict = match &first {
            None => DigestVerdict::of(&expected, &shown, None),
            Some(first) => DigestVerdict::of(&expected, first, Some(&shown)),
        };
        Ok(match verdict {
            DigestVerdict::Right => Some(ScrubOutcome::Right(self.copy.sha256.is_none().then_some(found.sha256))),
            DigestVerdict::Wrong => Some(ScrubOutcome::Wrong(shown)),
            DigestVerdict::ReaderFault => {
                let first = first.unwrap_or_default();
                Some(ScrubOutcome::ReaderFault(format!("two reads gave the digests {first} and {shown}")))
            }
            DigestVerdict::ReadAgain => {
                (self.offset, self.first) = (0, Some(found));
                None
            }
        })
    }
}

impl Engine {
    /// Reads a copy until its digest is known, at most until this moment; `None` if that needs more time. The read then
    /// continues with the next call.
    pub async fn scrub_copy(&self, read: &mut CopyRead, until: Instant) -> Result<Option<ScrubOutcome>, CatalogError> {
        let Some(backend) = self.fleet.get(&read.copy.location.backend) else {
            return Ok(Some(ScrubOutcome::Unreadable("the backend is not configured".to_owned())));
        };
        loop {
            let slice = tokio::time::timeout(SLICE_TIME_MAX, read.read_slice(backend)).await;
            match slice.unwrap_or_else(|_| Err(SliceFault::Unreadable("the read took too long".to_owned()))) {
                Ok(()) => {}
                Err(SliceFault::Unreadable(why)) => return Ok(Some(ScrubOutcome::Unreadable(why))),
                Err(SliceFault::Contradicted) => return self.missing(&read.copy).await.map(Some),
            }
            if read.offset >= read.copy.size_bytes {
                match read.judge().await {
                    Ok(Some(outcome)) => return self.confirm_outcome(read, outcome).await.map(Some),
                    Ok(None) => {}
                    Err(why) => return Ok(Some(ScrubOutcome::Unreadable(why))),
                }
            }
            if Instant::now() >= until {
                return Ok(None);
            }
        }
    }

    /// Excludes what the digests do not show: another store under the name of the backend, and bytes behind the end.
    async fn confirm_outcome(&self, read: &CopyRead, outcome: ScrubOutcome) -> Result<ScrubOutcome, CatalogError> {
        let (copy, checker) = (&read.copy, &self.sharing.checker);
        let Location { backend, .. } = &copy.location;
        match outcome {
            ScrubOutcome::Wrong(_) if !checker.has_right_identity(backend).await => {
                Ok(ScrubOutcome::Unreadable("the identity of the backend could not be verified".to_owned()))
            }
            ScrubOutcome::Right(_)
                if read.is_sliced() && checker.check_copy(&copy.location, copy.size_bytes).await == CopyState::Bad =>
            {
                self.missing(copy).await
            }
            outcome => Ok(outcome),
        }
    }

    /// Probes a copy whose read contradicted the catalog. Only a proof makes it suspect.
    async fn missing(&self, copy: &ScrubCopy) -> Result<ScrubOutcome, CatalogError> {
        match self.sharing.checker.check_copy(&copy.location, copy.size_bytes).await {
            CopyState::Bad => {
                self.catalog.suspect(copy.content, &copy.location).await?;
                Ok(ScrubOutcome::Missing)
            }
            CopyState::Good => Ok(ScrubOutcome::Unreadable("a probe found it, a read did not".to_owned())),
            CopyState::Unclear => Ok(ScrubOutcome::Unreadable("its absence could not be proven".to_owned())),
        }
    }

    /// Removes content from the cache after one of its copies was found to be wrong.
    pub fn forget_cached(&self, content: ContentId) {
        if let Some(cache) = &self.cache {
            cache.forget(&[content]);
        }
    }
}
