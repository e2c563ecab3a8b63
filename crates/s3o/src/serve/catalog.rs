//! The catalog itself: its integrity check after the start, reports of damage, and backups.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use s3o_catalog::{Catalog, Integrity};
use s3o_server::admin::{CatalogControl, CatalogStatus};
use s3o_server::audit::{Audit, Cause};
use s3o_workers::{Report, Worker as _};
use serde_json::json;

use super::control::Controls;
use crate::config::Database;

/// How long the start waits for the check; a longer one continues in the background.
const CHECK_WAIT_MAX: Duration = Duration::from_secs(2);

const RESTORE_SQLITE: &str = "stop s3o, keep a copy of the catalog's files, restore the newest backup with \
     `s3o catalog restore FILE`, and start again; nothing is deleted until then";
const RESTORE_POSTGRES: &str = "stop every instance, check the database with `s3o verify --catalog` or \
     pg_amcheck, rebuild its indexes with REINDEX or restore a backup, and start again; nothing is deleted until then";
const ACCEPT: &str = "run `s3o verify`; `s3o catalog accept` lets quota_audit repair the counts that it confirms";

/// How a damaged catalog is restored.
pub(super) const fn restore_of(database: &Database) -> &'static str {
    match database {
        Database::Sqlite(_) => RESTORE_SQLITE,
        Database::Postgres { .. } => RESTORE_POSTGRES,
    }
}

/// Logs and audits what is found wrong with the catalog, from now on.
pub(super) fn report_damage(catalog: &Catalog, audit: &Arc<Audit>, restore: &'static str) {
    let audit = Arc::clone(audit);
    let mut changes = catalog.condition().watch();
    tokio::spawn(async move {
        loop {
            report(&changes.borrow_and_update().clone(), &audit, restore);
            if changes.changed().await.is_err() {
                return;
            }
        }
    });
}

/// Begins the check and waits for it for a while.
pub(super) async fn check(catalog: &Arc<Catalog>) {
    let checked = Arc::clone(catalog);
    catalog.condition().begin_check();
    let check = tokio::spawn(async move { checked.check().await });
    if tokio::time::timeout(CHECK_WAIT_MAX, check).await.is_err() {
        tracing::info!("catalog integrity check continues in the background");
    }
}

fn report(integrity: &Integrity, audit: &Audit, restore: &str) {
    let (event, remedy) = match integrity {
        Integrity::Sound | Integrity::Checking => return,
        Integrity::Doubtful(_) => ("catalog.doubtful", ACCEPT),
        Integrity::Damaged(_) => ("catalog.degraded", restore),
    };
    let reason = integrity.reason().unwrap_or_default();
    tracing::error!(state = integrity.as_str(), reason, remedy, "catalog not healthy");
    audit.record(event, Cause::Program, "catalog", &json!({"reason": reason, "remedy": remedy}));
}

/// What status says of the catalog.
pub(super) fn status(catalog: &Catalog, restore: &str) -> CatalogStatus {
    let integrity = catalog.condition().integrity();
    let remedy = match integrity {
        Integrity::Sound | Integrity::Checking => None,
        Integrity::Doubtful(_) => Some(ACCEPT.to_owned()),
        Integrity::Damaged(_) => Some(restore.to_owned()),
    };
    CatalogStatus { state: integrity.as_str().to_owned(), reason: integrity.reason().map(str::to_owned), remedy }
}

#[async_trait]
impl CatalogControl for Controls {
    async fn backup(&self, to: &Path) -> Result<u64, String> {
        let size_bytes = self.catalog.backup(to).await.map_err(|error| error.to_string())?;
        // A copy that is restored later must meet marks that it does not know.
        if let Err(error) = self.identity.tick(&mut Report::default()).await {
            tracing::warn!(%error, "marks not raised after a catalog backup, the identity worker tries again");
        }
        Ok(size_bytes)
    }

    fn accept(&self) -> bool {
        self.catalog.condition().accept_doubt()
    }
}
