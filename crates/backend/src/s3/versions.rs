//! Buckets that keep versions: their listing, and deletes that name no version or expect certain bytes.

use http::Method;
use http::StatusCode;
use http::header::IF_MATCH;
use s3o_model::physical_key::RESERVED_PREFIX;
use s3o_model::target::{ExpectedBytes, KeyVersion};

use super::S3;
use super::answer::as_delete_answer;
use super::list::{KeyDecoder, ListOrder, PAGE_KEYS_MAX, parse_time};
use super::transport::{RequestError, S3Request, unquote};
use super::xml::XmlElement;
use crate::{
    DeleteAnswer, DeleteKey, Error, ExpectedDelete, ListedVersion, Present, Probe, VersionPosition, VersionsPage,
};

/// Number of pages of versions of one key; more means that new ones appear as fast as they are deleted.
const PURGE_ROUNDS_MAX: usize = 32;

impl S3 {
    /// Pages that have only objects of s3o's own are skipped.
    pub(super) async fn list_object_versions(
        &self,
        prefix: &str,
        after: Option<&VersionPosition>,
        limit: usize,
    ) -> Result<VersionsPage, Error> {
        if !self.keeps_versions() {
            return Err(Error::Unsupported("versions in a bucket that keeps none"));
        }
        // Such a store starts the next page after the wrong key, and so omits keys without an error.
        if self.known_order().await? == ListOrder::Folders {
            return Err(Error::Unsupported("versions in a bucket that is listed folder by folder"));
        }
        let includes_own = prefix.starts_with(RESERVED_PREFIX);
        let mut after = after.cloned();
        loop {
            let mut page = self.versions_page(prefix, after.as_ref(), limit).await?;
            page.items.retain(|item| includes_own || !item.key.starts_with(RESERVED_PREFIX));
            if !page.items.is_empty() || page.next.is_none() {
                return Ok(page);
            }
            after = page.next;
        }
    }

    async fn versions_page(
        &self,
        prefix: &str,
        after: Option<&VersionPosition>,
        limit: usize,
    ) -> Result<VersionsPage, Error> {
        let max_keys = limit.clamp(1, PAGE_KEYS_MAX).to_string();
        let mut query =
            vec![("versions", ""), ("encoding-type", "url"), ("prefix", prefix), ("max-keys", max_keys.as_str())];
        if let Some(after) = after {
            query.push(("key-marker", &after.key));
            query.extend(after.version_id.as_deref().map(|version| ("version-id-marker", version)));
        }
        read_versions(&self.transport.listing(&query).await?, prefix, after)
    }

    /// Deletes what a delete without a version left. `marker` is the delete marker that it added.
    pub(super) async fn delete_versions_left(&self, key: &str, marker: Option<String>) -> DeleteAnswer {
        if key.starts_with(RESERVED_PREFIX) {
            return self.purge_versions(key).await;
        }
        if let Some(marker) = marker {
            match self.delete_version(key, &marker).await {
                DeleteAnswer::Deleted | DeleteAnswer::Absent => {}
                failed @ (DeleteAnswer::Away(_) | DeleteAnswer::Unknown(_) | DeleteAnswer::Refused(_)) => {
                    return failed;
                }
            }
        }
        self.delete_only_version(key).await
    }

    /// Deletes the only version of a key. Which one is s3o's was never learnt, so of several none is deleted. Delete
    /// markers stay: s3o writes none.
    async fn delete_only_version(&self, key: &str) -> DeleteAnswer {
        let entries = match self.versions_of(key).await {
            Ok(entries) => entries,
            Err(error) => return as_delete_answer(&error),
        };
        let versions: Vec<_> = entries.into_iter().filter(|entry| !entry.is_delete_marker).collect();
        match versions.as_slice() {
            [] => DeleteAnswer::Absent,
            [only] => self.delete_version(key, &only.version_id).await,
            several => DeleteAnswer::Refused(format!(
                "the key has {} versions, and which one s3o wrote is not known",
                several.len()
            )),
        }
    }

    /// Deletes every version and delete marker of an object of s3o's own, which is replaced many times.
    async fn purge_versions(&self, key: &str) -> DeleteAnswer {
        let mut purged = DeleteAnswer::Absent;
        for _ in 0..PURGE_ROUNDS_MAX {
            let versions = match self.versions_of(key).await {
                Ok(versions) => versions,
                Err(error) => return as_delete_answer(&error),
            };
            if versions.is_empty() {
                return purged;
            }
            purged = DeleteAnswer::Deleted;
            for version in versions {
                match self.delete_version(key, &version.version_id).await {
                    DeleteAnswer::Deleted | DeleteAnswer::Absent => {}
                    failed @ (DeleteAnswer::Away(_) | DeleteAnswer::Unknown(_) | DeleteAnswer::Refused(_)) => {
                        return failed;
                    }
                }
            }
        }
        DeleteAnswer::Unknown("new versions of the key appear faster than they are deleted".to_owned())
    }

    /// One page of the versions and delete markers of exactly this key.
    async fn versions_of(&self, key: &str) -> Result<Vec<ListedVersion>, Error> {
        let page = self.versions_page(key, None, PAGE_KEYS_MAX).await?;
        Ok(page.items.into_iter().filter(|entry| entry.key == key).collect())
    }

    /// Compares the bytes with the expected ones, and deletes exactly the compared ones: by their version, or by a
    /// condition on their ETag. A store that ignores the condition deletes what is there at that moment.
    pub(super) async fn delete_expected_object(&self, target: &DeleteKey, expected: &ExpectedBytes) -> ExpectedDelete {
        let at = KeyVersion::new(&target.key, target.version_id.as_deref());
        let found = match self.probe_object(at).await {
            Probe::Present(found) => found,
            Probe::Absent => return ExpectedDelete::Answered(DeleteAnswer::Absent),
            Probe::Unknown(why) => return ExpectedDelete::Answered(DeleteAnswer::Unknown(why)),
        };
        match expected.difference(&found.expected()) {
            Some(why) => ExpectedDelete::Changed(why),
            None => self.delete_compared(target, &found).await,
        }
    }

    async fn delete_compared(&self, target: &DeleteKey, found: &Present) -> ExpectedDelete {
        let version = target.version_id.as_deref().or(found.version_id.as_deref());
        let (None, Some(etag)) = (version, &found.etag) else {
            let version = version.unwrap_or("null");
            return ExpectedDelete::Answered(self.delete_version(&target.key, version).await);
        };
        let request = S3Request::new(Method::DELETE, Some(&target.key), &[]);
        match self.transport.answer(request.header(IF_MATCH, &format!("\"{etag}\""))).await {
            Ok(_) => ExpectedDelete::Answered(DeleteAnswer::Deleted),
            Err(RequestError::Response(failure)) if failure.status == StatusCode::PRECONDITION_FAILED => {
                ExpectedDelete::Changed("the store refused the condition on the ETag".to_owned())
            }
            Err(error) if error.not_implemented() => {
                let mut answers = self.delete_objects(std::slice::from_ref(target)).await;
                let unanswered = || DeleteAnswer::Unknown("no answer for this key".to_owned());
                ExpectedDelete::Answered(answers.pop().unwrap_or_else(unanswered))
            }
            Err(RequestError::Response(failure)) => ExpectedDelete::Answered(failure.delete_answer()),
            Err(RequestError::Lost(error)) => ExpectedDelete::Answered(as_delete_answer(&error)),
        }
    }
}

/// Reads a page. Some stores return all versions before all delete markers, so the entries are sorted: keys in byte
/// order, and within a key the newest first.
fn read_versions(root: &XmlElement, prefix: &str, after: Option<&VersionPosition>) -> Result<VersionsPage, Error> {
    if root.name != "ListVersionsResult" {
        return Err(Error::Unknown(format!("the listing of versions returned <{}>", root.name)));
    }
    let decoder = KeyDecoder::of(root);
    let versions = root.all("Version").map(|entry| read_version(entry, decoder, false));
    let markers = root.all("DeleteMarker").map(|entry| read_version(entry, decoder, true));
    let mut items = versions.chain(markers).collect::<Result<Vec<_>, _>>()?;
    items.sort_by(|one, other| {
        let newest_first = (other.is_latest, other.modified).cmp(&(one.is_latest, one.modified));
        one.key.cmp(&other.key).then(newest_first)
    });
    let misplaced = |item: &&ListedVersion| {
        !item.key.starts_with(prefix) || after.is_some_and(|after| item.key.as_str() < after.key.as_str())
    };
    if let Some(item) = items.iter().find(misplaced) {
        return Err(Error::Unknown(format!("the listing of versions has the key {:?} in a wrong place", item.key)));
    }
    Ok(VersionsPage { next: next_position(root, decoder, after)?, items })
}

fn read_version(entry: &XmlElement, decoder: KeyDecoder, is_delete_marker: bool) -> Result<ListedVersion, Error> {
    let size = entry.child_text("Size").and_then(|size| size.parse().ok()).or(is_delete_marker.then_some(0));
    let (Some(key), Some(size_bytes)) = (entry.child_text("Key"), size) else {
        return Err(Error::Unknown("the listing of versions has an entry without key or size".to_owned()));
    };
    Ok(ListedVersion {
        key: decoder.decode(key)?,
        version_id: entry.child_text("VersionId").filter(|id| !id.is_empty()).unwrap_or("null").to_owned(),
        is_latest: entry.child_text("IsLatest") == Some("true"),
        is_delete_marker,
        size_bytes,
        etag: entry.child_text("ETag").map(unquote).filter(|etag| !etag.is_empty()),
        modified: entry.child_text("LastModified").and_then(parse_time),
    })
}

/// The start of the next page; it must lie after the start of this one.
fn next_position(
    root: &XmlElement,
    decoder: KeyDecoder,
    after: Option<&VersionPosition>,
) -> Result<Option<VersionPosition>, Error> {
    match root.child_text("IsTruncated") {
        Some("false") => return Ok(None),
        Some("true") => {}
        _ => return Err(Error::Unknown("the listing of versions has no valid IsTruncated".to_owned())),
    }
    let Some(key) = root.child_text("NextKeyMarker").filter(|key| !key.is_empty()) else {
        return Err(Error::Unknown("the truncated listing of versions has no NextKeyMarker".to_owned()));
    };
    let version = root.child_text("NextVersionIdMarker").filter(|version| !version.is_empty());
    let next = VersionPosition { key: decoder.decode(key)?, version_id: version.map(str::to_owned) };
    match after {
        Some(after) if next.key < after.key || next == *after => {
            Err(Error::Unknown(format!("the listing of versions goes back to the key {:?}", next.key)))
        }
        Some(_) | None => Ok(Some(next)),
    }
}

#[cfg(test)]
mod tests {
    use super::{VersionPosition, VersionsPage, read_versions};
    use crate::Error;
    use crate::s3::xml::XmlElement;

    fn page(entries: &str, end: &str, after: Option<&VersionPosition>) -> Result<VersionsPage, Error> {
        let document = format!("<ListVersionsResult>{entries}{end}</ListVersionsResult>");
        read_versions(&XmlElement::parse(document.as_bytes()).expect("valid"), "b/", after)
    }

    fn entry(kind: &str, key: &str, version: &str, rest: &str) -> String {
        format!("<{kind}><Key>{key}</Key><VersionId>{version}</VersionId>{rest}</{kind}>")
    }

    const WHOLE: &str = "<IsTruncated>false</IsTruncated>";

    #[test]
    fn versions_and_markers_of_a_key_are_merged_newest_first() {
        let old = "<Size>3</Size><IsLatest>false</IsLatest><LastModified>2020-01-01T00:00:00Z</LastModified>";
        let new = "<IsLatest>true</IsLatest><LastModified>2021-01-01T00:00:00Z</LastModified>";
        let entries = [
            entry("Version", "b/1", "v1", old),
            entry("Version", "b/2", "v2", "<Size>4</Size>"),
            entry("DeleteMarker", "b/1", "m1", new),
        ];
        let page = page(&entries.concat(), WHOLE, None).expect("a page");
        let found: Vec<_> = page.items.iter().map(|item| (item.version_id.as_str(), item.is_delete_marker)).collect();
        assert_eq!(found, [("m1", true), ("v1", false), ("v2", false)]);
        assert_eq!((page.items[1].size_bytes, page.items[1].is_latest, page.next), (3, false, None));
    }

    #[test]
    fn page_in_a_wrong_place_is_an_error() {
        let at = |key: &str| VersionPosition { key: key.to_owned(), version_id: Some("v".to_owned()) };
        let one = |key| entry("Version", key, "v1", "<Size>3</Size>");
        assert!(page(&one("c/1"), WHOLE, None).is_err());
        assert!(page(&one("b/1"), WHOLE, Some(&at("b/2"))).is_err());
        assert!(page(&one("b/2"), WHOLE, Some(&at("b/2"))).is_ok(), "a key may have versions on two pages");
        let more = "<IsTruncated>true</IsTruncated>";
        assert!(page(&one("b/2"), more, None).is_err());
        let next = "<NextKeyMarker>b/2</NextKeyMarker><NextVersionIdMarker>v</NextVersionIdMarker>";
        assert!(page(&one("b/2"), &format!("{more}{next}"), Some(&at("b/2"))).is_err());
        assert_eq!(page(&one("b/2"), &format!("{more}{next}"), None).expect("a page").next, Some(at("b/2")));
    }
}
