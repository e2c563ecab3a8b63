//! One backend's keys against the rows that name them, a page at a time.

use std::collections::HashSet;

use s3o_backend::{Listed, SharedBackend};
use s3o_model::verify::{Doubt, FirstLook, Invariant, listed};

use super::keys::{Doubted, by_key};
use super::report::{BackendHeld, VerifyReport};
use super::{ROWS_MAX, Verifier, failed};
use crate::Error;

/// How many keys one page of a listing has at most.
const PAGE_KEYS: usize = 1000;
const AT_REST: &str = "the bytes at rest are those in the books";

impl Verifier {
    /// Compares everything that a backend shows, and everything that it should show.
    pub(super) async fn list(&self, backend: &SharedBackend, report: &mut VerifyReport) -> Result<(), Error> {
        let name = backend.name();
        let before = self.parts.verification.pulse(name).await?;
        let (objects, bytes, foreign) = (0, 0, 0);
        let mut held = BackendHeld { backend: name.to_string(), objects, bytes, foreign, books_bytes: None };
        self.check_keys(backend, &mut held, report).await?;
        held.bytes += self.check_drafts(backend, report).await?;
        self.check_uploads(backend, report).await?;
        // A system that goes on has bytes on their way; only one that stood still, and was seen whole,
        // can be weighed.
        let seen_whole = report.unchecked.is_empty();
        if seen_whole && !before.unsettled && self.parts.verification.pulse(name).await? == before {
            let broken = format!("backend {name}: {} bytes are there, {} are in the books", held.bytes, before.bytes);
            report.note(Invariant::I7, AT_REST, (held.bytes != before.bytes).then_some(broken));
            held.books_bytes = Some(before.bytes);
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
        Doubted::register(report);
        let mut after: Option<String> = None;
        loop {
            let page = backend.list("", after.as_deref(), PAGE_KEYS).await;
            let page = page.map_err(|source| failed(backend, source))?;
            let last = page.items.last().map(|item| item.key.clone());
            let upto = if page.truncated { last.as_deref() } else { None };
            let unnamed = self.look_at_listed(backend, &page.items, held).await?;
            self.settle(backend, unnamed, held, report).await?;
            self.look_for_unlisted(backend, &page.items, (after.as_deref(), upto), held, report).await?;
            self.progress.seen(page.items.len());
            if !page.truncated {
                return Ok(());
            }
            let stuck = || failed(backend, s3o_backend::Error::Unknown("an empty page promises more".to_owned()));
            after = Some(last.ok_or_else(stuck)?);
        }
    }

    /// A first look at the keys of a page, after they were listed.
    async fn look_at_listed(
        &self,
        backend: &SharedBackend,
        items: &[Listed],
        held: &mut BackendHeld,
    ) -> Result<Vec<(String, Doubt)>, Error> {
        let keys: Vec<&str> = items.iter().map(|item| item.key.as_str()).collect();
        let rows = by_key(self.parts.verification.naming_rows(backend.name(), &keys).await?);
        let mut doubted = Vec::new();
        for item in items {
            let naming = rows.get(item.key.as_str()).map(Vec::as_slice).unwrap_or_default();
            match listed(&item.key, item.size_bytes, naming) {
                FirstLook::Agrees => {
                    held.objects += 1;
                    held.bytes += item.size_bytes;
                }
                FirstLook::Foreign => held.foreign += 1,
                FirstLook::Doubt(doubt) => doubted.push((item.key.clone(), doubt)),
            }
        }
        Ok(doubted)
    }

    /// Locations in the range of a page that the page does not show.
    async fn look_for_unlisted(
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
            let missing = missing.map(|key| (key, Doubt::Located)).collect();
            self.settle(backend, missing, held, report).await?;
            if whole {
                return Ok(());
            }
            from = last;
        }
    }
}
