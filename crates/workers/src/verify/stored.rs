//! Compares what one backend stores with the rows that name it.

use s3o_backend::SharedBackend;
use s3o_model::reconcile::{FindingKind, PassCounts};
use s3o_model::verify::Invariant;

use super::Verifier;
use super::report::{BackendHeld, VerifyReport};
use crate::Error;
use crate::walk::{BackendWalk, Difference, PageError, PagePosition, WalkedPage, keeps_versions};

const NAMED: &str = "a row names the bytes under each s3o key";
const THERE: &str = "the bytes of a location exist";
const WHOLE: &str = "the bytes of a location have the recorded size";
const DRAFTS_NAMED: &str = "a temporary file belongs to an intent or a cleanup";
const UPLOADS_NAMED: &str = "an unfinished backend upload belongs to an intent or a cleanup";
const AT_REST: &str = "the bytes at rest equal the quota accounting";

/// All checks of a walk, so that those without violations are reported, too.
const CHECKS: [(Invariant, &str); 5] = [
    (Invariant::I3, NAMED),
    (Invariant::I2, THERE),
    (Invariant::I1, WHOLE),
    (Invariant::I3, DRAFTS_NAMED),
    (Invariant::I3, UPLOADS_NAMED),
];

impl Verifier {
    /// Compares all keys, drafts and uploads that the backend lists, and all locations that it should list.
    pub(super) async fn compare_stored(&self, backend: &SharedBackend, report: &mut VerifyReport) -> Result<(), Error> {
        let (name, catalog) = (backend.name(), &self.parts.verification);
        let cut_off = catalog.present_time().await?;
        let before = catalog.pulse(name).await?;
        for (invariant, what) in CHECKS {
            report.note(invariant, what, []);
        }
        let keeps_versions = keeps_versions(&self.parts.fleet, name);
        let walk = BackendWalk { catalog, backend, cut_off, keeps_versions };
        let (counts, known_bytes) = self.walk_through(&walk, report).await?;
        // Bytes of findings are in no counter.
        let bytes = counts.bytes - known_bytes;
        let (backend, objects, foreign) = (name.to_string(), counts.keys, counts.foreign_keys);
        let mut held = BackendHeld { backend, objects, bytes, foreign, accounted_bytes: None };
        // Writes in progress have bytes that are not accounted yet; totals are compared only if nothing
        // changed during the listing and everything was listed.
        let is_complete = report.unchecked.is_empty();
        if is_complete && !before.unsettled && catalog.pulse(name).await? == before {
            let broken = format!("backend {name}: found {bytes} bytes, quota accounting has {}", before.bytes);
            report.note(Invariant::I7, AT_REST, (bytes != before.bytes).then_some(broken));
            held.accounted_bytes = Some(before.bytes);
        }
        report.backends.push(held);
        Ok(())
    }

    /// Reads all pages; returns what they counted, and the bytes that only findings of a reconcile pass name.
    async fn walk_through(
        &self,
        walk: &BackendWalk<'_>,
        report: &mut VerifyReport,
    ) -> Result<(PassCounts, u64), Error> {
        let (mut at, mut counts, mut known_bytes) = (PagePosition::START, PassCounts::default(), 0);
        while at != PagePosition::End {
            let page = walk.page(&at, &counts).await.map_err(|error| error.of(walk.backend))?;
            self.progress.add_seen(page.entries);
            known_bytes +=
                page.found.iter().filter(|found| names_bytes(found)).map(|found| found.size_bytes).sum::<u64>();
            report_page(walk.backend, &page, report);
            (at, counts) = (page.next, page.counts);
        }
        Ok((counts, known_bytes))
    }
}

/// True for bytes that a standing finding names.
fn names_bytes(found: &Difference) -> bool {
    found.is_known && found.kind.is_removed()
}

fn report_page(backend: &SharedBackend, page: &WalkedPage, report: &mut VerifyReport) {
    let name = backend.name();
    for found in page.found.iter().filter(|found| !names_bytes(found)) {
        let (key, size) = (&found.physical_key, found.size_bytes);
        match found.kind {
            FindingKind::Foreign => {}
            // It is known: a check of the rows reports it.
            FindingKind::Missing | FindingKind::WrongSize if found.is_lost => {}
            FindingKind::Stray | FindingKind::OldVersion => {
                report.note(Invariant::I3, NAMED, [format!("backend {name}: {key}, {size} bytes")]);
            }
            FindingKind::Missing => report.note(Invariant::I2, THERE, [format!("backend {name}: {key}")]),
            FindingKind::WrongSize => {
                let expected = found.expected_bytes.unwrap_or_default();
                report.note(Invariant::I1, WHOLE, [format!("backend {name}: {key}, {size} of {expected} bytes")]);
            }
            FindingKind::Draft => {
                report.note(Invariant::I3, DRAFTS_NAMED, [format!("backend {name}: {key}, {size} bytes")]);
            }
            FindingKind::Upload => {
                let upload = found.target.to_column();
                report.note(Invariant::I3, UPLOADS_NAMED, [format!("backend {name}: {upload} of {key}")]);
            }
        }
    }
    for (what, why) in &page.unchecked {
        report.leave_out(format!("backend {name}: {what}"), why);
    }
}

impl PageError {
    fn of(self, backend: &SharedBackend) -> Error {
        match self {
            Self::Failed(error) => error,
            Self::Fault(fault) => Error::Listing { backend: backend.name().clone(), fault },
        }
    }
}
