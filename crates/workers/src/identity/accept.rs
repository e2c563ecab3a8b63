//! Accepts a backend with an unexpected identity at an operator's request. The first call shows what would be accepted,
//! with its hash; the second call accepts exactly what has this hash.

use std::time::Duration;

use s3o_backend::identity::{Identity as Carried, fingerprint};
use s3o_backend::{Probe, SharedBackend};
use s3o_catalog::{Acceptance, IdentityRecord, KnownBackend, PlannedMark, Verdict as CatalogVerdict};
use s3o_model::names::BackendName;
use serde::Serialize;
use serde_json::Value;

use super::IdentityWorker;
use crate::Error;

/// What an operator is shown before a backend is accepted.
#[derive(Debug, Clone, Serialize)]
pub struct AcceptView {
    /// What the catalog expects: the current mark with its sequence number, and one that is open.
    pub expected: Value,
    /// The identity object that this instance found; `null` where none is stored.
    pub found: Option<Carried>,
    /// Hash of what was found.
    pub hash: String,
    /// The live identity records of all instances.
    pub instances: Vec<InstanceView>,
    /// Number of queued deletes for the backend.
    pub queued_deletes: u64,
    /// Keys of the newest objects that are missing.
    pub newest_missing: Vec<String>,
}

/// The identity record of one instance.
#[derive(Debug, Clone, Serialize)]
pub struct InstanceView {
    /// The host and the address on which the instance listens.
    pub host: String,
    /// The identity object that it found.
    pub found: Value,
    /// Hash of what it found.
    pub hash: String,
    /// Why the instance froze the backend; `null` if the identity fits.
    pub reason: Option<String>,
    /// True if an operator dismissed the record.
    pub dismissed: bool,
    #[serde(skip)]
    age: Duration,
}

/// Answer to a request to accept a backend.
#[derive(Debug, Clone)]
pub enum AcceptAnswer {
    /// The backend was accepted.
    Accepted,
    /// Nothing was changed.
    Refused {
        /// Reason of the refusal.
        why: String,
        /// What would be accepted.
        shown: Box<AcceptView>,
    },
}

impl From<IdentityRecord> for InstanceView {
    fn from(record: IdentityRecord) -> Self {
        let IdentityRecord { host, found, hash, reason, dismissed, age } = record;
        Self { host, found: serde_json::from_str(&found).unwrap_or(Value::String(found)), hash, reason, dismissed, age }
    }
}

fn refused(why: &str, shown: AcceptView) -> AcceptAnswer {
    AcceptAnswer::Refused { why: why.to_owned(), shown: Box::new(shown) }
}

impl IdentityWorker {
    /// Accepts the backend if what this instance finds there has this hash and no live record of another
    /// instance differs. Without a hash, only shows what would be accepted.
    pub async fn accept(&self, name: &str, hash: Option<&str>) -> Result<AcceptAnswer, Error> {
        let unknown = || Error::NoSuchBackend(name.to_owned());
        let name: BackendName = name.parse().map_err(|_| unknown())?;
        let backend = self.parts.fleet.get(&name).ok_or_else(unknown)?;
        let (known, shown) = self.accept_view(backend).await?;
        let differs =
            |view: &InstanceView| view.host != self.parts.host && !view.dismissed && Some(view.hash.as_str()) != hash;
        match hash {
            None => {
                Ok(refused("nothing was changed: repeat this with the hash to accept exactly what was found", shown))
            }
            Some(hash) if hash != shown.hash => {
                Ok(refused("nothing was changed: the backend does not have this hash, check what is shown", shown))
            }
            Some(_) if shown.instances.iter().any(differs) => {
                Ok(refused("nothing was changed: instances find different stores, repair or dismiss one", shown))
            }
            Some(_) if self.is_early(&shown) => Ok(refused(
                "nothing was changed: other instances still record what they find, repeat this in a few seconds",
                shown,
            )),
            Some(_) => self.accept_found(backend, &known, shown).await,
        }
    }

    /// Whether other instances may not have answered the newest mismatch yet.
    fn is_early(&self, shown: &AcceptView) -> bool {
        let disputing = shown.instances.iter().filter(|view| view.reason.is_some()).map(|view| view.age);
        disputing.max().is_some_and(|age| age < self.parts.settings.answer_wait)
    }

    async fn accept_view(&self, backend: &SharedBackend) -> Result<(KnownBackend, AcceptView), Error> {
        let name = backend.name();
        // The hash must cover the store that the path leads to now.
        backend.reopen_store().await.map_err(|source| Error::of(backend, source))?;
        let (compared, mismatch) = self.inspect(backend).await?;
        if let Some(mismatch) = &mismatch {
            // The record of this instance says what it finds now, not what it found before.
            self.freeze(backend, mismatch).await?;
        }
        let missing = mismatch.as_ref().and_then(|mismatch| mismatch.missing.as_deref());
        let known = compared.known;
        let records = self.parts.records.live_records(name).await?;
        let shown = AcceptView {
            expected: serde_json::json!({
                "cluster": self.parts.cluster, "backend": name, "mark": known.mark, "sequence": known.mark_sequence,
                "next": known.next_mark,
            }),
            hash: fingerprint(compared.found.as_ref(), missing),
            found: compared.found,
            instances: records.into_iter().map(InstanceView::from).collect(),
            queued_deletes: self.parts.identities.queued_deletes(name).await?,
            newest_missing: self.all_newest_missing(backend).await?,
        };
        Ok((known, shown))
    }

    async fn all_newest_missing(&self, backend: &SharedBackend) -> Result<Vec<String>, Error> {
        let mut missing = Vec::new();
        for key in self.newest_keys(backend.name()).await? {
            if backend.probe((&key).into()).await == Probe::Absent {
                missing.push(key);
            }
        }
        Ok(missing)
    }

    async fn accept_found(
        &self,
        backend: &SharedBackend,
        known: &KnownBackend,
        shown: AcceptView,
    ) -> Result<AcceptAnswer, Error> {
        let name = backend.name();
        let found = shown.found.as_ref().map_or(0, |found| found.sequence);
        let sequence = found.max(known.mark_sequence).max(known.next_sequence) + 1;
        let next = PlannedMark { mark: self.fresh_mark(), sequence };
        let acceptance = Acceptance { expected: known, hash: &shown.hash, next: &next, upto: self.newest_upto() };
        match self.parts.identities.accept_mark(name, acceptance).await {
            Ok(()) => {}
            Err(error) if error.verdict() == Some(CatalogVerdict::RunAgain) => {
                return Ok(refused("nothing was changed: marks or records changed meanwhile, repeat this", shown));
            }
            Err(error) => return Err(error.into()),
        }
        backend.trust_store().await;
        self.write_accepted(backend, &next).await?;
        self.learn_traits(backend).await?;
        self.raise(backend).await?;
        self.delay_deletes(name);
        self.thaw(name).await?;
        tracing::warn!(backend = %name, hash = shown.hash, "backend accepted, writes continue");
        Ok(AcceptAnswer::Accepted)
    }
}
