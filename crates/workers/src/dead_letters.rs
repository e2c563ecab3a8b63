//! Retry and discard of dead letters on request. A retried letter returns to the cleanup queue; a
//! letter is discarded after a probe showed that its bytes are gone, or by force.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use s3o_backend::fleet::Fleet;
use s3o_backend::{Backend, Probe, SharedBackend};
use s3o_catalog::{Catalog, Discard};
use s3o_model::cleanup::Selection;
use s3o_model::dead_letter::{DeadLetter, DiscardDecision, LetterProbe, judge_discard};
use s3o_model::ids::{ClaimToken, DeadLetterId, IdSource};
use s3o_model::names::BackendName;
use s3o_model::target::{KeyVersion, Target};
use serde_json::json;
use tokio::sync::Notify;

use crate::identity::IdentityWorker;
use crate::{Error, Event};

/// Number of dead letters in one step.
const STEP_LETTERS_MAX: usize = 1000;
/// Number of concurrent probes.
const PROBES_MAX: usize = 8;

/// What to do with dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposal {
    /// Move them back to the cleanup queue.
    Retry,
    /// Delete them if their bytes are gone from the backend.
    Discard {
        /// Delete them even if their bytes may still exist.
        force: bool,
    },
}

/// Result of a disposal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Disposed {
    /// One audit event for each retried or discarded letter.
    pub events: Vec<Event>,
    /// One entry for each letter that remains.
    pub kept: Vec<Kept>,
}

/// Why a dead letter remains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// A probe found its bytes.
    StillThere,
    /// The absence of its bytes is not proven, for this reason.
    NotProven(String),
}

/// Progress of a walk through the dead letters: after one identifier, up to another. Letters that
/// arrive during the walk are not part of it, so that it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    after: i64,
    until: DeadLetterId,
}

impl Bounds {
    /// From the first letter up to this one.
    #[must_use]
    pub const fn up_to(until: DeadLetterId) -> Self {
        Self { after: 0, until }
    }

    /// The remaining walk after this letter.
    #[must_use]
    pub const fn behind(self, last: DeadLetterId) -> Self {
        Self { after: last.0, ..self }
    }

    /// Identifier after which the walk continues.
    #[must_use]
    pub const fn after(self) -> i64 {
        self.after
    }
}

/// Disposes of dead letters.
pub struct DeadLetterService {
    /// The dead-letter queue.
    pub letters: Arc<Catalog>,
    /// The configured backends.
    pub fleet: Arc<Fleet>,
    /// Checks the identity of a backend before a probe.
    pub identity: Arc<IdentityWorker>,
    /// Source of claim tokens.
    pub ids: IdSource,
    /// Wakes the cleanup worker after a retry.
    pub cleanup_wakeup: Arc<Notify>,
}

/// A backend that may be probed, or why not.
type ProbeTarget<'a> = Result<&'a SharedBackend, String>;

impl DeadLetterService {
    /// Disposes of one dead letter; `None` if it does not exist.
    pub async fn one(&self, disposal: Disposal, id: DeadLetterId) -> Result<Option<Disposed>, Error> {
        let Some(letter) = self.letters.dead_letter(id).await? else { return Ok(None) };
        let disposed = self.dispose(disposal, &[letter]).await?;
        // Another request may have disposed of it since it was read.
        Ok(Some(disposed).filter(|disposed| !disposed.events.is_empty() || !disposed.kept.is_empty()))
    }

    /// A walk through all current dead letters; `None` if there are none.
    pub async fn bounds(&self) -> Result<Option<Bounds>, Error> {
        Ok(self.letters.newest_dead_letter().await?.map(Bounds::up_to))
    }

    /// Disposes of up to `STEP_LETTERS_MAX` selected letters; also returns the remaining walk.
    pub async fn step(
        &self,
        disposal: Disposal,
        which: &Selection,
        bounds: Bounds,
    ) -> Result<(Disposed, Option<Bounds>), Error> {
        let mut page = self.letters.dead_letters(which, bounds.after, STEP_LETTERS_MAX).await?;
        let full = page.len() >= STEP_LETTERS_MAX;
        page.retain(|letter| letter.id <= bounds.until);
        let rest = page.last().filter(|_| full).map(|last| bounds.behind(last.id));
        Ok((self.dispose(disposal, &page).await?, rest))
    }

    async fn dispose(&self, disposal: Disposal, letters: &[DeadLetter]) -> Result<Disposed, Error> {
        match disposal {
            _ if letters.is_empty() => Ok(Disposed::default()),
            Disposal::Retry => self.retry(letters).await,
            Disposal::Discard { force } => self.discard(letters, force).await,
        }
    }

    async fn retry(&self, letters: &[DeadLetter]) -> Result<Disposed, Error> {
        let ids: Vec<DeadLetterId> = letters.iter().map(|letter| letter.id).collect();
        let retried = self.letters.retry_dead_letters(&ids, ClaimToken::new(self.ids.fresh())).await?;
        if !retried.is_empty() {
            self.cleanup_wakeup.notify_one();
        }
        Ok(Disposed { events: retried.iter().map(|letter| event("dlq.retried", letter)).collect(), kept: vec![] })
    }

    async fn discard(&self, letters: &[DeadLetter], force: bool) -> Result<Disposed, Error> {
        // Read before the backends are queried, as for cleanups: a late write may arrive during a long query.
        let now = self.letters.present().await?;
        let found = self.probe_all(letters).await?;
        let (mut discards, mut kept) = (Vec::new(), Vec::new());
        let mut written_off = HashMap::new();
        for (letter, found) in letters.iter().zip(found) {
            match judge_discard(letter, found, now, force) {
                DiscardDecision::Gone => discards.push(Discard { id: letter.id, written_off: None }),
                DiscardDecision::WrittenOff(why) => {
                    discards.push(Discard { id: letter.id, written_off: Some(detail(letter, &why)) });
                    written_off.insert(letter.id, why);
                }
                DiscardDecision::StillThere => kept.push(Kept::StillThere),
                DiscardDecision::NotProven(why) => kept.push(Kept::NotProven(why)),
            }
        }
        if discards.is_empty() {
            return Ok(Disposed { events: vec![], kept });
        }
        let gone = self.letters.discard_dead_letters(&discards, ClaimToken::new(self.ids.fresh())).await?;
        let audited = |letter: &DeadLetter| {
            let why = written_off.get(&letter.id).cloned();
            event("dlq.discarded", letter).with("written_off", why.is_some()).with("found", why)
        };
        Ok(Disposed { events: gone.iter().map(audited).collect(), kept })
    }

    /// Probes the bytes of each letter; the results are in the order of `letters`.
    async fn probe_all(&self, letters: &[DeadLetter]) -> Result<Vec<LetterProbe>, Error> {
        let mut targets: HashMap<&BackendName, ProbeTarget<'_>> = HashMap::new();
        for letter in letters {
            if !targets.contains_key(&letter.backend) {
                targets.insert(&letter.backend, self.target(&letter.backend).await?);
            }
        }
        let probes: Vec<_> = letters.iter().map(|letter| self.boxed_probe(&targets[&letter.backend], letter)).collect();
        Ok(futures_util::stream::iter(probes).buffered(PROBES_MAX).collect().await)
    }

    /// The backend if its identity fits; only then does a probe prove anything.
    async fn target(&self, name: &BackendName) -> Result<ProbeTarget<'_>, Error> {
        let Some(backend) = self.fleet.get(name) else { return Ok(Err("the backend is not configured".to_owned())) };
        let permitted = self.identity.permits(backend).await?;
        Ok(if permitted { Ok(backend) } else { Err("the backend is frozen or unreachable".to_owned()) })
    }

    fn boxed_probe<'a>(&'a self, target: &'a ProbeTarget<'a>, letter: &'a DeadLetter) -> BoxFuture<'a, LetterProbe> {
        Box::pin(async move {
            let backend = match target {
                Ok(backend) => backend,
                Err(why) => return LetterProbe::Unknown(why.clone()),
            };
            match probe(backend.as_ref(), letter).await {
                // Only the current version of the key is absent.
                LetterProbe::Absent if letter.target == Target::Key && self.keeps_versions(&letter.backend) => {
                    LetterProbe::Unknown("absent, but the backend keeps versions".to_owned())
                }
                found => found,
            }
        })
    }

    fn keeps_versions(&self, name: &BackendName) -> bool {
        let standing = self.fleet.state(name);
        standing.and_then(|standing| standing.traits.clone()).is_none_or(|traits| traits.keeps_versions)
    }
}

/// Probes the target of a letter.
async fn probe(backend: &dyn Backend, letter: &DeadLetter) -> LetterProbe {
    match &letter.target {
        Target::Upload(upload) => probe_upload(backend, letter, Some(upload)).await,
        Target::StartingUpload => probe_upload(backend, letter, None).await,
        Target::Key | Target::Version(_) | Target::Draft => {
            let at = KeyVersion::new(&letter.physical_key, letter.target.version_id());
            match backend.probe(at).await {
                Probe::Present(_) => LetterProbe::Present,
                Probe::Absent => LetterProbe::Absent,
                Probe::Unknown(why) => LetterProbe::Unknown(why),
            }
        }
    }
}

async fn probe_upload(backend: &dyn Backend, letter: &DeadLetter, upload: Option<&String>) -> LetterProbe {
    match backend.uploads_of(&letter.physical_key).await {
        Ok(uploads) if uploads.iter().any(|found| upload.is_none_or(|upload| found == upload)) => LetterProbe::Present,
        Ok(_) => LetterProbe::Absent,
        Err(error) => LetterProbe::Unknown(error.to_string()),
    }
}

fn event(name: &'static str, letter: &DeadLetter) -> Event {
    let event = Event::new(name).at(&letter.backend, &letter.physical_key, letter.size_bytes);
    let event = event.with("id", letter.id.0).with("original_id", letter.original_id.0);
    event.with("reason", letter.reason.as_str()).with("attempts", letter.attempts)
}

/// JSON detail of the finding: enough to find the bytes by hand.
fn detail(letter: &DeadLetter, why: &str) -> String {
    json!({
        "found": why, "original_id": letter.original_id, "reason": letter.reason, "attempts": letter.attempts,
        "last_error": letter.last_error, "target": letter.target.to_column(),
    })
    .to_string()
}
