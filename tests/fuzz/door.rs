//! The whole S3 door over a store in memory, with a few things in it, and made anew once a request
//! has changed anything: what an input does never depends on the ones before it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Request, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use prometheus_client::registry::Registry;
use s3o_backend::{Fleet, Memory};
use s3o_catalog::unit::Statement;
use s3o_catalog::{Catalog, Driver, Identities as _, Mode, Quotas as _, Sqlite, SqliteOptions};
use s3o_engine::{Engine, EngineParts, IntentMetrics, Settings};
use s3o_model::clock::{Clock, SystemClock};
use s3o_model::entropy::{Entropy, SeededEntropy};
use s3o_model::ids::{IdSource, InstanceId};
use s3o_model::names::BackendName;
use s3o_model::recovery::Recovery;
use s3o_model::shared::Shared;
use s3o_server::audit::Audit;
use s3o_server::middleware::{Observer, RequestMetrics};
use s3o_server::s3::{self, Access, AccessKey, Keys, S3Options, Service, SharedKeys};
use s3o_workers::{Budget, Identity, IdentityParts, IdentitySettings};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::document::Document;
use crate::requests::Wire;

pub const KEY_ID: &str = "fuzz";
/// Who may only read, and only in `/other`.
pub const READER_ID: &str = "reader";
pub const SECRET: &str = "fuzz-secret";
pub const REGION: &str = "us-east-1";
/// What `/bucket/key` holds.
pub const BODY: &[u8] = b"The quick brown fox jumps over the lazy dog.";

/// What was deleted waits for workers that do not run here, and looking through it takes time.
const INPUTS_MAX: u32 = 50;
/// Longer than anything takes, however busy the machine is.
const ANSWER_MAX: Duration = Duration::from_secs(25);
/// Everything that a refused request must leave as it was.
const STATE: &str = "\
    SELECT 'bucket ' || name || ' ' || tags FROM buckets \
    UNION ALL SELECT 'object ' || key || ' ' || content_id || ' ' || etag || ' ' || headers || ' ' || metadata || ' ' \
        || tags || ' ' || coalesce(checksum, '') || ' ' || last_modified FROM objects \
    UNION ALL SELECT 'upload ' || id FROM multipart_uploads WHERE state = 'open' \
    UNION ALL SELECT 'part ' || upload_id || ' ' || number || ' ' || content_id FROM multipart_parts \
    ORDER BY 1";
/// Books against their rows, and reference counts against referrers.
const DRIFT: &str = "\
    SELECT abs(coalesce(sum(used_bytes), 0) - (SELECT coalesce(sum(size_bytes), 0) FROM object_locations)) \
        + abs(coalesce(sum(orphan_bytes), 0) - (SELECT coalesce(sum(size_bytes), 0) FROM cleanup_queue)) \
        + abs(coalesce(sum(reserved_bytes), 0) - (SELECT coalesce(sum(size_bytes), 0) FROM pending_objects)) \
        + (SELECT count(*) FROM contents c WHERE c.ref_count <> \
            (SELECT count(*) FROM objects o WHERE o.content_id = c.id) \
            + (SELECT count(*) FROM content_parts p WHERE p.whole_id = c.id) \
            + (SELECT count(*) FROM multipart_parts m WHERE m.content_id = c.id)) \
    FROM backend_quotas";

/// Keeps a door at hand that nothing has changed yet.
pub struct Keeper {
    runtime: Runtime,
    door: Option<Door>,
}

struct Door {
    service: Service,
    engine: Engine,
    memory: Arc<Memory>,
    driver: Arc<dyn Driver>,
    upload: String,
    etag: String,
    state: Vec<String>,
    inputs: u32,
    _folder: TempDir,
}

/// An answer, whole and checked.
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Whether anything is different now.
    pub changed: bool,
}

impl Answer {
    pub fn document(&self) -> Document {
        Document::read(&self.body)
    }

    /// A header, unless it has what a client put there and nobody can read.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Keeper {
    pub fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { runtime, door: None }
    }

    /// The upload that is open, and the `ETag` of its only part and of `/bucket/key`.
    pub fn fixtures(&mut self) -> (String, String) {
        let door = self.door();
        (door.upload.clone(), door.etag.clone())
    }

    /// Forgets what changed.
    pub fn renew(&mut self) {
        let door = self.door();
        door.inputs += 1;
        if door.inputs > INPUTS_MAX || state(&door.driver) != door.state {
            self.door = None;
        }
    }

    fn door(&mut self) -> &mut Door {
        let runtime = &self.runtime;
        self.door.get_or_insert_with(|| runtime.block_on(Door::open()))
    }

    /// Sends a request and checks what must hold of every answer.
    pub fn send(&mut self, wire: &Wire) -> Answer {
        let pieces = vec![wire.body.clone().into()];
        self.send_in_pieces(wire, pieces)
    }

    /// The same with a body that arrives piece by piece.
    pub fn send_in_pieces(&mut self, wire: &Wire, pieces: Vec<Bytes>) -> Answer {
        self.door();
        let door = self.door.as_ref().expect("a door");
        let before = state(&door.driver);
        let answering = async { tokio::time::timeout(ANSWER_MAX, door.answer(wire, pieces)).await };
        let answered = self.runtime.block_on(answering);
        let (status, headers, body) = answered.expect("an answer in time");
        let after = state(&door.driver);
        let answer = Answer { status, headers, body, changed: before != after };
        check(wire, &answer);
        if answer.changed {
            assert!(status.is_success(), "{status} and yet {before:?} became {after:?}");
            assert!(wire.method != "GET" && wire.method != "HEAD", "a read changed {before:?} to {after:?}");
        }
        assert_eq!(numbers(&door.driver, DRIFT), [0], "the books drifted");
        assert!(door.memory.violations().is_empty(), "{:?}", door.memory.violations());
        answer
    }
}

impl Door {
    async fn open() -> Self {
        let shared_memory = std::path::Path::new("/dev/shm");
        let folder = tempfile::tempdir_in(shared_memory).or_else(|_| tempfile::tempdir()).expect("a folder");
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let entropy: Arc<dyn Entropy> = Arc::new(SeededEntropy::new(7));
        let path = folder.path().join("catalog.db");
        let options = SqliteOptions { path, mode: Mode::Inline, clock: clock.clone() };
        let driver: Arc<dyn Driver> = Arc::new(Sqlite::open(&options).expect("a catalog"));
        let (engine, memory) = open_engine(&driver, &clock, &entropy).await;
        let audit = Audit::open(&folder.path().join("audit.jsonl"), clock).expect("an audit trail");
        let metrics = RequestMetrics::register(&mut Registry::default());
        let observer = Observer::new(metrics, entropy, Arc::new(audit));
        let options = S3Options {
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
        let service = s3::service(Arc::new(engine.clone()), keys, options, observer);
        let (upload, etag, state) = (String::new(), String::new(), Vec::new());
        let mut door = Self { service, engine, memory, driver, upload, etag, state, inputs: 0, _folder: folder };
        door.furnish().await;
        door
    }

    /// What examples speak of: objects, and an upload with one part.
    async fn furnish(&mut self) {
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
        self.state = state(&self.driver);
    }

    async fn answer(&self, wire: &Wire, pieces: Vec<Bytes>) -> (StatusCode, HeaderMap, Bytes) {
        let frames = pieces.into_iter().map(|piece| Ok(Frame::data(piece)));
        let hung_up = wire.breaks_off().then(|| Err(std::io::Error::other("the client hung up")));
        let mut request = Request::new(StreamBody::new(stream::iter(frames.chain(hung_up).collect::<Vec<_>>())));
        *request.method_mut() = wire.method.clone();
        *request.uri_mut() = wire.uri.clone();
        *request.headers_mut() = wire.headers.clone();
        let response = self.service.answer(request).await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("a body to its end").to_bytes();
        self.engine.tasks().drained().await;
        (parts.status, parts.headers, body)
    }
}

async fn open_engine(
    driver: &Arc<dyn Driver>,
    clock: &Arc<dyn Clock>,
    entropy: &Arc<dyn Entropy>,
) -> (Engine, Arc<Memory>) {
    let catalog = Arc::new(Catalog::new(driver.clone()));
    let ids = IdSource::new(clock.clone(), entropy.clone());
    let name: BackendName = "memory".parse().expect("a name");
    catalog.set_limit(&name, None).await.expect("books");
    let memory = Arc::new(Memory::new(name));
    let fleet = Arc::new(Fleet::new(vec![memory.clone()]).expect("a fleet"));
    let identity = Identity::new(IdentityParts {
        identities: catalog.clone(),
        records: catalog.clone(),
        fleet: fleet.clone(),
        ids: ids.clone(),
        clock: clock.clone(),
        cluster: catalog.cluster_id("cluster").await.expect("a cluster"),
        host: "host:9000".to_owned(),
        alarm: Arc::new(()),
        settings: IdentitySettings::default(),
    });
    assert!(identity.attach().await, "attached");
    let engine = Engine::new(EngineParts {
        catalog,
        fleet,
        instance: InstanceId::new(ids.fresh()),
        ids,
        clock: clock.clone(),
        settings: Settings {
            lease: Duration::from_mins(5),
            late_write_window: Duration::from_hours(1),
            object_bytes_max: 1 << 40,
            announce: true,
            recovery: Recovery::Promote,
        },
        configured: Shared::default(),
        configured_rules: Shared::default(),
        cleanup_bell: Arc::default(),
        metrics: IntentMetrics::default(),
        alarm: Arc::new(()),
        cache: None,
    });
    (engine, memory)
}

fn rows<T>(driver: &Arc<dyn Driver>, sql: &'static str, read: impl Fn(&s3o_catalog::unit::Row) -> T) -> Vec<T> {
    let statement = Statement::new(sql, vec![]);
    let rows = futures_util::FutureExt::now_or_never(driver.read(statement));
    rows.expect("reads are done at once").expect("a query").iter().map(read).collect()
}

fn state(driver: &Arc<dyn Driver>) -> Vec<String> {
    rows(driver, STATE, |row| row.text(0).expect("text").to_owned())
}

fn numbers(driver: &Arc<dyn Driver>, sql: &'static str) -> Vec<i64> {
    rows(driver, sql, |row| row.int(0).expect("a number"))
}

/// What must hold of every answer, whatever was asked.
fn check(wire: &Wire, answer: &Answer) {
    let status = answer.status;
    let asked = || format!("{} {} was answered with {status}", wire.method, wire.uri);
    // Nothing is wrong with this store, so nothing but "not implemented" may be our fault.
    let ours = status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED;
    assert!(!ours && status.as_u16() >= 200, "{}: {:?}", asked(), answer.body);
    let id = answer.header("x-amz-request-id").expect("an identifier");
    if wire.method == "HEAD" || status == StatusCode::NOT_MODIFIED || status == StatusCode::NO_CONTENT {
        assert!(answer.body.is_empty(), "{} with a body", asked());
        return;
    }
    if let Some(length) = answer.header("content-length") {
        assert_eq!(length, answer.body.len().to_string(), "{}", asked());
    }
    if !status.is_success() {
        let document = answer.document();
        assert_eq!(document.root, "Error", "{}", asked());
        assert!(!document.only("Code").is_empty() && !document.only("Message").is_empty(), "{document:?}");
        assert_eq!(document.only("RequestId"), id);
    } else if answer.header("content-type") == Some("application/xml") && !answer.body.is_empty() {
        let reads_object = wire.method == "GET" && answer.headers.contains_key("etag");
        if !reads_object {
            answer.document();
        }
    }
}
