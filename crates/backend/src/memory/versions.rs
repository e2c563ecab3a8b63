//! The versions of the keys of a memory backend. One without versions has at most one under each key.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use s3o_model::clock::Timestamp;
use s3o_model::physical_key::RESERVED_PREFIX;
use s3o_model::target::KeyVersion;

use crate::{DeleteAnswer, DeleteKey, Listed, ListedVersion, Page, Present, VersionPosition, VersionsPage};

/// The bytes of one version.
#[derive(Clone)]
pub(super) struct MemoryObject {
    pub(super) bytes: Bytes,
    pub(super) etag: String,
    pub(super) modified: Option<Timestamp>,
}

/// One version of a key.
pub(super) struct MemoryVersion {
    /// Empty on a backend without versions.
    pub(super) id: String,
    /// `None` for a delete marker.
    pub(super) object: Option<MemoryObject>,
}

/// All keys with their versions, oldest first.
#[derive(Default)]
pub(super) struct MemoryObjects {
    keys: BTreeMap<String, Vec<MemoryVersion>>,
    keeps_versions: bool,
    versions_stored: u64,
}

impl MemoryObjects {
    pub(super) fn keep_versions(&mut self) {
        self.keeps_versions = true;
    }

    pub(super) const fn keeps_versions(&self) -> bool {
        self.keeps_versions
    }

    /// Stores a version, or replaces the object on a backend without versions. Returns the version ID, if there is one.
    pub(super) fn store(&mut self, key: &str, object: Option<MemoryObject>) -> Option<String> {
        let versions = self.keys.entry(key.to_owned()).or_default();
        if !self.keeps_versions {
            *versions = vec![MemoryVersion { id: String::new(), object }];
            return None;
        }
        self.versions_stored += 1;
        let id = format!("version-{}", self.versions_stored);
        versions.push(MemoryVersion { id: id.clone(), object });
        Some(id)
    }

    /// Replaces the bytes of the current version, or removes all versions.
    pub(super) fn damage(&mut self, key: &str, object: Option<MemoryObject>) {
        let current = self.keys.get_mut(key).and_then(|versions| versions.last_mut());
        match (current, object) {
            (Some(current), Some(object)) => current.object = Some(object),
            (None, Some(object)) => drop(self.store(key, Some(object))),
            (_, None) => drop(self.keys.remove(key)),
        }
    }

    pub(super) fn find(&self, at: KeyVersion<'_>) -> Option<(&str, &MemoryObject)> {
        let versions = self.keys.get(at.key)?;
        let version = match at.version_id {
            Some(id) => versions.iter().find(|version| version.id == id),
            None => versions.last(),
        };
        version.and_then(|version| Some((version.id.as_str(), version.object.as_ref()?)))
    }

    pub(super) fn present(&self, at: KeyVersion<'_>) -> Option<Present> {
        let (id, object) = self.find(at)?;
        Some(Present {
            size_bytes: object.bytes.len() as u64,
            etag: Some(object.etag.clone()),
            version_id: (!id.is_empty()).then(|| id.to_owned()),
            file: None,
        })
    }

    /// Every version of every key, delete markers included.
    pub(super) fn all(&self) -> impl Iterator<Item = (&String, &MemoryVersion)> {
        self.keys.iter().flat_map(|(key, versions)| versions.iter().map(move |version| (key, version)))
    }

    /// Keys with a current object.
    pub(super) fn current(&self) -> impl Iterator<Item = (&String, &MemoryObject)> {
        self.keys.iter().filter_map(|(key, versions)| Some((key, versions.last()?.object.as_ref()?)))
    }

    pub(super) fn delete(&mut self, target: &DeleteKey) -> DeleteAnswer {
        let Some(versions) = self.keys.get_mut(&target.key) else { return DeleteAnswer::Absent };
        let before = versions.len();
        let objects = versions.iter().filter(|version| version.object.is_some()).count();
        match &target.version_id {
            Some(id) => versions.retain(|version| version.id != *id),
            // No other program writes objects of s3o's own, so all of their versions are deleted.
            None if target.key.starts_with(RESERVED_PREFIX) => versions.clear(),
            None if objects > 1 => {
                return DeleteAnswer::Refused(format!("the key has {objects} versions, and none was named"));
            }
            None => versions.retain(|version| version.object.is_none()),
        }
        let deleted = versions.len() < before;
        if versions.is_empty() {
            self.keys.remove(&target.key);
        }
        if deleted { DeleteAnswer::Deleted } else { DeleteAnswer::Absent }
    }

    pub(super) fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Page {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            Some(_) | None => Bound::Included(prefix),
        };
        let mut found = self.range(prefix, from).filter_map(|(key, versions)| {
            let object = versions.last()?.object.as_ref()?;
            Some(Listed {
                key: key.clone(),
                size_bytes: object.bytes.len() as u64,
                etag: Some(object.etag.clone()),
                modified: object.modified,
                file: None,
            })
        });
        let items = found.by_ref().take(limit).collect();
        Page { items, truncated: found.next().is_some() }
    }

    pub(super) fn list_versions(&self, prefix: &str, after: Option<&VersionPosition>, limit: usize) -> VersionsPage {
        let from = match after {
            Some(VersionPosition { key, version_id: Some(_) }) if key.as_str() >= prefix => {
                Bound::Included(key.as_str())
            }
            Some(VersionPosition { key, version_id: None }) if key.as_str() >= prefix => Bound::Excluded(key.as_str()),
            Some(_) | None => Bound::Included(prefix),
        };
        let mut found = self.range(prefix, from).flat_map(|(key, versions)| newest_first(key, versions, after));
        let items: Vec<ListedVersion> = found.by_ref().take(limit).collect();
        let last = items.last().filter(|_| found.next().is_some());
        let next =
            last.map(|last| VersionPosition { key: last.key.clone(), version_id: Some(last.version_id.clone()) });
        VersionsPage { items, next }
    }

    fn range<'a>(
        &'a self,
        prefix: &'a str,
        from: Bound<&'a str>,
    ) -> impl Iterator<Item = (&'a String, &'a Vec<MemoryVersion>)> {
        let includes_own = prefix.starts_with(RESERVED_PREFIX);
        self.keys
            .range::<str, _>((from, Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(prefix))
            .filter(move |(key, _)| includes_own || !key.starts_with(RESERVED_PREFIX))
    }
}

/// The entries of one key that follow a position.
fn newest_first(key: &str, versions: &[MemoryVersion], after: Option<&VersionPosition>) -> Vec<ListedVersion> {
    let passed = after.filter(|after| after.key == key).and_then(|after| after.version_id.as_deref());
    let entries = versions.iter().enumerate().rev().map(|(position, version)| ListedVersion {
        key: key.to_owned(),
        version_id: version.id.clone(),
        is_latest: position + 1 == versions.len(),
        is_delete_marker: version.object.is_none(),
        size_bytes: version.object.as_ref().map_or(0, |object| object.bytes.len() as u64),
        etag: version.object.as_ref().map(|object| object.etag.clone()),
        modified: version.object.as_ref().and_then(|object| object.modified),
    });
    match passed {
        Some(passed) => entries.skip_while(|entry| entry.version_id != passed).skip(1).collect(),
        None => entries.collect(),
    }
}
