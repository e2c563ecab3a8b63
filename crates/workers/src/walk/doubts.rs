//! Second check of what seemed wrong in the first one: a probe, and then the rows once more.

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use s3o_backend::{Backend, Probe};
use s3o_model::reconcile::{
    FindingKind, ListedTarget, LocatedRuling, UnnamedRuling, check_unlisted, is_dismissed, rule_location,
};
use s3o_model::target::{KeyVersion, Target};
use s3o_model::verify::{NamedBy, NamingRow, Seen};

use super::keys::by_key;
use super::{BackendWalk, Difference, PageError, WalkedPage};

/// Number of concurrent probes.
const PROBES: usize = 8;
/// Number of unlisted locations that are probed before their number is judged for the first time.
const FIRST_PROBED: usize = 128;
/// The same for further ones.
const THEN_PROBED: usize = 1000;

/// What seemed wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Doubt {
    /// Bytes that no row names.
    Unnamed(ListedTarget),
    /// A location that is not listed, or with another size.
    Located { key: String, target: Target, fingerprint: String, is_unlisted: bool },
    /// Bytes that an operator wrote off, and that are not listed.
    WrittenOff { key: String, target: Target },
}

impl Doubt {
    pub(super) fn unlisted(row: &NamingRow) -> Self {
        let (key, target) = (row.physical_key.clone(), row.target.clone());
        Self::Located { key, target, fingerprint: String::new(), is_unlisted: true }
    }

    pub(super) fn key(&self) -> &str {
        match self {
            Self::Unnamed(entry) => &entry.key,
            Self::Located { key, .. } | Self::WrittenOff { key, .. } => key,
        }
    }

    fn target(&self) -> &Target {
        match self {
            Self::Unnamed(entry) => &entry.target,
            Self::Located { target, .. } | Self::WrittenOff { target, .. } => target,
        }
    }
}

impl BackendWalk<'_> {
    /// Checks unlisted keys in steps: a listing that omits many existing keys is not worth a probe of each.
    pub(super) async fn check_unlisted(&self, doubts: Vec<Doubt>, page: &mut WalkedPage) -> Result<(), PageError> {
        let (mut rest, mut step) = (doubts, FIRST_PROBED);
        while !rest.is_empty() {
            let later = rest.split_off(step.min(rest.len()));
            self.check_again(rest, page).await?;
            check_unlisted(page.counts.unlisted_present)?;
            (rest, step) = (later, THEN_PROBED);
        }
        Ok(())
    }

    /// Probes what is in doubt, reads its rows again, and adds what is still wrong to the page.
    pub(super) async fn check_again(&self, doubts: Vec<Doubt>, page: &mut WalkedPage) -> Result<(), PageError> {
        if doubts.is_empty() {
            return Ok(());
        }
        let probes: Vec<_> = doubts.iter().map(|doubt| boxed_second_probe(self.backend.as_ref(), doubt)).collect();
        let seen: Vec<Seen> = futures_util::stream::iter(probes).buffered(PROBES).collect().await;
        let keys: Vec<&str> = doubts.iter().map(Doubt::key).collect();
        let rows = by_key(self.catalog.naming_rows(self.backend.name(), &keys).await?);
        for (doubt, seen) in doubts.iter().zip(seen) {
            page.settle(doubt, seen, rows.get(doubt.key()).map(Vec::as_slice).unwrap_or_default());
        }
        Ok(())
    }
}

/// Probes the target of a doubt.
fn boxed_second_probe<'a>(backend: &'a dyn Backend, doubt: &'a Doubt) -> BoxFuture<'a, Seen> {
    // A probe of a delete marker is no clear answer; it has no bytes that could have been deleted meanwhile.
    if matches!(doubt, Doubt::Unnamed(entry) if entry.is_delete_marker) {
        return Box::pin(async { Seen::Present(0) });
    }
    boxed_probe(backend, KeyVersion::new(doubt.key(), doubt.target().version_id()))
}

/// Probes a key, or a version of it.
pub(crate) fn boxed_probe<'a>(backend: &'a dyn Backend, at: KeyVersion<'a>) -> BoxFuture<'a, Seen> {
    Box::pin(async move {
        match backend.probe(at).await {
            Probe::Present(present) => Seen::Present(present.size_bytes),
            Probe::Absent => Seen::Absent,
            Probe::Unknown(why) => Seen::Unknown(why),
        }
    })
}

impl WalkedPage {
    fn settle(&mut self, doubt: &Doubt, seen: Seen, rows: &[NamingRow]) {
        match doubt {
            Doubt::Unnamed(entry) => match entry.rule(seen, rows) {
                UnnamedRuling::Agrees => {}
                UnnamedRuling::Found(kind) => self.add_entry(kind, entry, rows),
                UnnamedRuling::Unknown(why) => self.unchecked.push((entry.key.clone(), why)),
            },
            Doubt::Located { is_unlisted, .. } => self.settle_location(doubt, seen, rows, *is_unlisted),
            Doubt::WrittenOff { key, target } => {
                if seen == Seen::Absent && rows.iter().all(|row| row.by == NamedBy::WrittenOff) {
                    self.closed.push((key.clone(), target.clone()));
                }
            }
        }
    }

    fn add_entry(&mut self, kind: FindingKind, entry: &ListedTarget, rows: &[NamingRow]) {
        let same = (entry.size_bytes, entry.fingerprint.as_str());
        let dismissed = is_dismissed(&entry.target, kind, same, rows);
        self.add(Difference::of_entry(kind, entry), dismissed);
    }

    fn settle_location(&mut self, doubt: &Doubt, seen: Seen, rows: &[NamingRow], is_unlisted: bool) {
        let (kind, size_bytes, expected_bytes) = match rule_location(doubt.target(), seen, rows) {
            LocatedRuling::Agrees => return,
            LocatedRuling::Present => {
                self.counts.unlisted_present += u64::from(is_unlisted);
                return;
            }
            LocatedRuling::Recovered => return self.recovered.push(doubt.key().to_owned()),
            LocatedRuling::Unknown(why) => return self.unchecked.push((doubt.key().to_owned(), why)),
            LocatedRuling::Missing => (FindingKind::Missing, recorded_size(rows), None),
            LocatedRuling::WrongSize { expected, found } => (FindingKind::WrongSize, found, Some(expected)),
        };
        let fingerprint = match doubt {
            Doubt::Located { fingerprint, .. } if kind == FindingKind::WrongSize => fingerprint.clone(),
            _ => String::new(),
        };
        let dismissed = is_dismissed(doubt.target(), kind, (size_bytes, &fingerprint), rows);
        let found = Difference {
            kind,
            physical_key: doubt.key().to_owned(),
            target: doubt.target().clone(),
            size_bytes,
            fingerprint,
            expected_bytes,
            is_lost: rows.iter().any(|row| row.by == NamedBy::Location { lost: true }),
            is_known: rows.iter().any(|row| row.finding_kind() == Some(kind)),
            is_stored: true,
        };
        self.add(found, dismissed);
    }
}

fn recorded_size(rows: &[NamingRow]) -> u64 {
    let location = rows.iter().find(|row| matches!(row.by, NamedBy::Location { .. }));
    location.map_or(0, |row| row.size_bytes)
}
