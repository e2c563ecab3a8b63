//! The cleanup queue and the dead letters, as the admin door shows and changes them.

use std::sync::Arc;

use async_trait::async_trait;
use s3o_backend::Fleet;
use s3o_catalog::{Catalog, Cleanups as _, DeadLetters as _, Finding, FindingSelection, Findings as _, QueuedCleanup};
use s3o_model::cleanup::Selection;
use s3o_model::dead_letter::DeadLetter;
use s3o_model::ids::DeadLetterId;
use s3o_server::admin::QueueControl;
use s3o_workers::{Bounds, DeadLetterOffice, Disposal, Disposed, Identity};
use serde_json::{Value, json};

use super::Ground;
use super::control::Controls;

/// The office of this process.
pub fn open_office(
    catalog: &Arc<Catalog>,
    fleet: &Arc<Fleet>,
    identity: &Arc<Identity>,
    ground: &Ground,
) -> DeadLetterOffice {
    DeadLetterOffice {
        letters: catalog.clone(),
        fleet: Arc::clone(fleet),
        identity: Arc::clone(identity),
        ids: ground.ids.clone(),
        cleanup_bell: Arc::clone(&ground.cleanup_bell),
    }
}

fn row(row: &QueuedCleanup) -> Value {
    let QueuedCleanup { cleanup, last_error, due, claimed_by, created_at } = row;
    json!({
        "id": cleanup.id, "backend": cleanup.backend.as_str(), "physical_key": cleanup.physical_key,
        "size_bytes": cleanup.size_bytes, "reason": cleanup.reason, "attempts": cleanup.attempts,
        "last_error": last_error, "due": due.to_string(), "claimed_by": claimed_by,
        "created_at": created_at.to_string(),
    })
}

fn letter(letter: &DeadLetter) -> Value {
    json!({
        "id": letter.id, "original_id": letter.original_id, "backend": letter.backend.as_str(),
        "physical_key": letter.physical_key, "size_bytes": letter.size_bytes, "reason": letter.reason,
        "attempts": letter.attempts, "last_error": letter.last_error, "created_at": letter.created_at.to_string(),
        "dead_since": letter.dead_since.to_string(),
    })
}

fn finding(finding: &Finding) -> Value {
    json!({
        "id": finding.id, "kind": finding.kind, "backend": finding.backend, "physical_key": finding.physical_key,
        "size_bytes": finding.size_bytes, "detail": finding.detail, "created_at": finding.created_at.to_string(),
    })
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[async_trait]
impl QueueControl for Controls {
    async fn cleanups(&self, which: &Selection, after: i64, limit: usize) -> Result<Vec<Value>, String> {
        let rows = self.catalog.queued_cleanups(which, after, limit).await.map_err(told)?;
        Ok(rows.iter().map(row).collect())
    }

    async fn dead_letters(&self, which: &Selection, after: i64, limit: usize) -> Result<Vec<Value>, String> {
        let letters = self.catalog.dead_letters(which, after, limit).await.map_err(told)?;
        Ok(letters.iter().map(letter).collect())
    }

    async fn findings(&self, which: &FindingSelection, after: i64, limit: usize) -> Result<Vec<Value>, String> {
        let found = self.catalog.findings(which, after, limit).await.map_err(told)?;
        Ok(found.iter().map(finding).collect())
    }

    async fn dispose_one(&self, disposal: Disposal, id: DeadLetterId) -> Result<Option<Disposed>, String> {
        self.office.one(disposal, id).await.map_err(told)
    }

    async fn bounds(&self) -> Result<Option<Bounds>, String> {
        self.office.bounds().await.map_err(told)
    }

    async fn dispose_step(
        &self,
        disposal: Disposal,
        which: &Selection,
        bounds: Bounds,
    ) -> Result<(Disposed, Option<Bounds>), String> {
        self.office.step(disposal, which, bounds).await.map_err(told)
    }
}
