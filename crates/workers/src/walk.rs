//! One walk over everything that a backend stores, page by page, and over the rows that name it. `verify --deep` and
//! the reconciler consume its pages; it stores nothing and changes nothing.
//!
//! Objects come first, then temporary files, then unfinished uploads. Every difference is checked twice.

mod doubts;
mod keys;
mod listing;
mod unfinished;

use std::sync::Arc;

use s3o_backend::SharedBackend;
use s3o_backend::fleet::Fleet;
use s3o_catalog::{Catalog, FolderCount};
use s3o_model::clock::Timestamp;
use s3o_model::names::BackendName;
use s3o_model::reconcile::{FindingKind, PassCounts, PassFault, can_be_stored};
use s3o_model::target::Target;
use serde::{Deserialize, Serialize};

use crate::Error;

/// A walk over one backend.
pub(crate) struct BackendWalk<'a> {
    /// Rows that name bytes.
    pub catalog: &'a Arc<Catalog>,
    /// The backend that is listed.
    pub backend: &'a SharedBackend,
    /// Locations that were verified since need not be listed.
    pub cut_off: Timestamp,
    /// True if the backend keeps versions, so that they are listed.
    pub keeps_versions: bool,
}

/// Where the next page begins. Stored in the catalog as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PagePosition {
    /// Objects after this key.
    Keys(Option<String>),
    /// Temporary files after this key.
    Drafts(Option<String>),
    /// Unfinished uploads after this key and upload.
    Uploads(Option<(String, String)>),
    /// Every page was read.
    End,
}

/// A difference between the backend and the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    pub kind: FindingKind,
    pub physical_key: String,
    pub target: Target,
    /// Length of the bytes that are there; of the content, if they are missing.
    pub size_bytes: u64,
    pub fingerprint: String,
    /// Size of the content, for a location of another size.
    pub expected_bytes: Option<u64>,
    /// True if the location is known to be lost.
    pub is_lost: bool,
    /// True if a finding reports the same.
    pub is_known: bool,
    /// True unless the pass has too many findings of this kind.
    pub is_stored: bool,
}

/// What a part of the listing and its rows say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WalkedPage {
    /// Where the next page begins.
    pub next: PagePosition,
    /// Counts of the whole walk, this page included.
    pub counts: PassCounts,
    /// In the order of their keys.
    pub found: Vec<Difference>,
    /// Bytes that an operator wrote off and that are proven absent.
    pub closed: Vec<(String, Target)>,
    /// Keys of lost locations of which bytes of the right size are there.
    pub recovered: Vec<String>,
    /// Foreign keys by first folder.
    pub folders: Vec<FolderCount>,
    /// What could not be checked, with the reason.
    pub unchecked: Vec<(String, String)>,
    /// Number of entries that the backend listed.
    pub entries: usize,
}

/// Why a page could not be read.
#[derive(Debug)]
pub(crate) enum PageError {
    /// The listing cannot be relied on.
    Fault(PassFault),
    /// The backend or the catalog did not answer; the page can be read again.
    Failed(Error),
}

impl From<PassFault> for PageError {
    fn from(fault: PassFault) -> Self {
        Self::Fault(fault)
    }
}

impl From<s3o_catalog::Error> for PageError {
    fn from(error: s3o_catalog::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl PagePosition {
    /// The start of a walk.
    pub const START: Self = Self::Keys(None);

    /// Value in the catalog.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("a position always serialises")
    }

    /// Reads a value of `to_text`.
    pub fn from_text(text: &str) -> Result<Self, Error> {
        let corrupt = |error: serde_json::Error| s3o_catalog::Error::Corrupt(format!("position {text:?}: {error}"));
        serde_json::from_str(text).map_err(|error| corrupt(error).into())
    }
}

/// True if a backend keeps versions, as far as its probe at attach found.
pub(crate) fn keeps_versions(fleet: &Fleet, name: &BackendName) -> bool {
    let traits = fleet.state(name).and_then(|state| state.traits.clone());
    traits.is_some_and(|traits| traits.keeps_versions)
}

impl BackendWalk<'_> {
    /// Reads the next page of a walk that counted `counts` before.
    pub async fn page(&self, at: &PagePosition, counts: &PassCounts) -> Result<WalkedPage, PageError> {
        let page = WalkedPage::after(counts);
        match at {
            PagePosition::Keys(after) => self.keys(after.as_deref(), page).await,
            PagePosition::Drafts(after) => self.drafts(after.as_deref(), page).await,
            PagePosition::Uploads(from) => self.uploads(from.as_ref(), page).await,
            PagePosition::End => Ok(page),
        }
    }

    fn failed(&self, source: s3o_backend::Error) -> PageError {
        PageError::Failed(Error::of(self.backend, source))
    }
}

impl WalkedPage {
    fn after(counts: &PassCounts) -> Self {
        Self {
            next: PagePosition::End,
            counts: counts.clone(),
            found: Vec::new(),
            closed: Vec::new(),
            recovered: Vec::new(),
            folders: Vec::new(),
            unchecked: Vec::new(),
            entries: 0,
        }
    }

    /// Counts a difference, and keeps it.
    fn add(&mut self, mut found: Difference, is_dismissed: bool) {
        let is_wanted = self.counts.count(found.kind, found.size_bytes, is_dismissed);
        found.is_stored = is_wanted && can_be_stored(&found.physical_key, &found.target);
        self.found.push(found);
    }
}
