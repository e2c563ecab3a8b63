//! What a pass would find now, without storing it.

use std::collections::BTreeMap;
use std::sync::Arc;

use s3o_backend::SharedBackend;
use s3o_backend::fleet::Fleet;
use s3o_catalog::Catalog;
use s3o_model::reconcile::PassCounts;

use super::view::{FolderView, FoundView, PassView};
use crate::Error;
use crate::identity::IdentityWorker;
use crate::walk::{BackendWalk, PageError, PagePosition, keeps_versions};

/// Number of findings that a dry run shows of each backend; all are counted.
const SHOWN_MAX: usize = 10_000;

/// Reads a whole backend and compares it with the catalog; stores nothing.
pub(super) async fn dry_run(
    catalog: &Arc<Catalog>,
    fleet: &Fleet,
    identity: &IdentityWorker,
    backend: &SharedBackend,
    max_delete_fraction: f64,
) -> Result<PassView, Error> {
    let name = backend.name();
    if let Some(fault) = identity.store_fault(backend).await? {
        return Ok(invalid(backend, PassCounts::default(), &fault));
    }
    let cut_off = catalog.present_time().await?;
    let walk = BackendWalk { catalog, backend, cut_off, keeps_versions: keeps_versions(fleet, name) };
    let (mut at, mut counts, mut findings) = (PagePosition::START, PassCounts::default(), Vec::new());
    let mut folders: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    while at != PagePosition::End {
        let page = match walk.page(&at, &counts).await {
            Ok(page) => page,
            Err(PageError::Fault(fault)) => return Ok(invalid(backend, counts, &fault)),
            Err(PageError::Failed(error)) => return Err(error),
        };
        let capacity = SHOWN_MAX.saturating_sub(findings.len());
        findings.extend(page.found.iter().filter(|found| found.is_stored).take(capacity).map(FoundView::from));
        for counted in page.folders {
            let folder = folders.entry(counted.folder).or_default();
            *folder = (folder.0 + counted.keys, folder.1 + counted.bytes);
        }
        (at, counts) = (page.next, page.counts);
    }
    if let Some(fault) = identity.store_fault(backend).await? {
        return Ok(invalid(backend, counts, &fault));
    }
    let held = counts.hold(max_delete_fraction);
    let folders = folders.into_iter().map(|(folder, (keys, bytes))| FolderView { folder, keys, bytes });
    Ok(PassView { held, findings, folders: folders.collect(), ..PassView::of_counts(name, counts) })
}

fn invalid(backend: &SharedBackend, counts: PassCounts, fault: &impl ToString) -> PassView {
    let view = PassView::of_counts(backend.name(), counts);
    PassView { state: "invalid".to_owned(), reason: Some(fault.to_string()), ..view }
}
