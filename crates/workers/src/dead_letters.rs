//! What becomes of dead letters on request: back to the queue, or off the books once somebody has
//! looked whether their bytes are gone.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use s3o_backend::fleet::Fleet;
use s3o_backend::{Backend, Probe, SharedBackend};
use s3o_catalog::{DeadLetters, Discard};
use s3o_model::cleanup::{BackendUpload, Selection};
use s3o_model::dead_letter::{DeadLetter, Discarding, Found, judge_discard};
use s3o_model::ids::{ClaimToken, DeadLetterId, IdSource};
use s3o_model::names::BackendName;
use serde_json::json;
use tokio::sync::Notify;

use crate::identity::Identity;
use crate::{Error, Event};

/// How many dead letters one step works on.
const STEP_LETTERS_MAX: usize = 1000;
/// How many of them are looked for side by side.
const LOOKS_AT_ONCE: usize = 8;

/// What is to become of dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposal {
    /// They go back to the queue.
    Retry,
    /// They go, if their bytes are gone.
    Discard {
        /// Also if their bytes may be there.
        force: bool,
    },
}

/// What became of dead letters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Disposed {
    /// What happened, one event for each that is a dead letter no more.
    pub events: Vec<Event>,
    /// Those that stay.
    pub kept: Vec<Kept>,
}

/// Why a dead letter stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// Its bytes are there.
    StillThere,
    /// Nobody proved that they are gone.
    NotProven(String),
}

/// Where a walk through the dead letters stands: behind the one, up to the other. Those that come
/// while it goes on are not meant, or it might never end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    after: i64,
    until: DeadLetterId,
}

impl Bounds {
    /// From the beginning up to this one.
    #[must_use]
    pub const fn up_to(until: DeadLetterId) -> Self {
        Self { after: 0, until }
    }

    /// What is left behind this one.
    #[must_use]
    pub const fn behind(self, last: DeadLetterId) -> Self {
        Self { after: last.0, ..self }
    }

    /// The number behind which it goes on.
    #[must_use]
    pub const fn after(self) -> i64 {
        self.after
    }
}

/// Where dead letters are looked into.
pub struct DeadLetterOffice {
    /// The dead letters.
    pub letters: Arc<dyn DeadLetters>,
    /// The backends.
    pub fleet: Arc<Fleet>,
    /// Whether the backends still are who they were.
    pub identity: Arc<Identity>,
    /// Where tokens come from.
    pub ids: IdSource,
    /// Rung when bytes are to be deleted.
    pub cleanup_bell: Arc<Notify>,
}

/// A backend that can be looked at, or why it cannot.
type Reached<'a> = Result<&'a SharedBackend, String>;

impl DeadLetterOffice {
    /// Disposes of one dead letter; `None` where there is none of that number.
    pub async fn one(&self, disposal: Disposal, id: DeadLetterId) -> Result<Option<Disposed>, Error> {
        let Some(letter) = self.letters.dead_letter(id).await? else { return Ok(None) };
        let disposed = self.dispose(disposal, &[letter]).await?;
        // Somebody else may have disposed of it meanwhile.
        Ok(Some(disposed).filter(|disposed| !disposed.events.is_empty() || !disposed.kept.is_empty()))
    }

    /// Everything that is a dead letter now; `None` where nothing is.
    pub async fn bounds(&self) -> Result<Option<Bounds>, Error> {
        Ok(self.letters.newest_dead_letter().await?.map(Bounds::up_to))
    }

    /// One step through those that are selected, and what is left to do.
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
            self.cleanup_bell.notify_one();
        }
        Ok(Disposed { events: retried.iter().map(|letter| event("dlq.retried", letter)).collect(), kept: vec![] })
    }

    async fn discard(&self, letters: &[DeadLetter], force: bool) -> Result<Disposed, Error> {
        // Read before the backends are queried, as for cleanups: a late write may arrive during a long query.
        let now = self.letters.present().await?;
        let found = self.look(letters).await?;
        let (mut discards, mut kept) = (Vec::new(), Vec::new());
        let mut written_off = HashMap::new();
        for (letter, found) in letters.iter().zip(found) {
            match judge_discard(letter, found, now, force) {
                Discarding::Gone => discards.push(Discard { id: letter.id, written_off: None }),
                Discarding::WrittenOff(why) => {
                    discards.push(Discard { id: letter.id, written_off: Some(detail(letter, &why)) });
                    written_off.insert(letter.id, why);
                }
                Discarding::StillThere => kept.push(Kept::StillThere),
                Discarding::NotProven(why) => kept.push(Kept::NotProven(why)),
            }
        }
        if discards.is_empty() {
            return Ok(Disposed { events: vec![], kept });
        }
        let gone = self.letters.discard_dead_letters(&discards, ClaimToken::new(self.ids.fresh())).await?;
        let told = |letter: &DeadLetter| {
            let why = written_off.get(&letter.id).cloned();
            event("dlq.discarded", letter).with("written_off", why.is_some()).with("found", why)
        };
        Ok(Disposed { events: gone.iter().map(told).collect(), kept })
    }

    /// Looks for the bytes of each, in their order.
    async fn look(&self, letters: &[DeadLetter]) -> Result<Vec<Found>, Error> {
        let mut reached: HashMap<&BackendName, Reached<'_>> = HashMap::new();
        for letter in letters {
            if !reached.contains_key(&letter.backend) {
                reached.insert(&letter.backend, self.reach(&letter.backend).await?);
            }
        }
        let looks: Vec<_> = letters.iter().map(|letter| self.boxed_look(&reached[&letter.backend], letter)).collect();
        Ok(futures_util::stream::iter(looks).buffered(LOOKS_AT_ONCE).collect().await)
    }

    /// A backend whose answers prove something: it is who it was.
    async fn reach(&self, name: &BackendName) -> Result<Reached<'_>, Error> {
        let Some(backend) = self.fleet.get(name) else { return Ok(Err("the backend is not configured".to_owned())) };
        let permitted = self.identity.permits(backend).await?;
        Ok(if permitted { Ok(backend) } else { Err("the backend is frozen or away".to_owned()) })
    }

    fn boxed_look<'a>(&'a self, reached: &'a Reached<'a>, letter: &'a DeadLetter) -> BoxFuture<'a, Found> {
        Box::pin(async move {
            let backend = match reached {
                Ok(backend) => backend,
                Err(why) => return Found::Unknown(why.clone()),
            };
            match look_for(backend.as_ref(), letter).await {
                Found::Absent if self.keeps_versions(&letter.backend) => {
                    Found::Unknown("absent, but the backend keeps versions".to_owned())
                }
                found => found,
            }
        })
    }

    fn keeps_versions(&self, name: &BackendName) -> bool {
        let standing = self.fleet.standing(name);
        standing.and_then(|standing| standing.traits.clone()).is_none_or(|traits| traits.keeps_versions)
    }
}

/// Bytes lie under the key, or in an unfinished upload of it.
async fn look_for(backend: &dyn Backend, letter: &DeadLetter) -> Found {
    if letter.upload != BackendUpload::None {
        match backend.uploads_of(&letter.physical_key).await {
            Ok(uploads) if uploads.is_empty() => {}
            Ok(_) => return Found::Present,
            Err(error) => return Found::Unknown(error.to_string()),
        }
    }
    match backend.probe(&letter.physical_key).await {
        Probe::Present(_) => Found::Present,
        Probe::Absent => Found::Absent,
        Probe::Unknown(why) => Found::Unknown(why),
    }
}

fn event(name: &'static str, letter: &DeadLetter) -> Event {
    let event = Event::new(name).at(&letter.backend, &letter.physical_key, letter.size_bytes);
    let event = event.with("id", letter.id.0).with("original_id", letter.original_id.0);
    event.with("reason", letter.reason.as_str()).with("attempts", letter.attempts)
}

/// What a finding keeps of a dead letter: enough to find its bytes by hand.
fn detail(letter: &DeadLetter, why: &str) -> String {
    let upload = letter.upload.to_column();
    json!({
        "found": why, "original_id": letter.original_id, "reason": letter.reason, "attempts": letter.attempts,
        "last_error": letter.last_error, "backend_version": letter.backend_version, "backend_upload": upload,
    })
    .to_string()
}
