//! Checks the copies of a content before their number is changed.

use s3o_catalog::{CopyWork, CountedLocation, Error as CatalogError, LocatedContent, Verdict};
use s3o_model::content::Location;
use s3o_model::copy_check::CopyState;

use crate::{Engine, reread};

impl Engine {
    /// Checks copies that do not count although their backend is in use: suspect ones, and those that were verified
    /// before an operator accepted another store. A copy on an unhealthy backend is not checked: it does not count,
    /// whatever its bytes are. Returns true if a copy counts again, became suspect, or was given up because the
    /// accepted store lacks it.
    pub async fn recheck_uncounted(&self, work: &CopyWork) -> Result<bool, CatalogError> {
        let mut changed = false;
        for copy in work.copies.iter().filter(|copy| copy.is_unproven && self.may_be_checked(copy)) {
            let Location { backend, physical_key, .. } = &copy.location;
            let state = if copy.is_present {
                self.sharing.checker.check_copy(&copy.location, work.size_bytes).await
            } else {
                self.compare_digest(&located(work, &copy.location)).await
            };
            match state {
                CopyState::Good => {
                    self.catalog.confirm_copy(work.content, &copy.location, work.read_at).await?;
                    tracing::info!(%backend, physical_key, "copy verified, it counts again");
                    changed = true;
                }
                CopyState::Bad if copy.is_present => {
                    // A reader may have found it meanwhile.
                    self.catalog.suspect(work.content, &copy.location).await?;
                    changed = true;
                }
                CopyState::Bad | CopyState::Unclear => {
                    changed |= !copy.is_present && self.lose_if_absent(work, &copy.location).await?;
                }
            }
        }
        Ok(changed)
    }

    /// Gives up a suspect copy if the store lacks it that an operator accepted after the copy was written; true if it
    /// did. An earlier probe or read made the copy suspect, so that one wrong answer loses nothing.
    async fn lose_if_absent(&self, work: &CopyWork, copy: &Location) -> Result<bool, CatalogError> {
        if !self.sharing.checker.is_proven_absent(copy).await {
            return Ok(false);
        }
        match self.catalog.lose_absent_copy(work.content, copy, work.read_at).await {
            Ok(()) => {
                let Location { backend, physical_key, .. } = copy;
                tracing::warn!(%backend, physical_key, content = %work.content, "the accepted store lacks this copy");
                Ok(true)
            }
            Err(CatalogError::Guard(Verdict::NotNeeded)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The copies, besides `removed`, that are on their backends now, with the right size. Each backend has the right
    /// identity after its copy was probed. If only one copy shall remain, its bytes are read and compared.
    pub async fn proven_copies(&self, work: &CopyWork, removed: &Location) -> Vec<Location> {
        let mut proven = Vec::new();
        for copy in work.copies.iter().filter(|copy| copy.counts && copy.location != *removed) {
            if !self.fleet.permits_background(&copy.location.backend) {
                continue;
            }
            let state = match self.sharing.checker.check_copy(&copy.location, work.size_bytes).await {
                CopyState::Good if work.factor == 1 => self.compare_digest(&located(work, &copy.location)).await,
                state => state,
            };
            if state == CopyState::Bad {
                // It is replaced, so that a later attempt finds enough copies.
                self.suspect(work.content, &copy.location).await;
            }
            if state == CopyState::Good && self.sharing.checker.has_right_identity(&copy.location.backend).await {
                proven.push(copy.location.clone());
            }
        }
        proven
    }

    fn may_be_checked(&self, copy: &CountedLocation) -> bool {
        let state = self.fleet.state(&copy.location.backend);
        let takes_writes = state.is_some_and(|state| state.frozen.is_none() && !state.draining);
        takes_writes && self.fleet.permits_background(&copy.location.backend)
    }

    /// Reads a lost copy, and marks it as present if its bytes are the right ones. False if they are not, or cannot be
    /// read now.
    pub async fn recover_copy(&self, lost: &LocatedContent) -> Result<bool, CatalogError> {
        let since = self.catalog.present_time().await?;
        if !self.fleet.permits_background(&lost.copy.backend) || self.compare_digest(lost).await != CopyState::Good {
            return Ok(false);
        }
        self.catalog.recover_copy(lost.content, &lost.copy, since).await
    }

    /// Reads all bytes of a copy and compares their digests with those of the content.
    async fn compare_digest(&self, located: &LocatedContent) -> CopyState {
        let LocatedContent { copy, size_bytes, md5, sha256, .. } = located;
        let Some(backend) = self.fleet.get(&copy.backend) else { return CopyState::Unclear };
        match reread(backend.as_ref(), copy.key_version(), *size_bytes, None).await {
            Ok(digests) => {
                let matches =
                    md5.is_none_or(|md5| md5 == digests.md5) && sha256.is_none_or(|sha256| sha256 == digests.sha256);
                if matches { CopyState::Good } else { CopyState::Bad }
            }
            Err(_) => CopyState::Unclear,
        }
    }
}

fn located(work: &CopyWork, copy: &Location) -> LocatedContent {
    let CopyWork { content, size_bytes, md5, sha256, .. } = *work;
    LocatedContent { content, copy: copy.clone(), size_bytes, md5, sha256 }
}
