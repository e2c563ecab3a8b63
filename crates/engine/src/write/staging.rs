//! Announces the copies of a write: one intent for each, committed before the first byte is sent.

use s3o_catalog::{Late, Stage, Verdict};
use s3o_model::clock::Timestamp;
use s3o_model::ids::{IntentId, WriteId};
use s3o_model::intent::Intent;
use s3o_model::names::BackendName;
use s3o_model::physical_key::physical_key;
use s3o_model::placement::BackendView;
use s3o_model::write_outcome::WriteFailure;

use super::outcome::FailedWrite;
use super::placing::{TriedBackends, frozen};
use super::{CopyResult, Staged, WriteCopy, WriteTarget};
use crate::leases::Lease;
use crate::{Engine, Error};

/// The copies of a write while their backends are chosen.
struct Staging {
    write: WriteId,
    /// Number of intents that the write has already.
    held: usize,
    staged: Vec<Staged>,
    /// Backends that cannot take a copy of this write.
    full: Vec<BackendName>,
}

impl Staging {
    fn new(write: WriteId) -> Self {
        Self { write, held: 0, staged: Vec::new(), full: Vec::new() }
    }

    fn knows(&self, name: &BackendName) -> bool {
        self.full.contains(name) || self.staged.iter().any(|copy| copy.place.backend == *name)
    }
}

impl Engine {
    /// Chooses backends that have free capacity and were not tried, and commits an intent for each copy of the write.
    /// There may be fewer copies than wanted, but never fewer than a write needs.
    pub(super) async fn stage(&self, target: &WriteTarget<'_>, tried: &TriedBackends) -> Result<Vec<Staged>, Error> {
        // Direct mode reserves nothing, so its counters must be current.
        let mut is_current = !self.settings().announce;
        let mut views = if is_current { self.current_views().await? } else { self.placement_views().await? };
        check_size(&views, target.size_bytes)?;
        let copies = self.write_copies(&target.settings);
        let mut staging = Staging::new(WriteId::new(self.ids.fresh()));
        loop {
            let mut refused = self.refusal(&views, target.size_bytes, tried);
            let mut candidates = self.candidates(&views, target.size_bytes, tried);
            candidates.retain(|name| !staging.knows(name));
            if let Err(error) = self.stage_some(target, &mut staging, candidates, &mut refused).await {
                self.drop_staged(staging.staged).await;
                return Err(error.into());
            }
            if staging.staged.len() == copies.wanted {
                return Ok(staging.staged);
            }
            if is_current {
                break self.enough_staged(staging.staged, copies.min, refused).await;
            }
            // Counters that are a second old may hide the capacity that a delete has freed since.
            (views, is_current) = (self.current_views().await?, true);
        }
    }

    /// Stages copies on the first candidates that have space, as many as are wanted: all in one transaction or, if one
    /// backend refuses, one by one.
    async fn stage_some(
        &self,
        target: &WriteTarget<'_>,
        staging: &mut Staging,
        candidates: Vec<BackendName>,
        refused: &mut Error,
    ) -> Result<(), s3o_catalog::Error> {
        let wanted = self.write_copies(&target.settings).wanted;
        if wanted > 1 && staging.staged.is_empty() && candidates.len() >= wanted {
            match self.stage_on(&candidates[..wanted], target, staging).await {
                Ok(()) => return Ok(()),
                Err(error) if is_refusal(&error) => {}
                Err(error) => return Err(error),
            }
        }
        for name in candidates {
            if staging.staged.len() == wanted {
                break;
            }
            match self.stage_on(std::slice::from_ref(&name), target, staging).await {
                Ok(()) => {}
                Err(error) => match error.verdict() {
                    Some(Verdict::NoSpace) => staging.full.push(name),
                    Some(Verdict::Closed) => *refused = frozen(&name, "the catalog allows no writes to it"),
                    Some(_) | None => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// The staged copies if a write may be acknowledged with so few; otherwise they are dropped.
    async fn enough_staged(&self, staged: Vec<Staged>, min: usize, refused: Error) -> Result<Vec<Staged>, Error> {
        if staged.len() >= min {
            return Ok(staged);
        }
        self.drop_staged(staged).await;
        Err(refused)
    }

    /// Drops copies of which no byte was sent.
    async fn drop_staged(&self, staged: Vec<Staged>) {
        let unsent = |staged| WriteCopy { staged, result: CopyResult::Failed(Late::No) };
        let copies: Vec<WriteCopy> = staged.into_iter().map(unsent).collect();
        if !copies.is_empty() {
            self.end_failed(&FailedWrite::of(&copies), WriteFailure::NotCommitted).await;
        }
    }

    /// Stages one more copy of a write on a backend that has none of it; `None` if no backend takes it.
    pub(super) async fn stage_another(&self, target: &WriteTarget<'_>, copies: &[WriteCopy]) -> Option<Staged> {
        let used: Vec<BackendName> = copies.iter().map(|copy| copy.staged.place.backend.clone()).collect();
        let write = copies.first()?.staged.write;
        let mut staging = Staging { held: copies.len(), full: used, ..Staging::new(write) };
        let views = self.placement_views().await.ok()?;
        let mut candidates = self.candidates(&views, target.size_bytes, &TriedBackends::default());
        candidates.retain(|name| !staging.knows(name));
        for name in candidates {
            match self.stage_on(std::slice::from_ref(&name), target, &mut staging).await {
                Ok(()) => return staging.staged.pop(),
                Err(error) if is_refusal(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, backend = %name, "cannot announce another copy of a write");
                    return None;
                }
            }
        }
        None
    }

    /// Commits an intent of the write for each of these backends, in one transaction.
    async fn stage_on(
        &self,
        names: &[BackendName],
        target: &WriteTarget<'_>,
        staging: &mut Staging,
    ) -> Result<(), s3o_catalog::Error> {
        let removed = || s3o_catalog::Error::Guard(Verdict::Closed);
        let backends = names.iter().map(|name| self.fleet.get(name).cloned().ok_or_else(removed));
        let backends = backends.collect::<Result<Vec<_>, _>>()?;
        let intents: Vec<Intent> = names.iter().map(|name| self.intent(name, target, staging.write)).collect();
        let term = self.lease_term();
        let leases = if self.settings().announce {
            let until = self.announce(&intents, staging.held).await?;
            staging.held += intents.len();
            intents.iter().zip(until).map(|(intent, until)| self.leases.hold(intent.id, until, term)).collect()
        } else {
            vec![Lease::unneeded()]
        };
        for ((intent, backend), lease) in intents.into_iter().zip(backends).zip(leases) {
            staging.staged.push(Staged {
                id: intent.id,
                write: intent.write,
                place: intent.place(),
                size_bytes: intent.size_bytes,
                object: Some((target.bucket_name.clone(), intent.key)),
                announced: self.settings().announce,
                backend,
                lease,
            });
        }
        Ok(())
    }

    /// Commits the intents; returns the end of each lease. The first announcement of a write is counted.
    async fn announce(&self, intents: &[Intent], held: usize) -> Result<Vec<Timestamp>, s3o_catalog::Error> {
        let (owner, lease) = (self.instance, self.settings().lease);
        let stages: Vec<Stage> = intents.iter().map(|intent| Stage { intent: intent.clone(), owner, lease }).collect();
        let announced = match stages.as_slice() {
            [only] => self.catalog.stage_further(only, held).await.map(|until| vec![until]),
            several => self.catalog.stage_copies(several).await,
        };
        let until = if held > 0 { announced } else { self.counted(intents[0].write, announced) }?;
        for intent in intents {
            self.usage.add_reserved(&intent.backend, intent.size_bytes);
        }
        Ok(until)
    }

    fn intent(&self, name: &BackendName, target: &WriteTarget<'_>, write: WriteId) -> Intent {
        let id = self.ids.fresh();
        Intent {
            id: IntentId::new(id),
            write,
            kind: target.kind,
            bucket: target.bucket,
            key: target.key.clone(),
            backend: name.clone(),
            physical_key: physical_key(target.bucket_name, target.key, id, self.name_style(name)),
            size_bytes: target.size_bytes,
            draft: target.draft.clone(),
        }
    }
}

/// Fails if the configuration of every backend forbids bodies of this size.
fn check_size(views: &[BackendView], size_bytes: u64) -> Result<(), Error> {
    if views.iter().any(|view| view.allows(size_bytes)) {
        return Ok(());
    }
    let largest = views.iter().filter_map(|view| view.object_bytes_max).max();
    largest.map_or(Ok(()), |max_bytes| Err(Error::TooLarge { max_bytes }))
}

/// True if a backend refused an intent, so that another one may take it.
fn is_refusal(error: &s3o_catalog::Error) -> bool {
    matches!(error.verdict(), Some(Verdict::NoSpace | Verdict::Closed))
}
