//! Buckets that keep versions, on a real service: a delete must free the bytes all the same.

use bytes::Bytes;
use http::Method;
use s3o_model::entropy::{Entropy, SystemEntropy};

use super::S3;
use super::transport::{Payload, Request};
use crate::conformance::stamped::connect;
use crate::{Backend, DeleteAnswer, Doomed, Probe, body};

/// `None` on a service that knows no versions.
async fn versioned_bucket() -> Option<S3> {
    let s3 = connect(&format!("s3o-versions-{:016x}", SystemEntropy.next_u64()));
    s3.create_bucket().await.expect("a bucket");
    let document = "<VersioningConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
        <Status>Enabled</Status></VersioningConfiguration>";
    let request = Request::new(Method::PUT, None, &[("versioning", "")]);
    match s3.transport.answer(request.carrying(Payload::Known(Bytes::from(document)))).await {
        Ok(_) => Some(s3),
        Err(none) if none.not_implemented() => None,
        Err(none) => panic!("{none:?}"),
    }
}

async fn versions_left(s3: &S3) -> String {
    let answer = s3.transport.answer(Request::new(Method::GET, None, &[("versions", "")])).await.expect("versions");
    String::from_utf8_lossy(&answer.body).into_owned()
}

#[tokio::test]
async fn deletes_free_the_bytes_with_and_without_a_version_id() {
    let Some(s3) = versioned_bucket().await else { return };
    let mut doomed = Vec::new();
    for (key, named) in [("b/a", true), ("b/b", false), ("b/c", true)] {
        let written = s3.put(key, 3, body::whole(Bytes::from("abc"))).await.expect("put");
        assert!(written.version_id.is_some());
        doomed.push(Doomed { key: key.to_owned(), version_id: written.version_id.filter(|_| named) });
    }
    // A client that has just started does not know yet what kind of bucket this is.
    s3.keeps_versions.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(s3.delete_batch(&doomed).await, vec![DeleteAnswer::Deleted; 3]);
    let left = versions_left(&s3).await;
    assert!(!left.contains("<VersionId>"), "{left}");
    assert_eq!(s3.probe("b/b").await, Probe::Absent);
}

#[tokio::test]
async fn the_traits_tell_that_versions_are_kept_and_leave_none() {
    let Some(s3) = versioned_bucket().await else { return };
    let traits = s3.probe_traits().await.expect("traits");
    assert!(traits.keeps_versions);
    let left = versions_left(&s3).await;
    assert!(!left.contains("<VersionId>"), "{left}");
}
