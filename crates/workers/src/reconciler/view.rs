//! Passes as the admin API shows them.

use std::collections::BTreeMap;

use s3o_catalog::{FolderCount, ReconcilePass};
use s3o_model::names::BackendName;
use s3o_model::reconcile::{FindingKind, PassCounts};
use serde::Serialize;

use crate::walk::Difference;

/// A pass, or a dry run of one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PassView {
    /// The backend that is listed.
    pub backend: String,
    /// Identifier of the pass; `None` for a dry run.
    pub pass: Option<i64>,
    /// Such as `open`, `done` or `invalid`; `dry_run` for a dry run.
    pub state: String,
    /// Why an operator must approve what it found.
    pub held: Option<String>,
    /// Why it is not valid, or why its last page failed.
    pub reason: Option<String>,
    /// Number of listed keys that are s3o's.
    pub keys: u64,
    /// Bytes of these keys.
    pub bytes: u64,
    /// Number of other keys.
    pub foreign_keys: u64,
    /// Bytes of the other keys.
    pub foreign_bytes: u64,
    /// Numbers of findings by kind.
    pub found: BTreeMap<FindingKind, KindView>,
    /// Foreign keys by first folder, the largest folders first.
    pub folders: Vec<FolderView>,
    /// What a dry run found; a pass stores it as findings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<FoundView>,
    /// When the pass began, in RFC 3339.
    pub started_at: Option<String>,
    /// When it ended, in RFC 3339.
    pub ended_at: Option<String>,
    /// The instance that stored the last page.
    pub instance: Option<String>,
}

/// Findings of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct KindView {
    /// All of them, stored or not.
    pub total: u64,
    /// Sum of their sizes.
    pub bytes: u64,
    /// Those that an operator dismissed.
    pub dismissed: u64,
}

/// Foreign keys with the same first folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FolderView {
    /// Name of the folder with a slash.
    pub folder: String,
    /// Number of keys.
    pub keys: u64,
    /// Sum of their sizes.
    pub bytes: u64,
}

/// A finding that is not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FoundView {
    /// Kind of the finding.
    pub kind: FindingKind,
    /// Key on the backend.
    pub physical_key: String,
    /// Version, upload or draft under the key; empty for the key itself.
    pub target: String,
    /// Length of the bytes.
    pub size_bytes: u64,
}

impl PassView {
    /// A stored pass with its foreign folders.
    pub(super) fn of(pass: ReconcilePass, folders: Vec<FolderCount>) -> Self {
        let view = Self::of_counts(&pass.backend, pass.counts);
        Self {
            pass: Some(pass.id),
            state: pass.state.as_str().to_owned(),
            held: pass.held,
            reason: pass.reason,
            folders: folders.into_iter().map(FolderView::from).collect(),
            started_at: Some(pass.cut_off.to_string()),
            ended_at: pass.ended_at.map(|ended| ended.to_string()),
            instance: Some(pass.instance),
            ..view
        }
    }

    pub(super) fn of_counts(backend: &BackendName, counts: PassCounts) -> Self {
        let PassCounts { keys, bytes, foreign_keys, foreign_bytes, found, .. } = counts;
        let kinds = found.into_iter().map(|(kind, found)| {
            (kind, KindView { total: found.total, bytes: found.bytes, dismissed: found.dismissed })
        });
        Self {
            backend: backend.to_string(),
            pass: None,
            state: "dry_run".to_owned(),
            held: None,
            reason: None,
            keys,
            bytes,
            foreign_keys,
            foreign_bytes,
            found: kinds.collect(),
            folders: Vec::new(),
            findings: Vec::new(),
            started_at: None,
            ended_at: None,
            instance: None,
        }
    }
}

impl From<FolderCount> for FolderView {
    fn from(counted: FolderCount) -> Self {
        let FolderCount { folder, keys, bytes } = counted;
        Self { folder, keys, bytes }
    }
}

impl From<&Difference> for FoundView {
    fn from(found: &Difference) -> Self {
        Self {
            kind: found.kind,
            physical_key: found.physical_key.clone(),
            target: found.target.to_column(),
            size_bytes: found.size_bytes,
        }
    }
}
