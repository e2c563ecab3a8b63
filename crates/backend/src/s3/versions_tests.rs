//! Tests of versioned buckets on a real service: a delete must free the bytes.

use bytes::Bytes;
use http::Method;
use s3o_model::entropy::{Entropy, SystemEntropy};
use s3o_model::target::KeyVersion;

use super::S3;
use super::transport::{Payload, S3Request};
use crate::conformance::implementations::connect;
use crate::{Backend, DeleteAnswer, DeleteKey, Probe, body};

/// `None` on a service without versions.
async fn versioned_bucket() -> Option<S3> {
    let s3 = connect(&format!("s3o-versions-{:016x}", SystemEntropy.next_u64()));
    s3.create_bucket().await.expect("a bucket");
    let document = "<VersioningConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
        <Status>Enabled</Status></VersioningConfiguration>";
    let request = S3Request::new(Method::PUT, None, &[("versioning", "")]);
    match s3.transport.answer(request.with_payload(Payload::Known(Bytes::from(document)))).await {
        Ok(_) => Some(s3),
        Err(error) if error.not_implemented() => None,
        Err(error) => panic!("{error:?}"),
    }
}

async fn versions_left(s3: &S3) -> String {
    let answer = s3.transport.answer(S3Request::new(Method::GET, None, &[("versions", "")])).await.expect("versions");
    String::from_utf8_lossy(&answer.body).into_owned()
}

#[tokio::test]
async fn deletes_free_the_bytes_with_and_without_a_version_id() {
    let Some(s3) = versioned_bucket().await else { return };
    let mut targets = Vec::new();
    for (key, named) in [("b/a", true), ("b/b", false), ("b/c", true)] {
        let written = s3.put(key, 3, body::whole(Bytes::from("abc"))).await.expect("put");
        assert!(written.version_id.is_some());
        targets.push(DeleteKey { key: key.to_owned(), version_id: written.version_id.filter(|_| named) });
    }
    // A client that has just started does not know yet that the bucket is versioned.
    s3.keeps_versions.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(s3.delete_batch(&targets).await, vec![DeleteAnswer::Deleted; 3]);
    let left = versions_left(&s3).await;
    assert!(!left.contains("<VersionId>"), "{left}");
    assert_eq!(s3.probe("b/b".into()).await, Probe::Absent);
}

#[tokio::test]
async fn trait_probe_detects_versions_and_leaves_none() {
    let Some(s3) = versioned_bucket().await else { return };
    let traits = s3.probe_traits().await.expect("traits");
    assert!(traits.keeps_versions);
    let left = versions_left(&s3).await;
    assert!(!left.contains("<VersionId>"), "{left}");
}

#[tokio::test]
async fn conformance_holds_in_a_versioned_bucket() {
    use crate::conformance::{expected, versions};
    let Some(s3) = versioned_bucket().await else { return };
    assert!(s3.probe_traits().await.expect("traits").keeps_versions);
    versions::version_is_read_and_probed_alone(&s3).await;
    versions::only_the_named_version_is_deleted(&s3).await;
    versions::several_versions_are_not_deleted_without_a_version(&s3).await;
    versions::only_version_is_deleted_without_a_version(&s3).await;
    // SeaweedFS leaves out keys if a page ends before the last version.
    versions::versions_are_listed_in_pages_of(&s3, &[100]).await;
    expected::expected_bytes_are_deleted(&s3).await;
    expected::rewritten_bytes_are_not_deleted(&s3).await;
}

#[tokio::test]
async fn foreign_delete_marker_stays_and_hides_no_version() {
    let Some(s3) = versioned_bucket().await else { return };
    let written = s3.put("b/a", 3, body::whole(Bytes::from("abc"))).await.expect("put");
    s3.transport.answer(S3Request::new(Method::DELETE, Some("b/a"), &[])).await.expect("marked");
    assert_eq!(s3.probe("b/a".into()).await, Probe::Absent);
    let at = KeyVersion::new("b/a", written.version_id.as_deref());
    assert!(matches!(s3.probe(at).await, Probe::Present(_)));
    let unnamed = DeleteKey { key: "b/a".to_owned(), version_id: None };
    assert_eq!(s3.delete_batch(&[unnamed]).await, [DeleteAnswer::Deleted]);
    let left = versions_left(&s3).await;
    assert!(left.contains("<DeleteMarker>") && !left.contains("<Version>"), "{left}");
}
