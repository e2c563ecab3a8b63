//! Tests of versioned buckets on a real service: a delete must free the bytes.

use bytes::Bytes;
use http::Method;
use s3o_model::entropy::{Entropy, SystemEntropy};

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
    assert_eq!(s3.probe("b/b").await, Probe::Absent);
}

#[tokio::test]
async fn trait_probe_detects_versions_and_leaves_none() {
    let Some(s3) = versioned_bucket().await else { return };
    let traits = s3.probe_traits().await.expect("traits");
    assert!(traits.keeps_versions);
    let left = versions_left(&s3).await;
    assert!(!left.contains("<VersionId>"), "{left}");
}
