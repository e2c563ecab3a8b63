//! The remains of unfinished writes: temporary files, and uploads that were neither finished nor aborted. An intent or
//! a cleanup must name each of them.

use s3o_backend::{DRAFTS, Listed, Probe, UnfinishedUpload};
use s3o_model::reconcile::{FindingKind, PassFault, check_order, fingerprint, is_dismissed, is_owned};
use s3o_model::target::Target;
use s3o_model::verify::{NamingRow, is_ours};

use super::keys::by_key;
use super::{BackendWalk, Difference, PageError, PagePosition, WalkedPage};

/// Number of temporary files in one page: the query for their identifiers reads the whole queue.
const PAGE_DRAFTS: usize = 10_000;
/// Prefix of drafts of our own small objects; each write replaces the last draft.
const OWN_DRAFT: &str = "own-";

impl BackendWalk<'_> {
    pub(super) async fn drafts(&self, after: Option<&str>, mut page: WalkedPage) -> Result<WalkedPage, PageError> {
        let listed = self.backend.list(DRAFTS, after, PAGE_DRAFTS).await.map_err(|error| self.failed(error))?;
        check_order(after, listed.items.iter().map(|item| item.key.as_str()))?;
        page.entries = listed.items.len();
        page.next = match (listed.truncated, listed.items.last()) {
            (false, _) => PagePosition::Uploads(None),
            (true, Some(last)) => PagePosition::Drafts(Some(last.key.clone())),
            (true, None) => return Err(PassFault::EmptyPage.into()),
        };
        let drafts: Vec<(&str, &Listed)> = listed
            .items
            .iter()
            .filter_map(|item| Some((item.key.strip_prefix(DRAFTS)?, item)))
            .filter(|(name, _)| !name.starts_with(OWN_DRAFT))
            .collect();
        if drafts.is_empty() {
            return Ok(page);
        }
        let names: Vec<&str> = drafts.iter().map(|(name, _)| *name).collect();
        let known = self.catalog.named_identifiers(self.backend.name(), &names).await?;
        let unnamed: Vec<&Listed> =
            drafts.into_iter().filter(|(name, _)| !known.contains(*name)).map(|(_, item)| item).collect();
        self.add_drafts(&unnamed, &mut page).await?;
        Ok(page)
    }

    /// A draft is a finding if a probe still finds it after no row named it.
    async fn add_drafts(&self, drafts: &[&Listed], page: &mut WalkedPage) -> Result<(), PageError> {
        let mut still = Vec::new();
        for draft in drafts {
            match self.backend.probe((&draft.key).into()).await {
                Probe::Absent => {}
                Probe::Present(present) => still.push((draft.key.as_str(), present)),
                Probe::Unknown(why) => page.unchecked.push((draft.key.clone(), why)),
            }
        }
        if still.is_empty() {
            return Ok(());
        }
        let keys: Vec<&str> = still.iter().map(|(key, _)| *key).collect();
        let rows = by_key(self.catalog.naming_rows(self.backend.name(), &keys).await?);
        for (key, present) in still {
            let naming = rows.get(key).map(Vec::as_slice).unwrap_or_default();
            if is_owned(&Target::Draft, naming) {
                continue;
            }
            // A file with another name takes no space of its own.
            let is_linked = present.file.is_some_and(|file| file.links > 1);
            let size_bytes = if is_linked { 0 } else { present.size_bytes };
            page.counts.bytes += size_bytes;
            let print = fingerprint(present.etag.as_deref(), present.file.as_ref());
            page.add_remains(FindingKind::Draft, (key, Target::Draft), (size_bytes, print), naming);
        }
        Ok(())
    }

    pub(super) async fn uploads(
        &self,
        from: Option<&(String, String)>,
        mut page: WalkedPage,
    ) -> Result<WalkedPage, PageError> {
        let from = from.map(|(key, upload)| UnfinishedUpload { key: key.clone(), upload: upload.clone() });
        let listed = self.backend.list_uploads(from.as_ref()).await.map_err(|error| self.failed(error))?;
        if listed.next.is_some() && listed.next == from {
            return Err(PassFault::EmptyPage.into());
        }
        page.entries = listed.items.len();
        page.next = match listed.next {
            Some(UnfinishedUpload { key, upload }) => PagePosition::Uploads(Some((key, upload))),
            None => PagePosition::End,
        };
        let ours: Vec<_> = listed.items.into_iter().filter(|item| is_ours(&item.key)).collect();
        if ours.is_empty() {
            return Ok(page);
        }
        let keys: Vec<&str> = ours.iter().map(|item| item.key.as_str()).collect();
        let rows = by_key(self.catalog.naming_rows(self.backend.name(), &keys).await?);
        for item in &ours {
            self.add_upload(item, rows.get(&item.key).map(Vec::as_slice).unwrap_or_default(), &mut page).await;
        }
        Ok(page)
    }

    async fn add_upload(&self, item: &UnfinishedUpload, rows: &[NamingRow], page: &mut WalkedPage) {
        let UnfinishedUpload { key, upload } = item;
        let target = Target::Upload(upload.clone());
        if is_owned(&target, rows) {
            return;
        }
        match self.backend.uploads_of(key).await {
            Ok(still) if still.contains(upload) => {
                page.add_remains(FindingKind::Upload, (key.as_str(), target), (0, String::new()), rows);
            }
            Ok(_) => {}
            Err(why) => page.unchecked.push((format!("upload {upload} of {key}"), why.to_string())),
        }
    }
}

impl WalkedPage {
    fn add_remains(
        &mut self,
        kind: FindingKind,
        (key, target): (&str, Target),
        (size_bytes, fingerprint): (u64, String),
        rows: &[NamingRow],
    ) {
        let dismissed = is_dismissed(&target, kind, (size_bytes, &fingerprint), rows);
        let is_same = |row: &NamingRow| {
            row.finding_kind() == Some(kind)
                && row.target == target
                && (row.size_bytes, row.fingerprint.as_str()) == (size_bytes, fingerprint.as_str())
        };
        let is_known = rows.iter().any(is_same);
        let found = Difference {
            kind,
            physical_key: key.to_owned(),
            target,
            size_bytes,
            fingerprint,
            expected_bytes: None,
            is_lost: false,
            is_known,
            is_stored: true,
        };
        self.add(found, dismissed);
    }
}
