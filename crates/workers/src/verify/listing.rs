//! Compares one backend's keys with the rows that name them, a page at a time.

use std::collections::HashSet;

use s3o_backend::{Listed, SharedBackend};
use s3o_model::verify::{FirstCheck, Invariant, KeyDoubt, listed};

use super::keys::{by_key, register_checks};
use super::report::{BackendHeld, VerifyReport};
use super::{ROWS_MAX, Verifier};
use crate::Error;

/// Number of keys in one page of a listing.
const PAGE_KEYS: usize = 1000;
const AT_REST: &str = "the bytes at rest equal the quota accounting";

impl Verifier {
    /// Compares all keys, drafts and uploads that the backend lists, and all locations that it should list.
    pub(super) async fn list(&self, backend: &SharedBackend, report: &mut VerifyReport) -> Result<(), Error> {
        let name = backend.name();
        let before = self.parts.verification.pulse(name).await?;
        let (objects, bytes, foreign) = (0, 0, 0);
        let mut held = BackendHeld { backend: name.to_string(), objects, bytes, foreign, accounted_bytes: None };
        self.check_keys(backend, &mut held, report).await?;
        held.bytes += self.check_drafts(backend, report).await?;
        self.check_uploads(backend, report).await?;
        // Writes in progress have bytes that are not accounted yet; totals are compared only if nothing
        // changed during the listing and everything was listed.
        let is_complete = report.unchecked.is_empty();
        if is_complete && !before.unsettled && self.parts.verification.pulse(name).await? == before {
            let broken = format!("backend {name}: found {} bytes, quota accounting has {}", held.bytes, before.bytes);
            report.note(Invariant::I7, AT_REST, (held.bytes != before.bytes).then_some(broken));
            held.accounted_bytes = Some(before.bytes);
        }
        report.backends.push(held);
        Ok(())
    }

    async fn check_keys(
        &self,
        backend: &SharedBackend,
        held: &mut BackendHeld,
        report: &mut VerifyReport,
    ) -> Result<(), Error> {
        register_checks(report);
        let mut after: Option<String> = None;
        loop {
            let page = backend.list("", after.as_deref(), PAGE_KEYS).await;
            let page = page.map_err(|source| Error::of(backend, source))?;
            let last = page.items.last().map(|item| item.key.clone());
            let upto = if page.truncated { last.as_deref() } else { None };
            let unnamed = self.check_listed(backend, &page.items, held).await?;
            self.recheck(backend, unnamed, held, report).await?;
            self.check_unlisted(backend, &page.items, (after.as_deref(), upto), held, report).await?;
            self.progress.add_seen(page.items.len());
            if !page.truncated {
                return Ok(());
            }
            let stuck = s3o_backend::Error::Unknown("an empty page is marked as truncated".to_owned());
            after = Some(last.ok_or_else(|| Error::of(backend, stuck))?);
        }
    }

    /// First check of the keys of a page; returns those that need a second one.
    async fn check_listed(
        &self,
        backend: &SharedBackend,
        items: &[Listed],
        held: &mut BackendHeld,
    ) -> Result<Vec<(String, KeyDoubt)>, Error> {
        let keys: Vec<&str> = items.iter().map(|item| item.key.as_str()).collect();
        let rows = by_key(self.parts.verification.naming_rows(backend.name(), &keys).await?);
        let mut doubted = Vec::new();
        for item in items {
            let naming = rows.get(item.key.as_str()).map(Vec::as_slice).unwrap_or_default();
            match listed(&item.key, item.size_bytes, naming) {
                FirstCheck::Agrees => {
                    held.objects += 1;
                    held.bytes += item.size_bytes;
                }
                FirstCheck::Foreign => held.foreign += 1,
                FirstCheck::Doubt(doubt) => doubted.push((item.key.clone(), doubt)),
            }
        }
        Ok(doubted)
    }

    /// Checks locations in the range of a page that the page does not list.
    async fn check_unlisted(
        &self,
        backend: &SharedBackend,
        items: &[Listed],
        (after, upto): (Option<&str>, Option<&str>),
        held: &mut BackendHeld,
        report: &mut VerifyReport,
    ) -> Result<(), Error> {
        let shown: HashSet<&str> = items.iter().map(|item| item.key.as_str()).collect();
        let mut from = after.unwrap_or_default().to_owned();
        loop {
            let located = self.parts.verification.located_keys(backend.name(), &from, upto, ROWS_MAX).await?;
            let Some(last) = located.last().cloned() else { return Ok(()) };
            let whole = located.len() < ROWS_MAX;
            let missing = located.into_iter().filter(|key| !shown.contains(key.as_str()));
            let missing = missing.map(|key| (key, KeyDoubt::Located)).collect();
            self.recheck(backend, missing, held, report).await?;
            if whole {
                return Ok(());
            }
            from = last;
        }
    }
}
