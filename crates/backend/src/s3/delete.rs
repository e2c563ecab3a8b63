//! Deletes: batches with an answer per key, or single requests if the service has no batches.
//!
//! A delete must free the bytes. In a versioned bucket, a delete without a version only adds a delete marker; then the
//! versions of the key are listed, and the only one is deleted by its ID (`versions.rs`).

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use base64_simd::STANDARD;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Method;
use http::header::{CONTENT_TYPE, HeaderName};
use md5::{Digest, Md5};

use super::S3;
use super::answer::{as_delete_answer, key_answer};
use super::objects::version_id;
use super::transport::{Payload, RequestError, S3Request, header_text};
use super::xml::{XmlElement, element};
use crate::{DeleteAnswer, DeleteKey, Error};

const BATCH_KEYS_MAX: usize = 1000;
const SINGLE_DELETES_MAX: usize = 16;
const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

/// Result of one delete request for one key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum DeleteOutcome {
    Answered(DeleteAnswer),
    /// The bytes still exist, as versions that the request did not name.
    VersionsLeft {
        /// The delete marker that the request added.
        marker: Option<String>,
    },
}

impl S3 {
    pub(super) async fn delete_objects(&self, targets: &[DeleteKey]) -> Vec<DeleteAnswer> {
        let mut answers = Vec::with_capacity(targets.len());
        for batch in targets.chunks(BATCH_KEYS_MAX) {
            let outcomes = self.delete_chunk(batch).await;
            let finished: Vec<_> =
                batch.iter().zip(outcomes).map(|(target, outcome)| self.purge_if_left(&target.key, outcome)).collect();
            answers.extend(stream::iter(finished).buffered(SINGLE_DELETES_MAX).collect::<Vec<_>>().await);
        }
        answers
    }

    async fn purge_if_left(&self, key: &str, outcome: DeleteOutcome) -> DeleteAnswer {
        match outcome {
            DeleteOutcome::Answered(answer) => answer,
            DeleteOutcome::VersionsLeft { marker } => self.delete_versions_left(key, marker).await,
        }
    }

    async fn delete_chunk(&self, batch: &[DeleteKey]) -> Vec<DeleteOutcome> {
        if self.needs_single_deletes(batch) {
            return self.delete_singly(batch).await;
        }
        match self.send_batch(batch).await {
            Ok(outcomes) => outcomes,
            Err(error) if error.not_implemented() => {
                self.batch_unsupported.store(true, Ordering::Relaxed);
                self.delete_singly(batch).await
            }
            Err(error) => {
                let answer = match &error {
                    RequestError::Response(failure) => failure.delete_answer(),
                    RequestError::Lost(error) => as_delete_answer(error),
                };
                // The response is about the whole batch and proves no absence of a single key.
                let answer = match answer {
                    DeleteAnswer::Absent => DeleteAnswer::Unknown("the batch delete returned 404".to_owned()),
                    other => other,
                };
                vec![DeleteOutcome::Answered(answer); batch.len()]
            }
        }
    }

    fn needs_single_deletes(&self, batch: &[DeleteKey]) -> bool {
        let has_no_version = |target: &DeleteKey| target.version_id.is_none();
        // XML 1.0 cannot represent control characters.
        let has_control = |target: &DeleteKey| target.key.chars().any(char::is_control);
        batch.len() == 1
            || self.batch_unsupported.load(Ordering::Relaxed)
            || batch.iter().any(has_control)
            || (self.keeps_versions() && batch.iter().any(has_no_version))
    }

    async fn send_batch(&self, batch: &[DeleteKey]) -> Result<Vec<DeleteOutcome>, RequestError> {
        let document = Bytes::from(batch_document(batch));
        let md5 = STANDARD.encode_to_string(Md5::digest(&document));
        let request = S3Request::new(Method::POST, None, &[("delete", "")])
            .header(CONTENT_MD5, &md5)
            .header(CONTENT_TYPE, "application/xml")
            .with_payload(Payload::Known(document));
        let answer = self.transport.answer(request).await?;
        let root = XmlElement::parse(&answer.body).map_err(RequestError::Lost)?;
        if root.name != "DeleteResult" {
            return Err(RequestError::Lost(Error::Unknown(format!("a batch delete returned <{}>", root.name))));
        }
        let outcomes = read_result(&root, batch);
        if outcomes.iter().any(|outcome| matches!(outcome, DeleteOutcome::VersionsLeft { .. })) {
            self.set_keeps_versions();
        }
        Ok(outcomes)
    }

    async fn delete_singly(&self, batch: &[DeleteKey]) -> Vec<DeleteOutcome> {
        let requests: Vec<_> = batch.iter().map(|target| self.delete_one(target)).collect();
        stream::iter(requests).buffered(SINGLE_DELETES_MAX).collect().await
    }

    async fn delete_one(&self, target: &DeleteKey) -> DeleteOutcome {
        if target.version_id.is_none() && self.keeps_versions() {
            return DeleteOutcome::VersionsLeft { marker: None };
        }
        let version = target.version_id.as_deref();
        let query = version.map(|version| ("versionId", version));
        let request = S3Request::new(Method::DELETE, Some(&target.key), query.as_slice());
        match self.transport.answer(request).await {
            Ok(answer) if !answer.body.is_empty() => {
                let why = "the response to the delete has a body, it may not come from the store";
                DeleteOutcome::Answered(DeleteAnswer::Unknown(why.to_owned()))
            }
            Ok(answer) => {
                let has_marker = header_text(&answer.headers, "x-amz-delete-marker") == Some("true");
                if has_marker && version.is_none() {
                    self.set_keeps_versions();
                    return DeleteOutcome::VersionsLeft { marker: version_id(&answer.headers) };
                }
                DeleteOutcome::Answered(DeleteAnswer::Deleted)
            }
            Err(RequestError::Response(failure)) => DeleteOutcome::Answered(failure.delete_answer()),
            Err(RequestError::Lost(error)) => DeleteOutcome::Answered(as_delete_answer(&error)),
        }
    }

    /// Deletes one version, or one delete marker.
    pub(super) async fn delete_version(&self, key: &str, version: &str) -> DeleteAnswer {
        match self.delete_one(&DeleteKey { key: key.to_owned(), version_id: Some(version.to_owned()) }).await {
            DeleteOutcome::Answered(answer) => answer,
            DeleteOutcome::VersionsLeft { .. } => DeleteAnswer::Unknown("the version was not deleted".to_owned()),
        }
    }
}

fn batch_document(batch: &[DeleteKey]) -> String {
    let objects = batch.iter().map(|target| {
        let version = target.version_id.as_deref().map(|version| element("VersionId", version)).unwrap_or_default();
        format!("<Object>{}{version}</Object>", element("Key", &target.key))
    });
    let objects: String = objects.collect();
    format!(r#"<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{objects}<Quiet>false</Quiet></Delete>"#)
}

/// The outcomes in the order of the batch; a key that the response does not mention is unknown.
fn read_result(root: &XmlElement, batch: &[DeleteKey]) -> Vec<DeleteOutcome> {
    let mut by_key: HashMap<(&str, Option<&str>), DeleteOutcome> = HashMap::new();
    for deleted in root.all("Deleted") {
        let version = deleted.child_text("VersionId").filter(|version| !version.is_empty());
        let has_marker = deleted.child_text("DeleteMarker") == Some("true") && version.is_none();
        let marker = deleted.child_text("DeleteMarkerVersionId").map(str::to_owned);
        let outcome = if has_marker {
            DeleteOutcome::VersionsLeft { marker }
        } else {
            DeleteOutcome::Answered(DeleteAnswer::Deleted)
        };
        by_key.insert((deleted.child_text("Key").unwrap_or_default(), version), outcome);
    }
    for failed in root.all("Error") {
        let version = failed.child_text("VersionId").filter(|version| !version.is_empty());
        let (code, message) = (failed.child_text("Code"), failed.child_text("Message"));
        let answer = key_answer(code.unwrap_or_default(), message.unwrap_or_default());
        by_key.insert((failed.child_text("Key").unwrap_or_default(), version), DeleteOutcome::Answered(answer));
    }
    let unmentioned = DeleteOutcome::Answered(DeleteAnswer::Unknown("the response omits this key".to_owned()));
    let answer = |target: &DeleteKey| {
        let exact = by_key.get(&(target.key.as_str(), target.version_id.as_deref()));
        // Some stores omit the version in the response.
        exact.or_else(|| by_key.get(&(target.key.as_str(), None))).unwrap_or(&unmentioned).clone()
    };
    batch.iter().map(answer).collect()
}

#[cfg(test)]
mod tests {
    use super::{DeleteOutcome, batch_document, read_result};
    use crate::s3::xml::XmlElement;
    use crate::{DeleteAnswer, DeleteKey};

    fn target(key: &str, version: Option<&str>) -> DeleteKey {
        DeleteKey { key: key.to_owned(), version_id: version.map(str::to_owned) }
    }

    #[test]
    fn every_key_gets_its_own_outcome() {
        let document =
            b"<DeleteResult><Deleted><Key>a</Key></Deleted><Error><Key>b</Key><Code>AccessDenied</Code></Error>\
            <Deleted><Key>c</Key><DeleteMarker>true</DeleteMarker>\
            <DeleteMarkerVersionId>m</DeleteMarkerVersionId></Deleted></DeleteResult>";
        let root = XmlElement::parse(document).expect("valid");
        let batch = [target("c", None), target("b", None), target("a", Some("v")), target("d", None)];
        let outcomes = read_result(&root, &batch);
        assert_eq!(outcomes[0], DeleteOutcome::VersionsLeft { marker: Some("m".to_owned()) });
        assert!(matches!(outcomes[1], DeleteOutcome::Answered(DeleteAnswer::Refused(_))));
        assert_eq!(outcomes[2], DeleteOutcome::Answered(DeleteAnswer::Deleted));
        assert!(matches!(outcomes[3], DeleteOutcome::Answered(DeleteAnswer::Unknown(_))));
    }

    #[test]
    fn keys_and_versions_are_escaped() {
        let document = batch_document(&[target("a&b", Some("<v>"))]);
        let root = XmlElement::parse(document.as_bytes()).expect("valid");
        let object = root.all("Object").next().expect("an object");
        assert_eq!((object.child_text("Key"), object.child_text("VersionId")), (Some("a&b"), Some("<v>")));
    }
}
