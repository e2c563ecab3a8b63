//! Tests of the client against scripted responses on a local socket.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use parking_lot::Mutex;
use s3o_model::clock::SystemClock;
use s3o_model::entropy::SystemEntropy;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::list::ListOrder;
use super::{PUT_BYTES_MAX, S3, S3Options, Secret};
use crate::{Backend, BodyError, DeleteAnswer, DeleteKey, Error, Probe, Span, body};

/// A service that sends the next response of its script and records the requests.
struct ScriptedService {
    s3: S3,
    heads: Arc<Mutex<Vec<String>>>,
    serving: JoinHandle<()>,
}

impl Drop for ScriptedService {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl ScriptedService {
    async fn new(script: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let heads = Arc::new(Mutex::new(Vec::new()));
        let recorded = heads.clone();
        let serving = tokio::spawn(async move {
            for answer in script {
                let (mut socket, _) = listener.accept().await.expect("a connection");
                let head = read_request(&mut socket).await;
                recorded.lock().push(head);
                socket.write_all(answer.as_bytes()).await.expect("sent");
                socket.shutdown().await.expect("closed");
            }
        });
        let s3 = connect(&options(endpoint)).expect("an endpoint");
        Self { s3, heads, serving }
    }

    /// The request lines so far.
    fn lines(&self) -> Vec<String> {
        let heads = self.heads.lock();
        heads.iter().map(|head| head.lines().next().unwrap_or_default().to_owned()).collect()
    }
}

/// Reads a request to its end and returns its head in lower case.
async fn read_request(socket: &mut TcpStream) -> String {
    let mut read = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&read).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.and_then(|length| length.parse().ok()).unwrap_or(0) {
                return head.to_owned();
            }
        }
        match socket.read(&mut buffer).await {
            Ok(0) | Err(_) => return text,
            Ok(length) => read.extend_from_slice(&buffer[..length]),
        }
    }
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}

fn failure(status: &str, code: &str) -> String {
    answer(status, "", &format!("<Error><Code>{code}</Code></Error>"))
}

fn head_404() -> String {
    "HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".to_owned()
}

fn targets(keys: &[&str]) -> Vec<DeleteKey> {
    keys.iter().map(|key| DeleteKey { key: (*key).to_owned(), version_id: None }).collect()
}

fn options(endpoint: String) -> S3Options {
    S3Options {
        endpoint,
        region: "us-east-1".to_owned(),
        bucket: "bucket".to_owned(),
        access_key_id: "id".to_owned(),
        secret_access_key: Secret::new("hunter2"),
        path_style: true,
        put_bytes_max: PUT_BYTES_MAX,
        create_bucket: false,
    }
}

fn connect(options: &S3Options) -> Result<S3, Error> {
    S3::connect("bucket".parse().expect("valid"), options, Arc::new(SystemClock), Arc::new(SystemEntropy))
}

#[test]
fn invalid_endpoints_are_rejected_and_secrets_do_not_print() {
    for invalid in ["", "host", "http://host/path", "http://host/?query"] {
        assert!(connect(&options(invalid.to_owned())).is_err(), "{invalid}");
    }
    let virtual_host = S3Options { path_style: false, ..options("http://host:9000".to_owned()) };
    let printed = format!("{:?} {virtual_host:?}", connect(&virtual_host).expect("an endpoint"));
    assert!(printed.contains("http://bucket.host:9000/") && !printed.contains("hunter2"), "{printed}");
}

#[tokio::test]
async fn head_404_is_absence_only_with_no_such_key() {
    let service = ScriptedService::new(vec![
        head_404(),
        failure("404 Not Found", "NoSuchKey"),
        head_404(),
        failure("404 Not Found", "NoSuchBucket"),
        head_404(),
        answer("404 Not Found", "", "<html>no such page</html>"),
    ])
    .await;
    assert_eq!(service.s3.probe("k".into()).await, Probe::Absent);
    assert!(matches!(service.s3.probe("k".into()).await, Probe::Unknown(_)));
    assert!(matches!(service.s3.probe("k".into()).await, Probe::Unknown(_)));
}

#[tokio::test]
async fn listing_out_of_order_is_an_error() {
    let page = |keys: [&str; 2]| {
        let contents = keys.map(|key| format!("<Contents><Key>{key}</Key><Size>1</Size></Contents>")).concat();
        let document = format!("<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>");
        answer("200 OK", "", &document)
    };
    let service = ScriptedService::new(vec![page(["x/a-b", "x/a/b"]), page(["b", "a"])]).await;
    service.s3.order_in("x/").await.expect("an order");
    assert!(matches!(service.s3.list("", None, 10).await, Err(Error::Unknown(_))));
}

#[tokio::test]
async fn missing_bucket_makes_no_key_absent() {
    let gone = || failure("404 Not Found", "NoSuchBucket");
    let service = ScriptedService::new(vec![gone(), gone(), gone(), gone(), gone(), gone()]).await;
    assert!(matches!(service.s3.get("k".into(), None).await.err(), Some(Error::Away(_))));
    assert!(matches!(service.s3.read_own("k").await, Err(Error::Away(_))));
    service.s3.set_order(ListOrder::Bytes);
    assert!(matches!(service.s3.list("", None, 1).await, Err(Error::Away(_))));
    assert!(matches!(service.s3.delete_batch(&targets(&["a", "b"])).await[1], DeleteAnswer::Away(_)));
    assert!(matches!(service.s3.delete_batch(&targets(&["a"])).await[0], DeleteAnswer::Away(_)));
    assert!(matches!(service.s3.abort_upload("k", "u").await, DeleteAnswer::Away(_)));
}

#[tokio::test]
async fn service_without_batch_deletes_gets_single_deletes_from_then_on() {
    let gone = || "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n".to_owned();
    let refused = || failure("403 Forbidden", "AccessDenied");
    let service =
        ScriptedService::new(vec![failure("501 Not Implemented", "NotImplemented"), gone(), gone(), gone(), refused()])
            .await;
    let keys = targets(&["a", "b"]);
    assert_eq!(service.s3.delete_batch(&keys).await, vec![DeleteAnswer::Deleted; 2]);
    let answers = service.s3.delete_batch(&keys).await;
    assert_eq!(answers.iter().filter(|answer| matches!(answer, DeleteAnswer::Refused(_))).count(), 1);
    assert_eq!(service.lines().iter().filter(|line| line.starts_with("post")).count(), 1);
}

#[tokio::test]
async fn key_missing_in_a_batch_response_is_unknown() {
    let result = "<DeleteResult><Deleted><Key>a</Key></Deleted></DeleteResult>";
    let service = ScriptedService::new(vec![answer("200 OK", "", result), failure("503 Slow", "SlowDown")]).await;
    let answers = service.s3.delete_batch(&targets(&["a", "b"])).await;
    assert_eq!(answers[0], DeleteAnswer::Deleted);
    assert!(matches!(answers[1], DeleteAnswer::Unknown(_)));
    let answers = service.s3.delete_batch(&targets(&["a", "b"])).await;
    assert!(answers.iter().all(|answer| matches!(answer, DeleteAnswer::Away(_))));
    assert!(service.heads.lock()[0].contains("content-md5: "));
}

/// The delete marker that the delete added is removed, others stay.
#[tokio::test]
async fn delete_that_leaves_versions_deletes_the_only_one_by_id() {
    let first_answer = "HTTP/1.1 204 No Content\r\nconnection: close\r\nx-amz-delete-marker: true\r\n\
        x-amz-version-id: m2\r\n\r\n";
    let version =
        |key: &str, id: &str| format!("<Version><Key>{key}</Key><VersionId>{id}</VersionId><Size>1</Size></Version>");
    let versions = |entries: &str| {
        let marker = "<DeleteMarker><Key>a</Key><VersionId>m1</VersionId></DeleteMarker>";
        let page = format!("<IsTruncated>false</IsTruncated>{entries}{marker}{}", version("ab", "v9"));
        answer("200 OK", "", &format!("<ListVersionsResult>{page}</ListVersionsResult>"))
    };
    let gone = || "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n".to_owned();
    let several = versions(&[version("a", "v1"), version("a", "v2")].concat());
    let script = vec![first_answer.to_owned(), gone(), versions(&version("a", "v1")), gone(), several, versions("")];
    let service = ScriptedService::new(script).await;
    assert_eq!(service.s3.delete_batch(&targets(&["a"])).await, [DeleteAnswer::Deleted]);
    let lines = service.lines();
    assert!(lines[1].contains("versionid=m2") && lines[3].contains("versionid=v1"), "{lines:?}");
    assert!(matches!(service.s3.delete_batch(&targets(&["a"])).await[0], DeleteAnswer::Refused(_)));
    assert_eq!(service.s3.delete_batch(&targets(&["a"])).await, [DeleteAnswer::Absent]);
}

#[tokio::test]
async fn truncated_stream_ends_in_an_error() {
    let cut = "HTTP/1.1 206 Partial Content\r\ncontent-length: 5\r\ncontent-range: bytes 0-4/9\r\n\r\nabc".to_owned();
    let other = answer("206 Partial Content", "content-range: bytes 1-5/9\r\n", "abcde");
    let service = ScriptedService::new(vec![cut, other]).await;
    let span = Some(Span { offset: 0, length: 5 });
    let items: Vec<_> = service.s3.get("k".into(), span).await.expect("begins").collect().await;
    assert!(items.last().expect("an item").is_err());
    assert!(matches!(service.s3.get("k".into(), span).await.err(), Some(Error::Unknown(_))));
}

#[tokio::test]
async fn body_is_sent_with_content_length_in_one_request() {
    let taken = answer("200 OK", "etag: \"abc\"\r\nx-amz-version-id: v1\r\n", "");
    let service = ScriptedService::new(vec![taken, answer("507 Full", "", "")]).await;
    let written = service.s3.put("b/k~1", 3, body::whole(Bytes::from("abc"))).await.expect("put");
    assert_eq!((written.etag.as_deref(), written.version_id.as_deref()), (Some("abc"), Some("v1")));
    let head = service.heads.lock()[0].clone();
    assert!(head.starts_with("put /bucket/b/k~1 http/1.1"), "{head}");
    assert!(head.contains("content-length: 3") && !head.contains("transfer-encoding"), "{head}");
    assert!(head.contains("x-amz-content-sha256: unsigned-payload"), "{head}");
    let full = service.s3.put("b/k~2", 3, body::whole(Bytes::from("abc"))).await;
    assert!(matches!(full, Err(Error::NoSpace(_))));
}

#[tokio::test]
async fn unreachable_service_is_away_and_an_interrupted_body_is_a_body_error() {
    let service = ScriptedService::new(vec![answer("200 OK", "", "")]).await;
    let broken = futures_util::stream::iter([Ok(Bytes::from("a")), Err(BodyError::Broken("disconnected".to_owned()))]);
    let answer = service.s3.put("k", 3, Box::pin(broken)).await;
    assert!(matches!(answer, Err(Error::Body(BodyError::Broken(_)))), "{answer:?}");
    service.serving.abort();
    tokio::task::yield_now().await;
    assert!(matches!(service.s3.list("", None, 1).await, Err(Error::Away(_))));
    assert!(matches!(service.s3.probe("k".into()).await, Probe::Unknown(_)));
    assert!(matches!(service.s3.delete_batch(&targets(&["a", "b"])).await[0], DeleteAnswer::Away(_)));
}

#[tokio::test]
async fn answers_of_something_else_than_a_store_are_unknown() {
    let portal = || answer("200 OK", "", "<html>Please sign in</html>");
    let service = ScriptedService::new(vec![portal(), answer("204 No Content", "", ""), portal(), portal()]).await;
    for _ in 0..2 {
        let written = service.s3.put("k", 1, body::whole(Bytes::from("x"))).await;
        assert!(matches!(written, Err(Error::Unknown(_))), "{written:?}");
    }
    let doomed = [DeleteKey { key: "k".to_owned(), version_id: None }];
    let deleted = service.s3.delete_batch(&doomed).await;
    assert!(matches!(deleted[..], [DeleteAnswer::Unknown(_)]), "{deleted:?}");
    assert!(matches!(service.s3.probe("k".into()).await, Probe::Unknown(_)));
}
