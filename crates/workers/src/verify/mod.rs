//! Verifying the invariants while everything goes on, without changing anything.
//!
//! The catalog is asked page by page, each question as of one moment. Backends are listed page by
//! page against the rows that name what they show; whatever seems wrong is looked at twice.

mod keys;
mod listing;
mod progress;
mod report;
mod unfinished;

use std::sync::Arc;

use s3o_backend::SharedBackend;
use s3o_backend::fleet::Fleet;
use s3o_catalog::{Ahead, Check, Longest, Quotas, Verification, checks};
use s3o_model::names::BackendName;
use s3o_model::shared::Shared;
use s3o_model::verify::Invariant;
use serde::Deserialize;

use crate::Error;
use crate::identity::Identity;
use progress::Progress;

pub use progress::VerifyProgress;
pub use report::{BackendHeld, Checked, Unchecked, VerifyReport};

/// How many rows one question is about: a statement holds its moment no longer than these take.
const ROWS_MAX: usize = 2000;
const COUNTERS: &str = "counters equal the sums of their rows";
const DATABASE: &str = "the database finds no fault in its own tables and indexes";
const MOMENTS: &str = "no row waits for a moment further ahead than any setting";

fn failed(backend: &SharedBackend, source: s3o_backend::Error) -> Error {
    Error::Backend { backend: backend.name().clone(), source }
}

/// What a verifier is made of.
pub struct VerifierParts {
    /// What can be asked of the catalog.
    pub verification: Arc<dyn Verification>,
    /// The books.
    pub quotas: Arc<dyn Quotas>,
    /// The backends.
    pub fleet: Arc<Fleet>,
    /// Whether the backends still are who they were.
    pub identity: Arc<Identity>,
    /// Moments that lie ahead.
    pub ahead: Arc<dyn Ahead>,
    /// How far ahead moments can lie by the settings.
    pub longest: Shared<Longest>,
}

/// What is checked beside the rows of the catalog.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VerifyScope {
    /// The backends are listed and compared with the catalog.
    pub deep: bool,
    /// The database checks its own tables and indexes.
    pub catalog: bool,
}

impl VerifyScope {
    /// The rows of the catalog and the backends.
    pub const DEEP: Self = Self { deep: true, catalog: false };
}

/// Verifies the invariants.
pub struct Verifier {
    parts: VerifierParts,
    progress: Progress,
    /// One at a time: a second one would find the same and cost as much again.
    alone: tokio::sync::Mutex<()>,
}

impl Verifier {
    /// A verifier of these parts.
    #[must_use]
    pub fn new(parts: VerifierParts) -> Self {
        Self { parts, progress: Progress::default(), alone: tokio::sync::Mutex::new(()) }
    }

    /// How far a verification has come.
    #[must_use]
    pub fn progress(&self) -> VerifyProgress {
        self.progress.view()
    }

    /// Checks everything in the scope that can be checked now.
    pub async fn verify(&self, scope: VerifyScope) -> VerifyReport {
        let _alone = self.alone.lock().await;
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

    /// Has the database check itself: damage there makes every other answer doubtful.
    async fn check_database(&self, report: &mut VerifyReport) {
        self.progress.begin(DATABASE);
        match self.parts.verification.integrity().await {
            Ok(faults) => report.note(Invariant::I1, DATABASE, faults),
            Err(error) => report.leave_out("database", &error),
        }
    }

    /// Asks the catalog everything; one that is away is not asked again.
    async fn check_catalog(&self, report: &mut VerifyReport) {
        for check in checks() {
            if let Err(error) = self.check_rows(check, report).await {
                return report.leave_out("catalog", &error);
            }
        }
        self.progress.begin(COUNTERS);
        match self.parts.verification.drifted().await {
            Ok(drifted) => report.note(Invariant::I7, COUNTERS, drifted),
            Err(error) => return report.leave_out("catalog", &error),
        }
        let longest = *self.parts.longest.current();
        match self.parts.ahead.future(&longest).await {
            Ok(rows) => report.note(Invariant::I11, MOMENTS, rows),
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
            self.progress.seen(ROWS_MAX);
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

    /// Backends whose books are not empty, and which nobody can list.
    async fn leave_out_unconfigured(&self, report: &mut VerifyReport) {
        let books = match self.parts.quotas.books().await {
            Ok(books) => books,
            Err(error) => return report.leave_out("books", &error),
        };
        for kept in books.iter().filter(|kept| self.parts.fleet.get(&kept.backend).is_none()) {
            if kept.used_bytes + kept.orphan_bytes + kept.reserved_bytes > 0 {
                report.leave_out(format!("backend {}", kept.backend), "it holds bytes and is not configured");
            }
        }
    }

    /// What is found counts only if the backend was the right one before and after.
    async fn check_backend(&self, backend: &SharedBackend) -> Result<VerifyReport, Error> {
        let mut found = VerifyReport::default();
        if !self.fits(backend, &mut found).await? {
            return Ok(found);
        }
        let listed = self.list(backend, &mut found).await;
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
            let frozen = self.frozen(backend.name());
            let reason = frozen.map_or("its identity cannot be read".to_owned(), |why| format!("frozen: {why}"));
            report.leave_out(format!("backend {}", backend.name()), &reason);
        }
        Ok(fits)
    }

    fn frozen(&self, name: &BackendName) -> Option<String> {
        self.parts.fleet.standing(name).and_then(|standing| standing.frozen.clone())
    }
}
