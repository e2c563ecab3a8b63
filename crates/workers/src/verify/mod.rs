//! Verifies the invariants of a running system; it changes no row. Damage of the database degrades the process.
//!
//! Each check reads the catalog page by page, every page in one consistent query. Backends are listed
//! page by page and compared with the rows that name their keys; every difference is checked twice.

mod progress;
mod report;
mod stored;

use std::sync::Arc;

use s3o_backend::SharedBackend;
use s3o_backend::fleet::Fleet;
use s3o_catalog::{Catalog, Check, Longest, checks, lost_contents};
use s3o_model::shared::Shared;
use s3o_model::verify::Invariant;
use serde::Deserialize;

use crate::Error;
use crate::identity::{IdentityWorker, REMOVED};
use progress::ProgressCell;

pub use progress::VerifyProgress;
pub use report::{BackendHeld, Checked, LostContents, Unchecked, VerifyReport};

/// Number of rows in one query, which bounds the duration of its snapshot.
const ROWS_MAX: usize = 2000;
const COUNTERS: &str = "counters equal the sums of their rows";
const DATABASE: &str = "the database finds no damage in its own tables and indexes";
const FUTURE_TIMES: &str = "no row waits for a time further in the future than the settings allow";

/// Constructor arguments of [`Verifier`].
pub struct VerifierParts {
    /// Verification queries of the catalog.
    pub verification: Arc<Catalog>,
    /// Quota accounting.
    pub quotas: Arc<Catalog>,
    /// The configured backends.
    pub fleet: Arc<Fleet>,
    /// Checks the identity of a backend before and after its listing.
    pub identity: Arc<IdentityWorker>,
    /// Rows with times in the future.
    pub ahead: Arc<Catalog>,
    /// How far in the future times may be by the current settings.
    pub longest: Shared<Longest>,
}

/// What a verification checks in addition to the rows of the catalog.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VerifyScope {
    /// List the backends and compare them with the catalog.
    pub deep: bool,
    /// Run the database's own integrity check.
    pub catalog: bool,
}

impl VerifyScope {
    /// Rows of the catalog and listings of the backends.
    pub const DEEP: Self = Self { deep: true, catalog: false };
}

/// Verifies the invariants of catalog and backends.
pub struct Verifier {
    parts: VerifierParts,
    progress: ProgressCell,
    /// Verifications run one at a time: a second one would cost as much and find the same.
    exclusive: tokio::sync::Mutex<()>,
}

impl Verifier {
    /// An idle verifier.
    #[must_use]
    pub fn new(parts: VerifierParts) -> Self {
        Self { parts, progress: ProgressCell::default(), exclusive: tokio::sync::Mutex::new(()) }
    }

    /// Progress of the current verification.
    #[must_use]
    pub fn progress(&self) -> VerifyProgress {
        self.progress.view()
    }

    /// Runs a verification; the report lists what could not be checked.
    pub async fn verify(&self, scope: VerifyScope) -> VerifyReport {
        let _exclusive = self.exclusive.lock().await;
        let _running = self.progress.running();
        let mut report = VerifyReport { deep: scope.deep, ..VerifyReport::default() };
        if scope.catalog {
            self.check_database(&mut report).await;
        }
        self.check_catalog(&mut report).await;
        if scope.deep {
            self.check_backends(&mut report).await;
        }
        report.close()
    }

    /// Runs the database's integrity check first: after damage no other result is reliable.
    async fn check_database(&self, report: &mut VerifyReport) {
        self.progress.begin(DATABASE);
        match self.parts.verification.check_integrity().await {
            Ok(faults) => report.note(Invariant::I1, DATABASE, faults),
            Err(error) => report.leave_out("database", &error),
        }
    }

    /// Runs all checks of the catalog; the first failed query ends them.
    async fn check_catalog(&self, report: &mut VerifyReport) {
        for check in checks() {
            if let Err(error) = self.check_rows(check, report).await {
                return report.leave_out("catalog", &error);
            }
        }
        if let Err(error) = self.find_lost(report).await {
            return report.leave_out("catalog", &error);
        }
        self.progress.begin(COUNTERS);
        match self.parts.verification.drifted().await {
            Ok(drifted) => report.note(Invariant::I7, COUNTERS, drifted),
            Err(error) => return report.leave_out("catalog", &error),
        }
        let longest = *self.parts.longest.current();
        match self.parts.ahead.future(&longest).await {
            Ok(rows) => report.note(Invariant::I11, FUTURE_TIMES, rows),
            Err(error) => report.leave_out("catalog", &error),
        }
    }

    async fn check_rows(&self, check: &'static Check, report: &mut VerifyReport) -> Result<(), Error> {
        self.progress.begin(check.what);
        report.note(check.invariant, check.what, []);
        let verification = &self.parts.verification;
        let mut after = check.start();
        while let Some(upto) = verification.page_end(check, &after, ROWS_MAX).await? {
            report.note(check.invariant, check.what, verification.broken(check, &after, &upto).await?);
            self.progress.add_seen(ROWS_MAX);
            after = upto;
        }
        Ok(())
    }

    async fn find_lost(&self, report: &mut VerifyReport) -> Result<(), Error> {
        let (check, verification) = (lost_contents(), &self.parts.verification);
        self.progress.begin(check.what);
        let mut after = check.start();
        while let Some(upto) = verification.page_end(check, &after, ROWS_MAX).await? {
            report.add_lost(verification.broken(check, &after, &upto).await?);
            after = upto;
        }
        Ok(())
    }

    async fn check_backends(&self, report: &mut VerifyReport) {
        self.leave_out_unconfigured(report).await;
        for backend in self.parts.fleet.backends() {
            let what = format!("backend {}", backend.name());
            self.progress.begin(what.as_str());
            match self.check_backend(backend).await {
                Ok(found) => report.absorb(found),
                Err(error) => report.leave_out(what, &error),
            }
        }
    }

    /// Reports backends that hold bytes but are not configured, so that they cannot be listed.
    async fn leave_out_unconfigured(&self, report: &mut VerifyReport) {
        let quotas = match self.parts.quotas.quota_usage().await {
            Ok(quotas) => quotas,
            Err(error) => return report.leave_out("quota accounting", &error),
        };
        for quota in quotas.iter().filter(|quota| self.parts.fleet.get(&quota.backend).is_none()) {
            if quota.used_bytes + quota.orphan_bytes + quota.reserved_bytes > 0 {
                report.leave_out(format!("backend {}", quota.backend), "it holds bytes but is not configured");
            }
        }
    }

    /// Lists one backend. The result counts only if its identity fits before and after the listing.
    async fn check_backend(&self, backend: &SharedBackend) -> Result<VerifyReport, Error> {
        let mut found = VerifyReport::default();
        // A removed backend holds nothing of s3o's; the configuration names it until the next restart.
        if self.parts.fleet.frozen_reason(backend.name()).as_deref() == Some(REMOVED) {
            return Ok(found);
        }
        if !self.fits(backend, &mut found).await? {
            return Ok(found);
        }
        let listed = self.compare_stored(backend, &mut found).await;
        let mut after = VerifyReport::default();
        if !self.fits(backend, &mut after).await? {
            return Ok(after);
        }
        if let Err(error) = listed {
            found.leave_out(format!("backend {}", backend.name()), &error);
        }
        Ok(found)
    }

    async fn fits(&self, backend: &SharedBackend, report: &mut VerifyReport) -> Result<bool, Error> {
        let fits = self.parts.identity.permits(backend).await?;
        if !fits {
            let frozen = self.parts.fleet.frozen_reason(backend.name());
            let reason = frozen.map_or("its identity cannot be read".to_owned(), |why| format!("frozen: {why}"));
            report.leave_out(format!("backend {}", backend.name()), &reason);
        }
        Ok(fits)
    }
}
