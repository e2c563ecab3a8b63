//! Checks the remains of unfinished writes on a backend: drafts, and uploads that were neither finished
//! nor aborted. An intent or a cleanup must name each of them.

use s3o_backend::{DRAFTS, SharedBackend, UnfinishedUpload};
use s3o_model::target::Target;
use s3o_model::verify::{Invariant, Seen, is_named, is_ours};

use super::Verifier;
use super::keys::{boxed_probe, by_key};
use super::report::VerifyReport;
use crate::Error;

const PAGE_KEYS: usize = 1000;
const DRAFTS_NAMED: &str = "a temporary file belongs to an intent or a cleanup";
const UPLOADS_NAMED: &str = "an unfinished backend upload belongs to an intent or a cleanup";
/// Prefix of drafts of our own small objects; each write replaces the last draft.
const OWN_DRAFT: &str = "own-";

impl Verifier {
    /// Checks the drafts; returns the bytes of those that no row names.
    pub(super) async fn check_drafts(&self, backend: &SharedBackend, report: &mut VerifyReport) -> Result<u64, Error> {
        report.note(Invariant::I3, DRAFTS_NAMED, []);
        let (mut after, mut stray_bytes): (Option<String>, u64) = (None, 0);
        loop {
            let page = backend.list(DRAFTS, after.as_deref(), PAGE_KEYS).await;
            let page = page.map_err(|source| Error::of(backend, source))?;
            let names = page.items.iter().filter_map(|item| item.key.strip_prefix(DRAFTS));
            let names: Vec<&str> = names.filter(|name| !name.starts_with(OWN_DRAFT)).collect();
            stray_bytes += self.check_draft_names(backend, &names, report).await?;
            after = page.items.last().map(|item| item.key.clone());
            if !page.truncated || after.is_none() {
                return Ok(stray_bytes);
            }
        }
    }

    /// A draft is a violation if no row names it and a probe still finds it.
    async fn check_draft_names(
        &self,
        backend: &SharedBackend,
        names: &[&str],
        report: &mut VerifyReport,
    ) -> Result<u64, Error> {
        let mut stray_bytes = 0;
        if names.is_empty() {
            return Ok(stray_bytes);
        }
        let known = self.parts.verification.named_identifiers(backend.name(), names).await?;
        for name in names.iter().filter(|name| !known.contains(**name)) {
            let key = format!("{DRAFTS}{name}");
            let location = format!("backend {}: {key}", backend.name());
            match boxed_probe(backend.as_ref(), &key).await {
                Seen::Absent => {}
                Seen::Present(size) => {
                    stray_bytes += size;
                    report.note(Invariant::I3, DRAFTS_NAMED, [format!("{location}, {size} bytes")]);
                }
                Seen::Unknown(why) => report.leave_out(location, &why),
            }
        }
        Ok(stray_bytes)
    }

    /// Checks the unfinished uploads.
    pub(super) async fn check_uploads(&self, backend: &SharedBackend, report: &mut VerifyReport) -> Result<(), Error> {
        report.note(Invariant::I3, UPLOADS_NAMED, []);
        let mut from: Option<UnfinishedUpload> = None;
        loop {
            let page = backend.list_uploads(from.as_ref()).await;
            let page = page.map_err(|source| Error::of(backend, source))?;
            let ours: Vec<_> = page.items.into_iter().filter(|item| is_ours(&item.key)).collect();
            self.check_upload_names(backend, &ours, report).await?;
            match page.next {
                None => return Ok(()),
                next => from = next,
            }
        }
    }

    async fn check_upload_names(
        &self,
        backend: &SharedBackend,
        uploads: &[UnfinishedUpload],
        report: &mut VerifyReport,
    ) -> Result<(), Error> {
        if uploads.is_empty() {
            return Ok(());
        }
        let keys: Vec<&str> = uploads.iter().map(|item| item.key.as_str()).collect();
        let rows = by_key(self.parts.verification.naming_rows(backend.name(), &keys).await?);
        for UnfinishedUpload { key, upload } in uploads {
            let naming = rows.get(key).map(Vec::as_slice).unwrap_or_default();
            if is_named(&Target::Upload(upload.clone()), naming) {
                continue;
            }
            let location = format!("backend {}: upload {upload} of {key}", backend.name());
            match backend.uploads_of(key).await {
                Ok(still) if still.contains(upload) => report.note(Invariant::I3, UPLOADS_NAMED, [location]),
                Ok(_) => {}
                Err(why) => report.leave_out(location, &why),
            }
        }
        Ok(())
    }
}
