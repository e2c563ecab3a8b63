//! Deleting: batches with an answer per key, singly where a service has no batches.
//!
//! A delete must free bytes. Where a bucket keeps versions, a delete that names none only adds a
//! marker; then the versions of the key are listed and removed one by one.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use base64_simd::STANDARD;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Method;
use http::header::{CONTENT_TYPE, HeaderName};
use md5::{Digest, Md5};

use super::S3;
use super::answer::{as_delete_answer, of_key};
use super::list::Decoder;
use super::transport::{NoAnswer, Payload, Request, header_text};
use super::xml::{Element, element};
use crate::{DeleteAnswer, Doomed, Error};

const BATCH_KEYS_MAX: usize = 1000;
const SINGLES_AT_ONCE: usize = 16;
/// Pages of versions of one key; more would mean that they grow as fast as they are removed.
const PURGE_ROUNDS_MAX: usize = 32;
const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

/// What one delete did.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Removal {
    Said(DeleteAnswer),
    /// The bytes are still there, as versions that nobody named.
    VersionsLeft,
}

impl S3 {
    pub(super) async fn delete_objects(&self, doomed: &[Doomed]) -> Vec<DeleteAnswer> {
        let mut answers = Vec::with_capacity(doomed.len());
        for batch in doomed.chunks(BATCH_KEYS_MAX) {
            let removals = self.remove_all(batch).await;
            let settling: Vec<_> =
                batch.iter().zip(removals).map(|(doomed, removal)| self.settle(&doomed.key, removal)).collect();
            answers.extend(stream::iter(settling).buffered(SINGLES_AT_ONCE).collect::<Vec<_>>().await);
        }
        answers
    }

    async fn settle(&self, key: &str, removal: Removal) -> DeleteAnswer {
        match removal {
            Removal::Said(answer) => answer,
            Removal::VersionsLeft => self.purge_versions(key).await,
        }
    }

    async fn remove_all(&self, batch: &[Doomed]) -> Vec<Removal> {
        if self.wants_singles(batch) {
            return self.remove_singly(batch).await;
        }
        match self.remove_batch(batch).await {
            Ok(removals) => removals,
            Err(none) if none.not_implemented() => {
                self.batch_unsupported.store(true, Ordering::Relaxed);
                self.remove_singly(batch).await
            }
            Err(none) => {
                let answer = match &none {
                    NoAnswer::Failed(failure) => failure.delete_answer(),
                    NoAnswer::Lost(error) => as_delete_answer(error),
                };
                // Whatever the whole batch was told, it was not told about any one key.
                let answer = match answer {
                    DeleteAnswer::Absent => DeleteAnswer::Unknown("the batch was answered with a 404".to_owned()),
                    other => other,
                };
                vec![Removal::Said(answer); batch.len()]
            }
        }
    }

    fn wants_singles(&self, batch: &[Doomed]) -> bool {
        let nameless = |doomed: &Doomed| doomed.version_id.is_none();
        // XML cannot carry control characters.
        let unspeakable = |doomed: &Doomed| doomed.key.chars().any(char::is_control);
        batch.len() == 1
            || self.batch_unsupported.load(Ordering::Relaxed)
            || batch.iter().any(unspeakable)
            || (self.keeps_versions() && batch.iter().any(nameless))
    }

    async fn remove_batch(&self, batch: &[Doomed]) -> Result<Vec<Removal>, NoAnswer> {
        let document = Bytes::from(batch_document(batch));
        let md5 = STANDARD.encode_to_string(Md5::digest(&document));
        let request = Request::new(Method::POST, None, &[("delete", "")])
            .header(CONTENT_MD5, &md5)
            .header(CONTENT_TYPE, "application/xml")
            .carrying(Payload::Known(document));
        let answer = self.transport.answer(request).await?;
        let root = Element::parse(&answer.body).map_err(NoAnswer::Lost)?;
        if root.name != "DeleteResult" {
            return Err(NoAnswer::Lost(Error::Unknown(format!("a batch was answered with {}", root.name))));
        }
        let removals = read_result(&root, batch);
        if removals.contains(&Removal::VersionsLeft) {
            self.found_versions();
        }
        Ok(removals)
    }

    async fn remove_singly(&self, batch: &[Doomed]) -> Vec<Removal> {
        let removing: Vec<_> = batch.iter().map(|doomed| self.remove(doomed)).collect();
        stream::iter(removing).buffered(SINGLES_AT_ONCE).collect().await
    }

    async fn remove(&self, doomed: &Doomed) -> Removal {
        if doomed.version_id.is_none() && self.keeps_versions() {
            return Removal::VersionsLeft;
        }
        let version = doomed.version_id.as_deref();
        let query = version.map(|version| ("versionId", version));
        let request = Request::new(Method::DELETE, Some(&doomed.key), query.as_slice());
        match self.transport.answer(request).await {
            Ok(answer) => {
                let marked = header_text(&answer.headers, "x-amz-delete-marker") == Some("true");
                if marked && version.is_none() {
                    self.found_versions();
                    return Removal::VersionsLeft;
                }
                Removal::Said(DeleteAnswer::Deleted)
            }
            Err(NoAnswer::Failed(failure)) => Removal::Said(failure.delete_answer()),
            Err(NoAnswer::Lost(error)) => Removal::Said(as_delete_answer(&error)),
        }
    }

    /// Removes every version of a key, markers included.
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
                match self.remove(&Doomed { key: key.to_owned(), version_id: Some(version) }).await {
                    Removal::Said(DeleteAnswer::Deleted | DeleteAnswer::Absent) => {}
                    Removal::Said(failed) => return failed,
                    Removal::VersionsLeft => return DeleteAnswer::Unknown("a version could not be named".to_owned()),
                }
            }
        }
        DeleteAnswer::Unknown("the versions of the key do not end".to_owned())
    }

    /// One page of the versions and markers of exactly this key.
    async fn versions_of(&self, key: &str) -> Result<Vec<String>, Error> {
        let query = [("versions", ""), ("prefix", key), ("encoding-type", "url"), ("max-keys", "1000")];
        let answer = self.transport.answer(Request::new(Method::GET, None, &query)).await;
        let root = match answer.map_err(Error::from) {
            Ok(answer) => Element::parse(&answer.body)?,
            Err(Error::NotFound) => return Err(Error::Unknown("the listing of versions was a 404".to_owned())),
            Err(error) => return Err(error),
        };
        let decoder = Decoder::of(&root);
        let entries = root.all("Version").chain(root.all("DeleteMarker"));
        let mut versions = Vec::new();
        for entry in entries {
            if decoder.decode(entry.child_text("Key").unwrap_or_default())? == key {
                versions.push(entry.child_text("VersionId").unwrap_or("null").to_owned());
            }
        }
        Ok(versions)
    }
}

fn batch_document(batch: &[Doomed]) -> String {
    let objects = batch.iter().map(|doomed| {
        let version = doomed.version_id.as_deref().map(|version| element("VersionId", version)).unwrap_or_default();
        format!("<Object>{}{version}</Object>", element("Key", &doomed.key))
    });
    let objects: String = objects.collect();
    format!(r#"<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{objects}<Quiet>false</Quiet></Delete>"#)
}

/// The answers in the order of the batch; a key that the store did not mention is unknown.
fn read_result(root: &Element, batch: &[Doomed]) -> Vec<Removal> {
    let mut said: HashMap<(&str, Option<&str>), Removal> = HashMap::new();
    for deleted in root.all("Deleted") {
        let version = deleted.child_text("VersionId").filter(|version| !version.is_empty());
        let marked = deleted.child_text("DeleteMarker") == Some("true") && version.is_none();
        let removal = if marked { Removal::VersionsLeft } else { Removal::Said(DeleteAnswer::Deleted) };
        said.insert((deleted.child_text("Key").unwrap_or_default(), version), removal);
    }
    for failed in root.all("Error") {
        let version = failed.child_text("VersionId").filter(|version| !version.is_empty());
        let (code, message) = (failed.child_text("Code"), failed.child_text("Message"));
        let answer = of_key(code.unwrap_or_default(), message.unwrap_or_default());
        said.insert((failed.child_text("Key").unwrap_or_default(), version), Removal::Said(answer));
    }
    let unmentioned = Removal::Said(DeleteAnswer::Unknown("the store did not mention this key".to_owned()));
    let answer = |doomed: &Doomed| {
        let exact = said.get(&(doomed.key.as_str(), doomed.version_id.as_deref()));
        // Some stores leave the version out of their answer.
        exact.or_else(|| said.get(&(doomed.key.as_str(), None))).unwrap_or(&unmentioned).clone()
    };
    batch.iter().map(answer).collect()
}

#[cfg(test)]
mod tests {
    use super::{Removal, batch_document, read_result};
    use crate::s3::xml::Element;
    use crate::{DeleteAnswer, Doomed};

    fn doomed(key: &str, version: Option<&str>) -> Doomed {
        Doomed { key: key.to_owned(), version_id: version.map(str::to_owned) }
    }

    #[test]
    fn every_key_gets_the_answer_it_was_given() {
        let document =
            b"<DeleteResult><Deleted><Key>a</Key></Deleted><Error><Key>b</Key><Code>AccessDenied</Code></Error>\
            <Deleted><Key>c</Key><DeleteMarker>true</DeleteMarker></Deleted></DeleteResult>";
        let root = Element::parse(document).expect("valid");
        let batch = [doomed("c", None), doomed("b", None), doomed("a", Some("v")), doomed("d", None)];
        let removals = read_result(&root, &batch);
        assert_eq!(removals[0], Removal::VersionsLeft);
        assert!(matches!(removals[1], Removal::Said(DeleteAnswer::Refused(_))));
        assert_eq!(removals[2], Removal::Said(DeleteAnswer::Deleted));
        assert!(matches!(removals[3], Removal::Said(DeleteAnswer::Unknown(_))));
    }

    #[test]
    fn keys_and_versions_are_escaped() {
        let document = batch_document(&[doomed("a&b", Some("<v>"))]);
        let root = Element::parse(document.as_bytes()).expect("valid");
        let object = root.all("Object").next().expect("an object");
        assert_eq!((object.child_text("Key"), object.child_text("VersionId")), (Some("a&b"), Some("<v>")));
    }
}
