//! The whole S3 service over the test harness with a few fixtures. It is started anew after a request changed anything,
//! so that the effect of an input never depends on the inputs before it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Request, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use prometheus_client::registry::Registry;
use s3o_catalog::Driver;
use s3o_catalog::unit::{Row, Statement};
use s3o_model::clock::SystemClock;
use s3o_model::entropy::SeededEntropy;
use s3o_server::audit::Audit;
use s3o_server::middleware::{Observer, RequestMetrics};
use s3o_server::s3::{self, Access, AccessKey, Keys, Service, ServiceOptions, SharedKeys};
use s3o_tests::environment::{Environment, temporary_folder};
use s3o_tests::harness::Harness;
use s3o_workers::Budget;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::document::Document;
use crate::requests::Wire;

pub const KEY_ID: &str = "fuzz";
/// Access key that may only read, and only in bucket `other`.
pub const READER_ID: &str = "reader";
pub const SECRET: &str = "fuzz-secret";
pub const REGION: &str = "us-east-1";
/// The body of `/bucket/key`.
pub const BODY: &[u8] = b"The quick brown fox jumps over the lazy dog.";

/// Inputs per instance: no worker empties the queues, and long queues make requests slow.
const INPUTS_MAX: u32 = 50;
/// Far above the duration of any request, on a busy machine too.
const ANSWER_MAX: Duration = Duration::from_secs(25);
/// The rows that a refused request must not change.
const VISIBLE_ROWS: &str = "\
    SELECT 'bucket ' || name || ' ' || tags AS shown FROM buckets \
    UNION ALL SELECT 'object ' || key || ' ' || content_id || ' ' || etag || ' ' || headers || ' ' || metadata || ' ' \
        || tags || ' ' || coalesce(checksum, '') || ' ' || last_modified FROM objects \
    UNION ALL SELECT 'upload ' || id FROM multipart_uploads WHERE state = 'open' \
    UNION ALL SELECT 'part ' || upload_id || ' ' || number || ' ' || content_id FROM multipart_parts \
    ORDER BY 1";
/// Difference between quotas and the sums of their rows, and between reference counts and referring rows.
const ACCOUNTING_ERROR: &str = "\
    SELECT abs(coalesce(sum(used_bytes), 0) - (SELECT coalesce(sum(size_bytes), 0) FROM object_locations)) \
        + abs(coalesce(sum(orphan_bytes), 0) - (SELECT coalesce(sum(size_bytes), 0) FROM cleanup_queue)) \
        + abs(coalesce(sum(reserved_bytes), 0) - (SELECT coalesce(sum(size_bytes), 0) FROM pending_objects)) \
        + (SELECT count(*) FROM contents c WHERE c.ref_count <> \
            (SELECT count(*) FROM objects o WHERE o.content_id = c.id) \
            + (SELECT count(*) FROM content_parts p WHERE p.whole_id = c.id) \
            + (SELECT count(*) FROM multipart_parts m WHERE m.content_id = c.id)) AS difference \
    FROM backend_quotas";

/// An S3 service whose state no earlier input changed.
pub struct S3Server {
    runtime: Runtime,
    instance: Option<Instance>,
}

struct Instance {
    service: Service,
    harness: Harness<SystemClock>,
    upload: String,
    etag: String,
    state: Vec<String>,
    inputs: u32,
    _audit_folder: TempDir,
}

/// A complete answer that passed the checks of every answer.
pub struct CheckedAnswer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Whether the request changed a visible row.
    pub changed: bool,
}

impl CheckedAnswer {
    pub fn document(&self) -> Document {
        Document::read(&self.body)
    }

    /// None for a missing header and for one that is not text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl S3Server {
    pub fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { runtime, instance: None }
    }

    /// The ID of the open upload, and the `ETag` of its only part and of `/bucket/key`.
    pub fn fixtures(&mut self) -> (String, String) {
        let instance = self.instance();
        (instance.upload.clone(), instance.etag.clone())
    }

    /// Ends an input: starts a new instance if it changed anything.
    pub fn renew(&mut self) {
        let instance = self.instance();
        instance.inputs += 1;
        if instance.inputs > INPUTS_MAX || state(&instance.harness.driver) != instance.state {
            self.instance = None;
        }
    }

    fn instance(&mut self) -> &mut Instance {
        let runtime = &self.runtime;
        self.instance.get_or_insert_with(|| runtime.block_on(Instance::open()))
    }

    /// Sends a request and checks what holds for every answer.
    pub fn send(&mut self, wire: &Wire) -> CheckedAnswer {
        let pieces = vec![wire.body.clone().into()];
        self.send_in_pieces(wire, pieces)
    }

    /// Like [`Self::send`], with a body in several frames.
    pub fn send_in_pieces(&mut self, wire: &Wire, pieces: Vec<Bytes>) -> CheckedAnswer {
        self.instance();
        let instance = self.instance.as_ref().expect("started");
        let before = state(&instance.harness.driver);
        let answer = async { tokio::time::timeout(ANSWER_MAX, instance.answer(wire, pieces)).await };
        let answered = self.runtime.block_on(answer);
        let (status, headers, body) = answered.expect("an answer within the limit");
        let after = state(&instance.harness.driver);
        let answer = CheckedAnswer { status, headers, body, changed: before != after };
        check(wire, &answer);
        if answer.changed {
            assert!(status.is_success(), "{status}, but {before:?} changed to {after:?}");
            assert!(wire.method != "GET" && wire.method != "HEAD", "a read changed {before:?} to {after:?}");
        }
        assert_eq!(numbers(&instance.harness.driver, ACCOUNTING_ERROR), [0], "quotas or reference counts are wrong");
        assert!(instance.harness.memory.violations().is_empty(), "{:?}", instance.harness.memory.violations());
        answer
    }
}

impl Instance {
    async fn open() -> Self {
        let environment = Environment::with_clock(Arc::new(SystemClock), Arc::new(SeededEntropy::new(7)));
        let environment = Arc::new(environment.with_backend("memory", u64::MAX, None));
        let harness = Harness::builder(&environment).start().await;
        let audit_folder = temporary_folder();
        let audit = Audit::open(&audit_folder.path().join("audit.jsonl"), environment.clock.clone());
        let audit = audit.expect("open the audit log");
        let metrics = RequestMetrics::register(&mut Registry::default());
        let observer = Observer::new(metrics, environment.entropy.clone(), Arc::new(audit));
        let options = ServiceOptions {
            region: REGION.to_owned(),
            domain: Some("s3.test".to_owned()),
            max_concurrent_requests: 16,
            min_transfer_rate: 1024,
            max_reserved_share: 1.0,
            budget: Budget::new(16),
        };
        let key = |id: &str, buckets: &[&str], access| AccessKey {
            access_key_id: id.to_owned(),
            secret: SECRET.to_owned(),
            buckets: buckets.iter().map(|&bucket| bucket.to_owned()).collect(),
            access,
        };
        let keys = [key(KEY_ID, &["*"], Access::Admin), key(READER_ID, &["other"], Access::ReadOnly)];
        let keys = SharedKeys::new(Keys::from_iter(keys));
        let service = s3::service(Arc::new(harness.engine.clone()), keys, options, observer);
        let (upload, etag, state) = (String::new(), String::new(), Vec::new());
        let mut instance = Self { service, harness, upload, etag, state, inputs: 0, _audit_folder: audit_folder };
        instance.add_fixtures().await;
        instance
    }

    /// The objects and the upload with one part that the examples name.
    async fn add_fixtures(&mut self) {
        let ask = async |line: &str, body: &[u8]| {
            let wire = Wire::signed(line, body);
            let (status, headers, body) = self.answer(&wire, vec![Bytes::copy_from_slice(&wire.body)]).await;
            assert_eq!(status, StatusCode::OK, "{line}: {}", String::from_utf8_lossy(&body));
            (headers, body)
        };
        ask("PUT /bucket", b"").await;
        ask("PUT /other", b"").await;
        for key in ["a/1", "a/2", "b%20c", "empty", "z%C3%A4"] {
            ask(&format!("PUT /bucket/{key}"), if key == "empty" { b"" } else { b"x" }).await;
        }
        ask("PUT /bucket/key", BODY).await;
        let (_, created) = ask("POST /bucket/parts?uploads", b"").await;
        let upload = Document::read(&created).only("UploadId").to_owned();
        let (headers, _) = ask(&format!("PUT /bucket/parts?partNumber=1&uploadId={upload}"), BODY).await;
        let etag = headers["etag"].to_str().expect("an ETag").trim_matches('"').to_owned();
        (self.upload, self.etag) = (upload, etag);
        self.state = state(&self.harness.driver);
    }

    async fn answer(&self, wire: &Wire, pieces: Vec<Bytes>) -> (StatusCode, HeaderMap, Bytes) {
        let frames = pieces.into_iter().map(|piece| Ok(Frame::data(piece)));
        let disconnect = wire.breaks_off().then(|| Err(std::io::Error::other("the client disconnected")));
        let mut request = Request::new(StreamBody::new(stream::iter(frames.chain(disconnect).collect::<Vec<_>>())));
        *request.method_mut() = wire.method.clone();
        *request.uri_mut() = wire.uri.clone();
        *request.headers_mut() = wire.headers.clone();
        let response = self.service.answer(request).await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("a body to its end").to_bytes();
        self.harness.engine.tasks().drained().await;
        (parts.status, parts.headers, body)
    }
}

fn rows<T>(driver: &Arc<dyn Driver>, sql: &'static str, read: impl Fn(&Row) -> T) -> Vec<T> {
    let statement = Statement::new(sql, vec![]);
    let rows = futures_util::FutureExt::now_or_never(driver.read(statement));
    rows.expect("reads are done at once").expect("a query").iter().map(read).collect()
}

fn state(driver: &Arc<dyn Driver>) -> Vec<String> {
    rows(driver, VISIBLE_ROWS, |row| row.string("shown").expect("text"))
}

fn numbers(driver: &Arc<dyn Driver>, sql: &'static str) -> Vec<i64> {
    rows(driver, sql, |row| row.int("difference").expect("a number"))
}

/// Asserts what holds for the answer to any request.
fn check(wire: &Wire, answer: &CheckedAnswer) {
    let status = answer.status;
    let request = || format!("{} {} was answered with {status}", wire.method, wire.uri);
    // The store is healthy, so the only server error may be 501.
    let is_fault = status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED;
    assert!(!is_fault && status.as_u16() >= 200, "{}: {:?}", request(), answer.body);
    let id = answer.header("x-amz-request-id").expect("an identifier");
    if wire.method == "HEAD" || status == StatusCode::NOT_MODIFIED || status == StatusCode::NO_CONTENT {
        assert!(answer.body.is_empty(), "{} with a body", request());
        return;
    }
    if let Some(length) = answer.header("content-length") {
        assert_eq!(length, answer.body.len().to_string(), "{}", request());
    }
    if !status.is_success() {
        let document = answer.document();
        assert_eq!(document.root, "Error", "{}", request());
        assert!(!document.only("Code").is_empty() && !document.only("Message").is_empty(), "{document:?}");
        assert_eq!(document.only("RequestId"), id);
    } else if answer.header("content-type") == Some("application/xml") && !answer.body.is_empty() {
        let reads_object = wire.method == "GET" && answer.headers.contains_key("etag");
        if !reads_object {
            answer.document();
        }
    }
}
